"""Parses type hints into shapes: the kinds of JSON values that a typed function can take.

A hint is read once into a tree of shapes. Its JSON Schema and its converter (:mod:`.conversion`) are derived from the
same tree, so they cannot disagree. A hint without an exact meaning in JSON is refused when a plugin loads.

Objects are closed: an undeclared member is an error. Classes (TypedDict, dataclass, msgspec Struct) are objects, enums
are sets of values. ``Annotated`` takes :class:`Limits`, any object with the same attributes (``msgspec.Meta``,
``annotated_types``), or a description; an attribute without a JSON Schema keyword is refused. Standard library only:
importing msgspec would nearly double the start time of a host.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, TypeAlias


class HintError(TypeError):
    """A hint that has no meaning in JSON."""


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


class Secret(NamedTuple):
    """Marks a parameter that gets the value of a secret of the pack: ``token: Annotated[str, Secret("TOKEN")]``."""

    name: str


def secret_name(hint: Any) -> str | None:
    """Return the name of the secret that a parameter with this hint gets; None for other parameters."""
    if typing.get_origin(hint) is not typing.Annotated:
        return None
    names = [entry.name for entry in hint.__metadata__ if isinstance(entry, Secret)]
    if names and (len(names) > 1 or typing.get_args(hint)[0] not in (str, str | None)):
        raise HintError(f"{hint!r}: a secret is one text: Annotated[str, Secret({names[0]!r})]")
    return names[0] if names else None


class Scalar(NamedTuple):
    """A simple type, by its name in JSON Schema; ``any`` accepts all values."""

    kind: Literal["any", "null", "boolean", "integer", "number", "string"]


class EnumOf(NamedTuple):
    """One of these JSON values. ``results`` are the Python values, in order: the same values, or members of an enum."""

    values: tuple[Any, ...]
    results: tuple[Any, ...]


class ArrayOf(NamedTuple):
    """An array of ``item`` shapes, or exactly one item of each shape in ``fixed``. ``build`` makes the Python value."""

    item: Shape | None
    fixed: tuple[Shape, ...] | None
    build: Callable[[list[Any]], Any]


class MapOf(NamedTuple):
    """An object with any names, and values of one shape."""

    value: Shape


class Field(NamedTuple):
    """A member of an object. ``target`` is its name in Python; None: it is checked, and not passed on."""

    name: str
    shape: Shape
    required: bool
    target: str | None


class ObjectOf(NamedTuple):
    """An object with these members only. ``build`` makes the Python value from keyword arguments."""

    fields: tuple[Field, ...]
    build: Callable[..., Any]


class Union(NamedTuple):
    options: tuple[Shape, ...]


class Constrained(NamedTuple):
    """A shape with JSON Schema keywords, which restrict or describe it."""

    inner: Shape
    keywords: Mapping[str, Any]


Shape: TypeAlias = "Scalar | EnumOf | ArrayOf | MapOf | ObjectOf | Union | Constrained"

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
_MAX_DEPTH: Final = 50  # nested classes: a generic class can contain itself with ever new type arguments


def shape(hint: Any, outer: tuple[Any, ...] = ()) -> Shape:
    """Return the shape of a resolved hint (with ``include_extras=True``); raises :class:`HintError`.

    ``outer`` are the classes that contain the hint.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:  # first: the next test hashes the hint, and metadata may be unhashable
        return constrained(shape(arguments[0], outer), hint.__metadata__)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if getattr(origin, "_name", None) in _QUALIFIERS:  # by name: typing_extensions has objects of its own
        return shape(arguments[0], outer)
    if origin is Literal:
        return enum_of(arguments, hint)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, outer)
    cls = origin or hint
    if cls in _ARRAYS:
        return ArrayOf(shape(arguments[0], outer) if arguments else Scalar("any"), None, _ARRAYS[cls])
    if cls is tuple:
        return _tuple(arguments, outer)
    if cls in (set, frozenset):
        return _set(hint, cls, arguments, outer)
    if cls in (dict, Mapping):
        return _map(hint, arguments, outer)
    if isinstance(hint, typing.NewType):
        return shape(hint.__supertype__, outer)
    if isinstance(hint, typing.TypeVar):
        return _variable(hint, outer)
    if isinstance(cls, type):
        if hint in outer or len(outer) >= _MAX_DEPTH:
            raise HintError(f"{cls.__name__} contains itself; a schema that ends is needed")
        return of_class(hint, lambda member: shape(member, (*outer, hint)))
    raise HintError(f"{hint!r} has no meaning in JSON")


def _union(options: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    msgspec = sys.modules.get("msgspec")
    # UnsetType only marks a member as optional, which the default of the member does as well.
    unset = msgspec.UnsetType if msgspec is not None else None
    shapes = tuple(shape(option, outer) for option in options if unset is None or option is not unset)
    return Union(shapes) if len(shapes) > 1 else shapes[0]


def _variable(variable: typing.TypeVar, outer: tuple[Any, ...]) -> Shape:
    """Return the shape of an unbound type variable: its constraints, its bound, or any value."""
    if variable.__constraints__:
        return _union(variable.__constraints__, outer)
    return shape(Any if variable.__bound__ is None else variable.__bound__, outer)


def _tuple(arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    if not arguments:
        return ArrayOf(Scalar("any"), None, tuple)
    if arguments[-1] is Ellipsis:
        return ArrayOf(shape(arguments[0], outer), None, tuple)
    return ArrayOf(None, tuple(shape(item, outer) for item in arguments), tuple)


def _set(hint: Any, build: Any, arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    item = shape(arguments[0], outer) if arguments else Scalar("any")
    item_kinds = kinds(item)
    if item_kinds & {"array", "object"}:
        raise HintError(f"{hint!r}: arrays and objects cannot be in a set")
    if "boolean" in item_kinds and item_kinds & {"integer", "number"}:
        raise HintError(f"{hint!r}: true and 1 are two values in JSON, but one in a set")
    return Constrained(ArrayOf(item, None, build), {"uniqueItems": True})


def _map(hint: Any, arguments: tuple[Any, ...], outer: tuple[Any, ...]) -> Shape:
    if arguments and shape(arguments[0], outer) != Scalar("string"):
        raise HintError(f"{hint!r}: the names in a JSON object are strings")
    return MapOf(shape(arguments[1], outer) if arguments else Scalar("any"))


ShapeReader: TypeAlias = Callable[[Any], Shape]
Bindings: TypeAlias = dict[Any, Any]  # hints, by type variable
_SIMPLE_TYPES: Final = (str, int, bool, type(None))


def enum_of(options: Iterable[Any], hint: object) -> EnumOf:
    """Return the shape of some values or members of an enum; raises :class:`HintError`, which quotes the hint."""
    results = tuple(options)
    values = tuple(option.value if isinstance(option, Enum) else option for option in results)
    if not values:
        raise HintError(f"{hint!r} has no values")
    for value in values:
        # A float is finite if value - value is 0.
        if type(value) not in _SIMPLE_TYPES and not (type(value) is float and value - value == 0):
            raise HintError(f"{hint!r}: {value!r} is not a simple JSON value")
    return EnumOf(values, results)


def of_class(hint: Any, read: ShapeReader) -> Shape:
    """Return the shape of a class, which may have type arguments; ``read`` returns the shape of a member's hint."""
    cls = typing.get_origin(hint) or hint
    if issubclass(cls, Enum):
        return enum_of(cls, hint)
    if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):  # typing_extensions has its own TypedDict
        return _typed_dict(hint, cls, read)
    if hasattr(cls, "__dataclass_fields__"):
        return _dataclass(hint, cls, read)
    if hasattr(cls, "__struct_fields__"):
        return _struct(hint, cls, read)
    raise HintError(f"{hint!r} has no meaning in JSON")


def _typed_dict(hint: Any, cls: Any, read: ShapeReader) -> ObjectOf:
    members = _members(hint, cls).items()
    return ObjectOf(
        tuple(Field(name, read(member), _is_required(cls, name, member), name) for name, member in members), dict
    )


def _is_required(cls: Any, name: str, member: Any) -> bool:
    """Return whether a member of a TypedDict is required: as its hint states, or else as the class states."""
    while (origin := typing.get_origin(member)) is not None:
        if origin in (typing.Required, typing.NotRequired):
            return origin is typing.Required
        if origin is not typing.Annotated and getattr(origin, "_name", None) != "ReadOnly":
            break
        member = typing.get_args(member)[0]
    return name in cls.__required_keys__


def _dataclass(hint: Any, cls: Any, read: ShapeReader) -> ObjectOf:
    from dataclasses import MISSING, InitVar, fields  # imported already, by the module with the dataclass

    if not cls.__dataclass_params__.init:
        raise HintError(f"{hint!r}: its constructor does not take its fields")
    members = _members(hint, cls)
    init_names = {field.name for field in fields(cls) if field.init}
    shape_fields = []
    for name, field in cls.__dataclass_fields__.items():
        member = members[name]
        if isinstance(member, InitVar):  # a parameter of the constructor that is not a field
            member = member.type
        elif name not in init_names:
            continue
        required = field.default is MISSING and field.default_factory is MISSING
        shape_fields.append(Field(name, read(member), required, name))
    return ObjectOf(tuple(shape_fields), cls)


def _struct(hint: Any, cls: Any, read: ShapeReader) -> ObjectOf:
    """Return the shape of a msgspec Struct, with its encoded names; a tag is a member with one value."""
    structs = sys.modules["msgspec"].structs  # imported already, by the module with the Struct
    config = cls.__struct_config__
    if config.array_like:
        raise HintError(f"{hint!r}: a Struct that is an array has no names for its members")
    members = structs.fields(hint)
    fields = [Field(member.encode_name, read(member.type), member.required, member.name) for member in members]
    if config.tag is not None:
        fields.insert(0, Field(config.tag_field, enum_of((config.tag,), hint), True, None))
    return ObjectOf(tuple(fields), cls)


# ------------------------------------------------------------------------------------------------ generic classes


def _members(hint: Any, cls: Any) -> dict[str, Any]:
    """Return the resolved hints of the members of a class, with the type variables replaced."""
    # Not strict: a generic class may be used without type arguments.
    bindings = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(hint), strict=False))
    bindings_by_class = dict(_class_bindings(cls, bindings))
    members = {}
    for name, member in typing.get_type_hints(cls, include_extras=True).items():
        owner = _declaring_class(cls, name, bindings_by_class)
        members[name] = _bind(member, bindings_by_class.get(owner, {}), owner)
    return members


def _class_bindings(cls: Any, bindings: Bindings) -> Iterable[tuple[Any, Bindings]]:
    """Yield a class and its bases, each with the bindings of its own type variables."""
    yield cls, bindings
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and origin not in (typing.Generic, object, dict):
            arguments = (_bind(argument, bindings, cls) for argument in typing.get_args(base))
            base_bindings = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
            yield from _class_bindings(origin, base_bindings)


def _declaring_class(cls: Any, name: str, classes: Iterable[Any]) -> Any:
    """Return the class that declares the member; ``classes`` are ``cls`` and then its bases."""
    if not issubclass(cls, dict):
        return next(base for base in cls.__mro__ if name in getattr(base, "__annotations__", ()))
    # A TypedDict has no bases in its MRO, but the same hint objects as its bases: the last one declares the member.
    member = cls.__annotations__[name]
    return [base for base in classes if getattr(base, "__annotations__", {}).get(name) is member][-1]


def _bind(hint: Any, bindings: Bindings, owner: Any) -> Any:
    """Return a hint of ``owner`` with its type variables replaced, except unbound parameters of ``owner``."""
    variables = (hint,) if isinstance(hint, typing.TypeVar) else getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not variables:
        return hint
    parameters = getattr(owner, "__parameters__", ())
    for variable in variables:
        if variable not in bindings and variable not in parameters:
            raise HintError(f"{owner!r}: {variable!r} is not bound to a type")
    if isinstance(hint, typing.TypeVar):
        return bindings.get(hint, hint)
    return hint[tuple(bindings.get(variable, variable) for variable in variables)]


_NUMBERS: Final = frozenset({"integer", "number"})
# By attribute: its JSON Schema keyword, and the function that returns the tightest of several bounds.
_BOUNDS: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "ge": ("minimum", max),
    "gt": ("exclusiveMinimum", max),
    "le": ("maximum", min),
    "lt": ("exclusiveMaximum", min),
}
# As _BOUNDS, with one keyword for each JSON Schema type.
_LENGTHS: Final[dict[str, tuple[dict[str, str], Callable[..., Any]]]] = {
    "min_length": ({"string": "minLength", "array": "minItems", "object": "minProperties"}, max),
    "max_length": ({"string": "maxLength", "array": "maxItems", "object": "maxProperties"}, min),
}
_TEXTS: Final = {"title": "title", "description": "description", "documentation": "description"}
_ATTRIBUTES: Final = frozenset({*_BOUNDS, *_LENGTHS, *_TEXTS, "multiple_of", "pattern", "examples"})
_KIND_OF_TYPE: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def constrained(inner: Shape, metadata: tuple[Any, ...]) -> Shape:
    """Return a shape with the keywords of the ``metadata`` of ``Annotated``. The tightest of several bounds counts."""
    keywords: dict[str, Any] = {}
    if isinstance(inner, Constrained):  # a NewType of a type that has limits already
        keywords.update(inner.keywords)
        inner = inner.inner
    inner_kinds = kinds(inner)
    for entry in metadata:
        attributes = {"description": entry} if isinstance(entry, str) else _attributes(entry)
        for attribute, value in attributes.items():
            _add_keyword(keywords, attribute, value, inner_kinds)
    return Constrained(inner, keywords) if keywords else inner


def kinds(inner: Shape) -> frozenset[str]:
    """Return the JSON Schema types of the values of a shape."""
    match inner:
        case Scalar("any"):
            return frozenset({*_KIND_OF_TYPE.values(), "array", "object"})
        case Scalar(kind):
            return frozenset({kind})
        case EnumOf(values, _):
            return frozenset(_KIND_OF_TYPE[type(value)] for value in values)
        case ArrayOf():
            return frozenset({"array"})
        case MapOf() | ObjectOf():
            return frozenset({"object"})
        case Union(options):
            return frozenset().union(*map(kinds, options))
        case Constrained(deeper, _):
            return kinds(deeper)


def _attributes(entry: object) -> dict[str, Any]:
    """Return the attributes of a constraint object; raises HintError for one without a keyword."""
    if isinstance(entry, Secret):
        raise HintError(f"{entry!r} marks a parameter of the function itself, not a part of its type")
    attributes = dict(_public_attributes(entry))
    if not attributes.keys() & _ATTRIBUTES:
        raise HintError(f"Annotated: {entry!r} has no attribute that JSON Schema has a keyword for")
    for name in attributes.keys() - _ATTRIBUTES:
        if attributes[name] is not None:
            raise HintError(f"Annotated: {name} of {entry!r} has no meaning here")
    return {name: value for name, value in attributes.items() if value is not None}


def _public_attributes(entry: object) -> Iterator[tuple[str, Any]]:
    if isinstance(entry, Limits):
        yield from entry._asdict().items()
        return
    for name in dir(entry):
        if not name.startswith("_") and not callable(getattr(type(entry), name, None)):  # data, not methods
            yield name, getattr(entry, name)


def _add_keyword(keywords: dict[str, Any], attribute: str, value: Any, shape_kinds: frozenset[str]) -> None:
    """Add the keyword of an attribute; raises HintError if it does not apply to a shape of these kinds."""
    if attribute in _TEXTS:
        if not isinstance(value, str):
            raise HintError(f"{attribute} is not a text: {value!r}")
        keywords[_TEXTS[attribute]] = str(value)
    elif attribute == "examples":
        keywords["examples"] = _examples(value)
    elif attribute in _LENGTHS:
        _add_length(keywords, attribute, value, shape_kinds)
    elif attribute == "pattern":
        _check_applies(attribute, shape_kinds & {"string"})
        _check_pattern(value)
        _add_once(keywords, "pattern", value)
    else:
        _check_applies(attribute, shape_kinds & _NUMBERS)
        # A float is finite if value - value is 0; JSON has no other numbers.
        if type(value) not in (int, float) or value - value != 0:
            raise HintError(f"{attribute} is not a JSON number: {value!r}")
        if attribute == "multiple_of":
            if value <= 0:
                raise HintError(f"multiple_of is not above 0: {value!r}")
            _add_once(keywords, "multipleOf", value)
        else:
            keyword, tightest = _BOUNDS[attribute]
            keywords[keyword] = tightest(keywords.get(keyword, value), value)


def _add_length(keywords: dict[str, Any], attribute: str, value: Any, shape_kinds: frozenset[str]) -> None:
    keyword_by_kind, tightest = _LENGTHS[attribute]
    applicable = [keyword for kind, keyword in keyword_by_kind.items() if kind in shape_kinds]
    _check_applies(attribute, applicable)
    if type(value) is not int or value < 0:
        raise HintError(f"{attribute} is not a length: {value!r}")
    for keyword in applicable:
        keywords[keyword] = tightest(keywords.get(keyword, value), value)


def _add_once(keywords: dict[str, Any], keyword: str, value: Any) -> None:
    """Add a keyword that cannot be tightened; a second one goes to ``allOf``."""
    if keywords.setdefault(keyword, value) != value:
        keywords["allOf"] = [*keywords.get("allOf", ()), {keyword: value}]


def _check_applies(attribute: str, applicable: Collection[str]) -> None:
    """Raise HintError if no kind or keyword is applicable."""
    if not applicable:
        raise HintError(f"{attribute} does not apply to this type")


def _check_pattern(pattern: Any) -> None:
    from manglecp.toolhost.patterns import matcher  # not at the top: few plugins have patterns

    if type(pattern) is not str:
        raise HintError(f"pattern is not a text: {pattern!r}")
    try:
        matcher(pattern)
    except ValueError as error:
        raise HintError(f"pattern {pattern!r}: {error}") from error


def _examples(examples: Any) -> list[Any]:
    """Return a copy of the examples, as JSON represents them."""
    import json

    try:
        copied: list[Any] = json.loads(json.dumps(list(examples), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise HintError(f"the examples are not JSON: {error}") from error
    return copied
