"""Type hints as shapes: the few kinds of JSON that a typed function can take.

A hint is read once into a tree of shapes. What a shape looks like as JSON Schema (:mod:`.schema`) and how a JSON value
becomes a Python value of it (:mod:`.conversion`) are two readings of the same tree, so they cannot disagree about what
the hint means.

Constraints stand in ``Annotated``, as :class:`Limits` or as any object that has the same attributes (``msgspec.Meta``,
the classes of ``annotated_types``). A bare string there is a description.

Objects are closed: a member that nobody declared is a mistake of the caller, and silence would hide it.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
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
    """Constraints for ``Annotated`` that cost a host no import."""

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
    """The first of these that fits."""

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
_ATTRIBUTES: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "title": "title",
    "description": "description",
    "examples": "examples",
}
_LENGTHS: Final = {
    "min_length": {"string": "minLength", "array": "minItems", "object": "minProperties"},
    "max_length": {"string": "maxLength", "array": "maxItems", "object": "maxProperties"},
}


def shape(hint: Any) -> Shape:
    """The shape of a resolved hint (``typing.get_type_hints(..., include_extras=True)``)."""
    return _shape(hint, ())


def _shape(hint: Any, outer: tuple[Any, ...]) -> Shape:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:  # first, for what stands in it need not be hashable
        return _constrained(_shape(arguments[0], outer), hint.__metadata__)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin in (typing.Required, typing.NotRequired):
        return _shape(arguments[0], outer)
    if origin is Literal:
        return Choice(arguments, arguments)
    if origin in (typing.Union, types.UnionType):
        return Union(tuple(_shape(option, outer) for option in arguments))
    kind = origin or hint
    if kind in _ARRAYS:
        return ArrayOf(_shape(arguments[0], outer) if arguments else Scalar("any"), None, _ARRAYS[kind])
    if kind is tuple:
        return _tuple(arguments, outer)
    if kind in (dict, Mapping):
        return _map(hint, arguments, outer)
    if isinstance(hint, typing.NewType):
        return _shape(hint.__supertype__, outer)
    if isinstance(hint, type):
        if hint in outer:
            raise HintError(f"{hint.__name__} contains itself; a schema that ends is needed")
        return _class(hint, (*outer, hint))
    raise HintError(f"{hint!r} has no meaning in JSON")


def _tuple(arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    if not arguments:
        return ArrayOf(Scalar("any"), None, tuple)
    if arguments[-1] is Ellipsis:
        return ArrayOf(_shape(arguments[0], outer), None, tuple)
    return ArrayOf(None, tuple(_shape(item, outer) for item in arguments), tuple)


def _map(hint: Any, arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    if arguments and arguments[0] is not str:
        raise HintError(f"{hint!r}: the names in a JSON object are strings")
    return MapOf(_shape(arguments[1], outer) if arguments else Scalar("any"))


def _class(hint: Any, outer: tuple[Any, ...]) -> Shape:
    if issubclass(hint, Enum):
        members = tuple(hint)
        return Choice(tuple(member.value for member in members), members)
    if typing.is_typeddict(hint):
        required: frozenset[str] = hint.__required_keys__
        return _record(hint, {name: name in required for name in _hints(hint)}, dict, outer)
    if hasattr(hint, "__dataclass_fields__"):
        from dataclasses import MISSING, fields  # whoever has a dataclass has paid for this

        optional = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(hint) if f.init}
        return _record(hint, optional, hint, outer)
    if hasattr(hint, "__struct_fields__"):
        return _struct(hint, outer)
    raise HintError(f"{hint.__name__} has no meaning in JSON")


def _hints(owner: Any) -> dict[str, Any]:
    return typing.get_type_hints(owner, include_extras=True)


def _record(hint: type, required: Mapping[str, bool], build: Callable[..., Any], outer: tuple[Any, ...]) -> Record:
    hints = _hints(hint)
    return Record(tuple(Field(n, _shape(hints[n], outer), must, n) for n, must in required.items()), build)


def _struct(hint: Any, outer: tuple[Any, ...]) -> Record:
    """A msgspec Struct, with the names that it has on the wire; a tag is a member that has one value."""
    structs = sys.modules["msgspec"].structs  # whoever has a Struct has imported this
    hints = _hints(hint)
    fields = [Field(f.encode_name, _shape(hints[f.name], outer), f.required, f.name) for f in structs.fields(hint)]
    config = hint.__struct_config__
    if config.tag is not None:
        fields.insert(0, Field(config.tag_field, Choice((config.tag,), (config.tag,)), True, None))
    return Record(tuple(fields), hint)


def _constrained(inner: Shape, metadata: tuple[Any, ...]) -> Shape:
    keywords: dict[str, Any] = {}
    for entry in metadata:
        if isinstance(entry, str):
            keywords["description"] = entry
        else:
            keywords.update(_attributes(entry, _kind(inner)))
    return Constrained(inner, keywords) if keywords else inner


def _attributes(entry: object, kind: str) -> dict[str, Any]:
    found = {k: getattr(entry, a) for a, k in _ATTRIBUTES.items() if getattr(entry, a, None) is not None}
    for attribute, kinds in _LENGTHS.items():
        if (length := getattr(entry, attribute, None)) is not None:
            if kind not in kinds:
                raise HintError(f"{attribute} is said of something that has no length")
            found[kinds[kind]] = length
    return found


def _kind(inner: Shape) -> str:
    match inner:
        case Scalar(kind):
            return kind
        case ArrayOf():
            return "array"
        case MapOf() | Record():
            return "object"
        case Constrained(deeper, _):
            return _kind(deeper)
        case _:
            return "any"
