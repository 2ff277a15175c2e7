"""Whether an answer is what a script expects.

Objects may have more members than are expected, arrays may not have more elements. An expected object with one member
whose name starts with ``$`` is a test instead:

======================= ==============================================================
``$type``               the name of a JSON type
``$matches``            a string in which the pattern is found
``$json``               a string that holds this JSON value, given as JSON text
``$exactly``            an object with these members and no others
``$keys``               an object with exactly these names
``$each``               a non-empty array whose elements are all like this
``$ascending``          an array of objects in the order of this member
``$absent``             the member is not there, or is false or an empty object
``$not``                anything but this
``$at_least``           a number that is not smaller
======================= ==============================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

__all__ = ["differences"]

_TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "text": lambda value: isinstance(value, str) and value != "",
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null or object": lambda value: value is None or isinstance(value, dict),
}
_MISSING: Final = object()


def differences(expected: object, found: object, where: str = "answer") -> Iterator[str]:
    """Every way in which ``found`` is not what was expected, as a sentence each."""
    if isinstance(expected, dict):
        if len(expected) == 1 and (name := next(iter(expected))).startswith("$"):
            if not _passes(name, expected[name], found):
                yield f"{where} is {_show(found)}, expected {name} {_show(expected[name])}"
            yield from _inside(name, expected[name], found, where)
        elif not isinstance(found, dict):
            yield f"{where} is {_show(found)}, expected an object"
        else:
            for name, value in expected.items():
                yield from differences(value, found.get(name, _MISSING), f"{where}.{name}")
    elif isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            yield f"{where} is {_show(found)}, expected {_show(expected)}"
        else:
            for position, (one, other) in enumerate(zip(expected, found, strict=True)):
                yield from differences(one, other, f"{where}[{position}]")
    elif not _same(expected, found):
        yield f"{where} is {_show(found)}, expected {_show(expected)}"


def _inside(name: str, wanted: Any, found: object, where: str) -> Iterator[str]:
    """Tests that look further into what they have found."""
    if name == "$each" and isinstance(found, list):
        for position, element in enumerate(found):
            yield from differences(wanted, element, f"{where}[{position}]")
    elif name == "$exactly" and isinstance(found, dict):
        yield from differences(wanted, found, where)


def _passes(name: str, wanted: Any, found: object) -> bool:
    match name:
        case "$type":
            return _TYPES[wanted](found)
        case "$matches":
            return isinstance(found, str) and re.search(wanted, found) is not None
        case "$json":
            return isinstance(found, str) and _same(_parsed(wanted), _parsed(found))
        case "$exactly":
            return isinstance(found, dict) and found.keys() == wanted.keys()
        case "$keys":
            return isinstance(found, dict) and found.keys() == set(wanted)
        case "$each":
            return isinstance(found, list) and found != []
        case "$ascending":
            return isinstance(found, list) and found == sorted(found, key=lambda element: element[wanted])
        case "$absent":
            return found is _MISSING or found is False or found == {}
        case "$not":
            return found is not _MISSING and any(differences(wanted, found))
        case "$at_least":
            return type(found) in (int, float) and found >= wanted
    raise ValueError(f"{name} is no test")


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return _MISSING


def _same(expected: object, found: object) -> bool:
    """Equal as JSON, where 1 and true are different."""
    return found is not _MISSING and json.dumps(expected, sort_keys=True) == json.dumps(found, sort_keys=True)


def _show(value: object) -> str:
    return "missing" if value is _MISSING else json.dumps(value)[:300]
