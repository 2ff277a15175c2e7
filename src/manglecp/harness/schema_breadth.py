"""How much work a value is for whoever holds it against a schema, before anybody does.

Without references a schema is a tree, and each of its nodes looks at each value at most once. How many nodes look at
one and the same value is the *breadth* of the schema: 1 for a list of numbers, 41 for a list of things of forty kinds.
Breadth times the size of a value bounds the work, and both are quickly told: the breadth once for each schema, the size
no further than it matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["breadth", "size"]

_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE: Final = ("not", "if", "then", "else", "propertyNames")
_ANY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_ANY_ENTRY: Final = ("items", "additionalItems", "contains", "unevaluatedItems")
_LETTERS: Final = 32
"""Of a text that count as much as a value: a pattern has to look at all of them."""
_DEEPEST: Final = 200


def breadth(schema: Any) -> int:
    """The largest number of nodes of the schema that look at one value."""
    widest, waiting = 0, [([schema], 0)]
    while waiting:
        some, depth = waiting.pop()
        here = _in_place(some)
        widest = max(widest, len(here))
        if depth < _DEEPEST:
            waiting += [(below, depth + 1) for below in _children(here) if below]
        else:
            widest = max(widest, sum(map(_nodes, here)))
    return widest


def _in_place(some: Iterable[Any]) -> list[Mapping[str, Any]]:
    """These schemas, and those in them that look at the same value."""
    found: list[Mapping[str, Any]] = []
    waiting = list(some)
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        found.append(one)
        for name in _IN_PLACE:
            waiting += _parts(one.get(name))
        for name in ("dependentSchemas", "dependencies"):
            waiting += _parts(one.get(name))
        waiting += [one[name] for name in _IN_PLACE_ONE if name in one]
    return found


def _children(here: list[Mapping[str, Any]]) -> Iterable[list[Any]]:
    """The schemas that look at the same member, for each member that is named; at any other one; at an entry."""
    named: dict[str, list[Any]] = {}
    anywhere: list[Any] = []
    entries: list[Any] = []
    for one in here:
        properties = one.get("properties")
        for name, part in properties.items() if isinstance(properties, Mapping) else ():
            named.setdefault(name, []).append(part)
        anywhere += _parts(one.get("patternProperties"))
        anywhere += [one[name] for name in _ANY_MEMBER if name in one]
        entries += _parts(one.get("prefixItems"))
        for name in _ANY_ENTRY:
            part = one.get(name)
            entries += part if isinstance(part, list) else [part]
    yield anywhere
    yield entries
    for parts in named.values():
        yield [*parts, *anywhere] if anywhere else parts


def _nodes(schema: Any) -> int:
    count, waiting = 0, [schema]
    while waiting:
        one = waiting.pop()
        count += 1
        waiting += _parts(one)
    return count


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []


def size(value: Any, most: int) -> int:
    """How many values there are in it, itself among them; not counted much further than ``most``."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        one = waiting.pop()
        count += 1
        if isinstance(one, str):
            count += len(one) // _LETTERS
        elif one is None or isinstance(one, (int, float)):
            continue  # most of what there is, and no question to an abstract class
        elif isinstance(one, list):
            count += max(0, len(one) - most)  # not even looked at
            waiting += one[:most]
        elif isinstance(one, (dict, Mapping)):
            waiting += one.values()
            waiting += one
    return count
