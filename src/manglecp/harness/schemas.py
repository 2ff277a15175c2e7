"""Whether arguments fit a JSON Schema.

The schema comes with the evidence and is no more to be trusted than the rest of it. So nothing is fetched, patterns run
in linear time, and what cannot be compiled fits nothing. That leaves two ways to keep a validator busy: references that
double at every step, and many alternatives for each of many values. :func:`looks` tells how often a validator would
look at anything before it is allowed to look; what would have it look too often fits nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from manglecp.base.json import canonical
from manglecp.harness.schema_breadth import breadth, size

__all__ = ["MOST_LOOKS", "fits", "fitting", "looks"]

MOST_LOOKS: Final = 4_000_000
_MOST_VISITS: Final = 1_000_000
_MOST_PAIRS: Final = 100_000
_NARROW: Final = 2
"""A schema that is no broader is no work, however long a message may be."""

_SAME_PLACE: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE_ONE: Final = ("not", "if", "then", "else")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_ANY_ENTRY: Final = ("items", "additionalItems", "contains", "unevaluatedItems")


def fits(arguments: Any, schema: dict[str, Any]) -> bool:
    """Whether the arguments are known to fit."""
    return fitting(schema)(arguments)


def fitting(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """As :func:`fits`, for whoever asks often about one schema. It must not be changed meanwhile."""
    encoded = canonical(schema)
    wide = _wide(encoded)
    is_valid: Callable[[Any], bool] | None = None

    def fit(arguments: Any) -> bool:
        nonlocal is_valid
        if (wide is None or wide > _NARROW) and looks(arguments, schema) > MOST_LOOKS:
            return False
        if is_valid is None:
            validator = _validator(encoded)
            is_valid = (lambda _: False) if validator is None else validator.is_valid
        try:
            return is_valid(arguments)
        except ValueError:  # too deep to be looked at
            return False

    return fit


def looks(arguments: Any, schema: dict[str, Any]) -> float:
    """At most how often a validator looks at anything; infinity if that is too often, or cannot be told."""
    wide = _wide(canonical(schema))
    if wide is None:
        visits = _visits(arguments, schema)
        return visits if visits <= _MOST_VISITS else float("inf")
    most = MOST_LOOKS // max(wide, 1)
    found = size(arguments, most)
    return found * wide if found <= most else float("inf")


@lru_cache(maxsize=256)
def _wide(encoded: bytes) -> int | None:
    """How many nodes of the schema look at one value; None if it has references, until it meets a value."""
    return None if b'Ref"' in encoded or b'$ref"' in encoded else breadth(msgspec.json.decode(encoded))


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    """A validator that fetches nothing, or None for a schema that is none."""
    import jsonschema_rs  # only who has arguments to validate pays for it

    try:
        return jsonschema_rs.validator_for(
            schema.decode(),
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20),
        )
    except ValueError:
        return None


def _visits(arguments: Any, schema: dict[str, Any]) -> float:
    """At most how many pairs of a schema and a value a validator looks at; infinity if that cannot be told.

    Pairs that are reached along several ways are counted along each, but worked out once.
    """
    counts: dict[tuple[int, int], int] = {}
    waiting: list[tuple[Any, Any, list[tuple[Any, Any]] | None]] = [(schema, arguments, None)]
    while waiting:
        part, value, below = waiting.pop()
        pair = (id(part), id(value))
        if below is not None:
            counts[pair] = min(1 + sum(counts[id(a), id(b)] for a, b in below), _MOST_VISITS + 1)
            continue
        if pair in counts:
            continue
        if len(counts) > _MOST_PAIRS:
            return float("inf")
        below = list(_below(part, value, schema))
        if any(a is _UNKNOWN for a, _ in below):
            return float("inf")
        counts[pair] = 0  # what leads back to itself adds nothing
        waiting.append((part, value, below))
        waiting += [(a, b, None) for a, b in below]
    return counts[id(schema), id(arguments)]


_UNKNOWN: Final = object()


def _below(part: Any, value: Any, whole: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """What a validator looks at because of one schema and one value."""
    if not isinstance(part, dict):
        return
    for name in _REFERENCES:
        if name in part:
            yield _target(part[name], whole), value
    for name in _SAME_PLACE:
        yield from ((one, value) for one in _parts(part.get(name)))
    for name in _SAME_PLACE_ONE:
        if name in part:
            yield part[name], value
    for name in ("dependentSchemas", "dependencies"):
        yield from ((one, value) for one in _parts(part.get(name)))
    if isinstance(value, dict):
        for name, one in _named(part.get("properties")):
            if name in value:
                yield one, value[name]
        for one in (*_parts(part.get("patternProperties")), *(part[name] for name in _ANY_MEMBER if name in part)):
            yield from ((one, entry) for entry in value.values())
    elif isinstance(value, list):
        for one in (*_parts(part.get("prefixItems")), *(part[name] for name in _ANY_ENTRY if name in part)):
            for each in _parts(one) if isinstance(one, list) else (one,):
                yield from ((each, entry) for entry in value)


def _named(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _target(reference: Any, whole: dict[str, Any]) -> Any:
    """What a reference within the schema leads to. No others are followed."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return _UNKNOWN
    found: Any = whole
    for step in reference[2:].split("/") if len(reference) > 1 else ():
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return _UNKNOWN
    return found
