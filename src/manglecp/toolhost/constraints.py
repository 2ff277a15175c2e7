"""What stands in ``Annotated``, as keywords of JSON Schema.

Constraints are :class:`~.shapes.Limits` or any object that has the same attributes (``msgspec.Meta``, the classes of
``annotated_types``). A bare string is a description. Several constraints hold together, so the tightest counts.

Everything else is refused: an object that we do not understand may be a promise that nobody would keep. So is a limit
on something that has no such size, and a number that JSON cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from manglecp.toolhost.shapes import (
    ArrayOf,
    Choice,
    Constrained,
    HintError,
    Limits,
    MapOf,
    Record,
    Scalar,
    Shape,
    Union,
)

__all__ = ["constrained", "kinds"]

_NUMBERS: Final = frozenset({"integer", "number"})
_BOUNDS: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "ge": ("minimum", max),
    "gt": ("exclusiveMinimum", max),
    "le": ("maximum", min),
    "lt": ("exclusiveMaximum", min),
}
_LENGTHS: Final[dict[str, tuple[dict[str, str], Callable[..., Any]]]] = {
    "min_length": ({"string": "minLength", "array": "minItems", "object": "minProperties"}, max),
    "max_length": ({"string": "maxLength", "array": "maxItems", "object": "maxProperties"}, min),
}
_TEXTS: Final = {"title": "title", "description": "description", "documentation": "description"}
_KNOWN: Final = frozenset({*_BOUNDS, *_LENGTHS, *_TEXTS, "multiple_of", "pattern", "examples"})
_KIND_OF: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def constrained(inner: Shape, metadata: tuple[Any, ...]) -> Shape:
    """A shape with everything that its hint says about it."""
    keywords: dict[str, Any] = {}
    if isinstance(inner, Constrained):  # a NewType of something that has limits already
        keywords.update(inner.keywords)
        inner = inner.inner
    about = kinds(inner)
    for entry in metadata:
        said = {"description": entry} if isinstance(entry, str) else _attributes(entry)
        for attribute, value in said.items():
            _add(keywords, attribute, value, about)
    return Constrained(inner, keywords) if keywords else inner


def kinds(inner: Shape) -> frozenset[str]:
    """The kinds of JSON values that the shape can take, by their names in JSON Schema."""
    match inner:
        case Scalar("any"):
            return frozenset({*_KIND_OF.values(), "array", "object"})
        case Scalar(kind):
            return frozenset({kind})
        case Choice(values, _):
            return frozenset(_KIND_OF[type(value)] for value in values)
        case ArrayOf():
            return frozenset({"array"})
        case MapOf() | Record():
            return frozenset({"object"})
        case Union(options):
            return frozenset().union(*map(kinds, options))
        case Constrained(deeper, _):
            return kinds(deeper)


def _attributes(entry: object) -> dict[str, Any]:
    """What an object says, if we understand all of it."""
    said = dict(_public(entry))
    if not said.keys() & _KNOWN:
        raise HintError(f"Annotated: {entry!r} says nothing that JSON Schema has a word for")
    for name in said.keys() - _KNOWN:
        if said[name] is not None:
            raise HintError(f"Annotated: {name} of {entry!r} has no meaning here")
    return {name: value for name, value in said.items() if value is not None}


def _public(entry: object) -> Iterator[tuple[str, Any]]:
    if isinstance(entry, Limits):
        yield from entry._asdict().items()
        return
    for name in dir(entry):
        if not name.startswith("_") and not callable(getattr(type(entry), name, None)):  # data, no methods
            yield name, getattr(entry, name)


def _add(keywords: dict[str, Any], attribute: str, value: Any, about: frozenset[str]) -> None:
    if attribute in _TEXTS:
        if not isinstance(value, str):
            raise HintError(f"{attribute} is no text: {value!r}")
        keywords[_TEXTS[attribute]] = str(value)
    elif attribute == "examples":
        keywords["examples"] = _examples(value)
    elif attribute in _LENGTHS:
        _add_length(keywords, attribute, value, about)
    elif attribute == "pattern":
        _said_of(attribute, about & {"string"})
        _check_pattern(value)
        _add_once(keywords, "pattern", value)
    else:
        _said_of(attribute, about & _NUMBERS)
        # JSON has no other numbers. A float is finite if it differs from itself by nothing.
        if type(value) not in (int, float) or value - value != 0:
            raise HintError(f"{attribute} is no number that JSON has: {value!r}")
        if attribute == "multiple_of":
            if value <= 0:
                raise HintError(f"multiple_of is not above 0: {value!r}")
            _add_once(keywords, "multipleOf", value)
        else:
            keyword, tightest = _BOUNDS[attribute]
            keywords[keyword] = tightest(keywords.get(keyword, value), value)


def _add_length(keywords: dict[str, Any], attribute: str, value: Any, about: frozenset[str]) -> None:
    names, tightest = _LENGTHS[attribute]
    measured = [name for kind, name in names.items() if kind in about]
    _said_of(attribute, measured)
    if type(value) is not int or value < 0:
        raise HintError(f"{attribute} is no length: {value!r}")
    for keyword in measured:
        keywords[keyword] = tightest(keywords.get(keyword, value), value)


def _add_once(keywords: dict[str, Any], keyword: str, value: Any) -> None:
    """A keyword that cannot be tightened. JSON Schema has another place for the second of them."""
    if keywords.setdefault(keyword, value) != value:
        keywords["allOf"] = [*keywords.get("allOf", ()), {keyword: value}]


def _said_of(attribute: str, measured: object) -> None:
    if not measured:
        raise HintError(f"{attribute} is said of something that has nothing of the kind")


def _check_pattern(pattern: Any) -> None:
    from manglecp.toolhost.patterns import matcher  # it needs `re`

    if type(pattern) is not str:
        raise HintError(f"pattern is no text: {pattern!r}")
    try:
        matcher(pattern)
    except ValueError as error:
        raise HintError(f"pattern {pattern!r}: {error}") from error


def _examples(examples: Any) -> list[Any]:
    import json

    try:
        copied: list[Any] = json.loads(json.dumps(list(examples), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise HintError(f"the examples are not JSON: {error}") from error
    return copied
