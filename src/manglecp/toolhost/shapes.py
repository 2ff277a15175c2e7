"""Type hints as shapes: the few kinds of JSON that a typed function can take.

A hint is read once into a tree of shapes. What a shape looks like as JSON Schema (:mod:`.schema`) and how a JSON value
becomes a Python value of it (:mod:`.conversion`) are two readings of the same tree, so they cannot disagree about what
the hint means. What the two could not agree on is refused here, when a plugin loads.

Classes are read in :mod:`.records` and what stands in ``Annotated`` in :mod:`.constraints`; a plugin that has neither
does not pay for them.

Objects are closed: a member that nobody declared is a mistake of the caller, and silence would hide it.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "ArrayOf",
    "Choice",
    "Constrained",
    "Field",
    "HintError",
    "Limits",
    "MapOf",
    "Record",
    "Scalar",
    "Shape",
    "Union",
    "shape",
]


class HintError(TypeError):
    """A hint that says nothing about JSON."""


class Limits(NamedTuple):
    """Constraints for ``Annotated`` that cost a plugin no import."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    description: str | None = None


class Scalar(NamedTuple):
    """One of the simple kinds, by the name that JSON Schema has for it; ``any`` is no restriction."""

    kind: Literal["any", "null", "boolean", "integer", "number", "string"]


class Choice(NamedTuple):
    """One of a few values. ``results`` are what the function gets for them: themselves, or members of an enum."""

    values: tuple[Any, ...]
    results: tuple[Any, ...]


class ArrayOf(NamedTuple):
    """Items of one shape, or with ``fixed`` as many as there are shapes."""

    item: Shape | None
    fixed: tuple[Shape, ...] | None
    build: Callable[[list[Any]], Any]


class MapOf(NamedTuple):
    """Any names, values of one shape."""

    value: Shape


class Field(NamedTuple):
    """A member of an object. ``target`` is its name in Python, or None if it only has to be there."""

    name: str
    shape: Shape
    required: bool
    target: str | None


class Record(NamedTuple):
    """Declared names, each with its own shape; ``build`` makes the Python object of them."""

    fields: tuple[Field, ...]
    build: Callable[..., Any]


class Union(NamedTuple):
    """One of these. Which, if several fit, is for the conversion to say."""

    options: tuple[Shape, ...]


class Constrained(NamedTuple):
    """A shape with JSON Schema keywords: some restrict it, others only describe it."""

    inner: Shape
    keywords: Mapping[str, Any]


Shape: TypeAlias = "Scalar | Choice | ArrayOf | MapOf | Record | Union | Constrained"

_SCALARS: Final[dict[Any, Scalar]] = {
    Any: Scalar("any"),
    object: Scalar("any"),
    None: Scalar("null"),
    type(None): Scalar("null"),
    bool: Scalar("boolean"),
    int: Scalar("integer"),
    float: Scalar("number"),
    str: Scalar("string"),
}
_ARRAYS: Final[dict[Any, Callable[[list[Any]], Any]]] = {list: list, Sequence: list}
_QUALIFIERS: Final = ("Required", "NotRequired", "ReadOnly")
_DEEPEST: Final = 50
"""Classes within classes. A generic class can contain itself without ever being the same hint twice."""


def shape(hint: Any) -> Shape:
    """The shape of a resolved hint (``typing.get_type_hints(..., include_extras=True)``)."""
    return _shape(hint, ())


def _shape(hint: Any, outer: tuple[Any, ...]) -> Shape:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:  # first, for what stands in it need not be hashable
        from manglecp.toolhost.constraints import constrained

        return constrained(_shape(arguments[0], outer), hint.__metadata__)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if getattr(origin, "_name", None) in _QUALIFIERS:  # by name, for typing_extensions has its own of them
        return _shape(arguments[0], outer)
    if origin is Literal:
        from manglecp.toolhost.records import choice

        return choice(arguments, hint)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, outer)
    kind = origin or hint
    if kind in _ARRAYS:
        return ArrayOf(_shape(arguments[0], outer) if arguments else Scalar("any"), None, _ARRAYS[kind])
    if kind is tuple:
        return _tuple(arguments, outer)
    if kind in (set, frozenset):
        return _set(hint, kind, arguments, outer)
    if kind in (dict, Mapping):
        return _map(hint, arguments, outer)
    if isinstance(hint, typing.NewType):
        return _shape(hint.__supertype__, outer)
    if isinstance(hint, typing.TypeVar):
        return _variable(hint, outer)
    if isinstance(kind, type):
        if hint in outer or len(outer) >= _DEEPEST:
            raise HintError(f"{kind.__name__} contains itself; a schema that ends is needed")
        from manglecp.toolhost.records import of_class

        deeper = (*outer, hint)
        return of_class(hint, lambda member: _shape(member, deeper))
    raise HintError(f"{hint!r} has no meaning in JSON")


def _union(options: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    msgspec = sys.modules.get("msgspec")
    unset = msgspec.UnsetType if msgspec is not None else None  # says that a member may be missing: a default says so
    read = tuple(_shape(option, outer) for option in options if unset is None or option is not unset)
    return Union(read) if len(read) > 1 else read[0]


def _variable(variable: typing.TypeVar, outer: tuple[Any, ...]) -> Shape:
    """A type variable that nobody has bound: whatever it may stand for."""
    if variable.__constraints__:
        return _union(variable.__constraints__, outer)
    return _shape(Any if variable.__bound__ is None else variable.__bound__, outer)


def _tuple(arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    if not arguments:
        return ArrayOf(Scalar("any"), None, tuple)
    if arguments[-1] is Ellipsis:
        return ArrayOf(_shape(arguments[0], outer), None, tuple)
    return ArrayOf(None, tuple(_shape(item, outer) for item in arguments), tuple)


def _set(hint: Any, build: Any, arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    from manglecp.toolhost.constraints import kinds

    item = _shape(arguments[0], outer) if arguments else Scalar("any")
    held = kinds(item)
    if held & {"array", "object"}:
        raise HintError(f"{hint!r}: arrays and objects cannot be in a set")
    if "boolean" in held and held & {"integer", "number"}:
        raise HintError(f"{hint!r}: true and 1 are two values in JSON, but one in a set")
    return Constrained(ArrayOf(item, None, build), {"uniqueItems": True})


def _map(hint: Any, arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    if arguments and _shape(arguments[0], outer) != Scalar("string"):
        raise HintError(f"{hint!r}: the names in a JSON object are strings")
    return MapOf(_shape(arguments[1], outer) if arguments else Scalar("any"))
