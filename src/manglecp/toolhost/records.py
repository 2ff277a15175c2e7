"""Classes as shapes: TypedDict, dataclass and msgspec Struct as records, enums as choices.

Names that are strings are resolved first, so that ``from __future__ import annotations`` changes nothing. A generic
class is read with what its variables stand for, its own and those of its bases. A choice is between the simple values
of JSON: Python and JSON compare those alike, apart from ``True`` and ``1``.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypeAlias

from manglecp.toolhost.shapes import Choice, Field, HintError, Record, Shape

__all__ = ["choice", "of_class"]

Read: TypeAlias = Callable[[Any], Shape]
"""How the hints of members are read."""
Bindings: TypeAlias = dict[Any, Any]
"""What type variables stand for."""
_SIMPLE: Final = (str, int, bool, type(None))


def choice(options: Iterable[Any], hint: object) -> Choice:
    """One of these values; members of enums stand for their values."""
    results = tuple(options)
    values = tuple(option.value if isinstance(option, Enum) else option for option in results)
    if not values:
        raise HintError(f"{hint!r} offers nothing to choose")
    for value in values:
        # A float is finite if it differs from itself by nothing.
        if type(value) not in _SIMPLE and not (type(value) is float and value - value == 0):
            raise HintError(f"{hint!r}: {value!r} is no simple value of JSON")
    return Choice(values, results)


def of_class(hint: Any, read: Read) -> Shape:
    """The shape of a class, or of a generic class with arguments."""
    cls = typing.get_origin(hint) or hint
    if issubclass(cls, Enum):
        return choice(cls, hint)
    if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):  # typing_extensions has its own TypedDict
        return _typed_dict(hint, cls, read)
    if hasattr(cls, "__dataclass_fields__"):
        return _dataclass(hint, cls, read)
    if hasattr(cls, "__struct_fields__"):
        return _struct(hint, cls, read)
    raise HintError(f"{hint!r} has no meaning in JSON")


def _typed_dict(hint: Any, cls: Any, read: Read) -> Record:
    return Record(
        tuple(Field(name, read(said), _required(cls, name, said), name) for name, said in _members(hint, cls).items()),
        dict,
    )


def _required(cls: Any, name: str, said: Any) -> bool:
    """What the hint says; if it says nothing, what the class says that has the member."""
    while (origin := typing.get_origin(said)) is not None:
        if origin in (typing.Required, typing.NotRequired):
            return origin is typing.Required
        if origin is not typing.Annotated and getattr(origin, "_name", None) != "ReadOnly":
            break
        said = typing.get_args(said)[0]
    return name in cls.__required_keys__


def _dataclass(hint: Any, cls: Any, read: Read) -> Record:
    from dataclasses import MISSING, InitVar, fields  # whoever has a dataclass has paid for this

    if not cls.__dataclass_params__.init:
        raise HintError(f"{hint!r}: its constructor does not take its fields")
    members = _members(hint, cls)
    taken = {field.name for field in fields(cls) if field.init}
    shapes = []
    for name, field in cls.__dataclass_fields__.items():
        said = members[name]
        if isinstance(said, InitVar):  # the constructor takes it and does not keep it
            said = said.type
        elif name not in taken:
            continue
        required = field.default is MISSING and field.default_factory is MISSING
        shapes.append(Field(name, read(said), required, name))
    return Record(tuple(shapes), cls)


def _struct(hint: Any, cls: Any, read: Read) -> Record:
    """A msgspec Struct, with the names that it has on the wire; a tag is a member that has one value."""
    structs = sys.modules["msgspec"].structs  # whoever has a Struct has imported this
    config = cls.__struct_config__
    if config.array_like:
        raise HintError(f"{hint!r}: a Struct that is an array has no names for its members")
    fields = [Field(f.encode_name, read(f.type), f.required, f.name) for f in structs.fields(hint)]
    if config.tag is not None:
        fields.insert(0, Field(config.tag_field, choice((config.tag,), hint), True, None))
    return Record(tuple(fields), cls)


# ------------------------------------------------------------------------------------------------ generic classes


def _members(hint: Any, cls: Any) -> dict[str, Any]:
    """The resolved hints of a class, with what its type variables stand for."""
    bound = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(hint), strict=False))
    bindings = dict(_bindings(cls, bound))
    members = {}
    for name, said in typing.get_type_hints(cls, include_extras=True).items():
        owner = _declaring(cls, name, bindings)
        members[name] = _bind(said, bindings.get(owner, {}), owner)
    return members


def _bindings(cls: Any, bound: Bindings) -> Iterable[tuple[Any, Bindings]]:
    """A class and its bases, each with what its own type variables stand for."""
    yield cls, bound
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and origin not in (typing.Generic, object, dict):
            inner = (_bind(argument, bound, cls) for argument in typing.get_args(base))
            yield from _bindings(origin, dict(zip(getattr(origin, "__parameters__", ()), inner, strict=False)))


def _declaring(cls: Any, name: str, classes: Iterable[Any]) -> Any:
    """The class that a member's hint stands in."""
    if not issubclass(cls, dict):
        return next(base for base in cls.__mro__ if name in getattr(base, "__annotations__", ()))
    # A TypedDict does not inherit: it has the hints of its bases as its own, the same objects.
    here = cls.__annotations__[name]
    return [base for base in classes if getattr(base, "__annotations__", {}).get(name) is here][-1]


def _bind(said: Any, bound: Bindings, owner: Any) -> Any:
    """A hint with its type variables replaced. Variables that the owner leaves open stay what they are."""
    variables = (said,) if isinstance(said, typing.TypeVar) else getattr(said, "__parameters__", ())
    if isinstance(said, type) or not variables:
        return said
    opened = getattr(owner, "__parameters__", ())
    for variable in variables:
        if variable not in bound and variable not in opened:
            raise HintError(f"{owner!r}: what {variable!r} stands for is not known")
    if isinstance(said, typing.TypeVar):
        return bound.get(said, said)
    return said[tuple(bound.get(variable, variable) for variable in variables)]
