"""Templates and patterns of JSON values, with which the scripts of checks are written.

In the texts of a template, ``<name>`` stands for a value. A pattern is a JSON value; an object in a pattern may have
fewer members than the object that it matches. An object whose only member starts with ``$`` is a test; see ``_TESTS``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from manglecp.wire import is_valid

_NAME: Final = re.compile(r"<([a-z_]+(?:\.[a-z_]+)?)>")
_MISSING: Final = object()
# JSON texts are compared, not values: in Python, 1 and True are equal.
_dump: Final = json.JSONEncoder(sort_keys=True, default=lambda _: "(missing)").encode
_TESTS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {  # functions of the argument of the test and a value
    "$type": lambda argument, value: value is not _MISSING and is_valid(value, {"type": argument}),
    "$schema": lambda argument, value: value is not _MISSING and is_valid(value, argument),
    "$matches": lambda argument, value: isinstance(value, str) and re.search(argument, value) is not None,
    "$mentions": lambda argument, value: value is not _MISSING and re.search(argument, _dump(value)) is not None,
    "$json": lambda argument, value: isinstance(value, str) and _dump(parse(argument)) == _dump(parse(value)),
    "$exactly": lambda argument, value: isinstance(value, dict) and value.keys() == argument.keys(),  # no other members
    "$keys": lambda argument, value: isinstance(value, dict) and value.keys() == set(argument),
    "$each": lambda _, value: isinstance(value, list) and value != [],  # differences() tests each element
    "$ascending": lambda key, value: isinstance(value, list) and value == sorted(value, key=lambda item: item[key]),
    "$unique": lambda key, value: _are_unique([item.get(key) for item in value or () if isinstance(item, dict)]),
    "$some": lambda pattern, value: isinstance(value, list) and any(matches(pattern, item) for item in value),
    "$includes": lambda items, value: isinstance(value, list) and all(item in value for item in items),
    "$excludes": lambda items, value: isinstance(value, list) and not any(item in value for item in items),
    "$within": lambda items, value: isinstance(value, list) and all(item in items for item in value),
    "$separates": lambda pairs, value: isinstance(value, list) and not any(a in value and b in value for a, b in pairs),
    "$with": lambda pairs, value: isinstance(value, list) and all(a not in value or b in value for a, b in pairs),
    "$any": lambda argument, value: any(matches(one, value) for one in argument),
    "$absent": lambda _, value: value is _MISSING or value is False or value == {},
    "$not": lambda argument, value: value is not _MISSING and not matches(argument, value),
    "$at_least": lambda argument, value: type(value) in (int, float) and value >= argument,
}


def _are_unique(values: list[Any]) -> bool:
    return len({_dump(value) for value in values}) == len(values)


def fill(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a template with values in place of names. A text that is only a name may become a value of any type.

    Raises AssertionError for an unknown name, which is an error of the script, not of the answer.
    """
    if isinstance(value, Mapping):
        return {fill(name, names): fill(member, names) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [fill(member, names) for member in value]
    if not isinstance(value, str):
        return value
    unknown = [name for name in _NAME.findall(value) if name not in names]
    assert not unknown, f"{value!r} has the unknown name {unknown[0]}"
    whole_match = _NAME.fullmatch(value)
    return names[whole_match[1]] if whole_match is not None else _NAME.sub(lambda match: str(names[match[1]]), value)


def differences(expected: Any, value: Any, where: str = "answer") -> Iterator[str]:
    """Yield each difference between a pattern and a JSON value."""
    name = next(iter(expected)) if isinstance(expected, dict) and len(expected) == 1 else ""
    if name.startswith("$"):
        argument = expected[name]
        if not _TESTS[name](argument, value):
            yield f"{where} is {_dump(value):.300}, expected {name} {_dump(argument):.300}"
        elif name in ("$each", "$exactly"):
            for part in value if name == "$each" else [value]:
                yield from differences(argument, part, where)
    elif isinstance(expected, dict) and isinstance(value, dict):
        for member, part in expected.items():
            yield from differences(part, value.get(member, _MISSING), f"{where}.{member}")
    elif _dump(expected) != _dump(value):
        yield f"{where} is {_dump(value):.300}, expected {_dump(expected):.300}"


def matches(pattern: Any, value: Any) -> bool:
    """Return whether the value has no difference from the pattern."""
    return not any(differences(pattern, value))


def parse(text: str | bytes) -> Any:
    """Return the JSON value of a text; for a text that is not JSON, return a text that no pattern matches."""
    try:
        return json.loads(text)
    except ValueError:
        return f"not JSON: {text[:300]!r}"
