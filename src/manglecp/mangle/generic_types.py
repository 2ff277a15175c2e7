"""Types with variables: a declaration or a built-in says ``fn:List(X)``, and an argument says what X is.

A binding is a dictionary from the names of type variables to types; it grows while arguments are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from manglecp.mangle.types import (
    ANY,
    BOT,
    EMPTY,
    ListType,
    MapType,
    OptionType,
    PairType,
    StructType,
    Type,
    TypeVariable,
    Union,
    conforms,
    meet,
    parts,
    union,
    upper,
    widen,
)

Types: TypeAlias = tuple[Type, ...]
Binding: TypeAlias = dict[str, Type]


def has_variables(types: Iterable[Type]) -> bool:
    """Does any of them depend on what an argument says?"""
    return any(isinstance(part, TypeVariable) for type_ in types for part in parts(type_))


def instantiate(type_: Type, binding: Binding) -> Type:
    """The type with its variables filled in; those without a value become any type."""
    if isinstance(type_, TypeVariable):
        return binding.get(type_.name, ANY)
    if isinstance(type_, ListType):
        return ListType(instantiate(type_.element, binding))
    if isinstance(type_, OptionType):
        return OptionType(instantiate(type_.some, binding))
    if isinstance(type_, PairType):
        return PairType(instantiate(type_.first, binding), instantiate(type_.second, binding))
    if isinstance(type_, MapType):
        return MapType(instantiate(type_.key, binding), instantiate(type_.value, binding))
    if isinstance(type_, Union):
        return union(instantiate(m, binding) for m in type_.members)
    if isinstance(type_, StructType):
        return StructType(
            tuple((label, instantiate(t, binding)) for label, t in type_.required),
            tuple((label, instantiate(t, binding)) for label, t in type_.optional),
        )
    return type_


def row_accepts(row: Types, types: Types) -> bool:
    """Do the types fit a declared row, with its type variables agreeing?"""
    binding: Binding = {}
    return all(_fits(wanted, type_, binding) for wanted, type_ in zip(row, types, strict=True))


def _fits(wanted: Type, type_: Type, binding: Binding) -> bool:
    if isinstance(wanted, TypeVariable):
        known = binding.get(wanted.name)
        wide = widen(type_)
        if known is None or conforms(known, wide):
            binding[wanted.name] = wide
            return True
        return conforms(wide, known)
    if has_variables((wanted,)):
        return _fits_inside(wanted, type_, binding)
    return conforms(type_, wanted)


def _fits_inside(wanted: Type, type_: Type, binding: Binding) -> bool:
    """A constructor that mentions type variables."""
    if isinstance(wanted, Union):
        return any(_fits(m, type_, binding) for m in wanted.members)
    if isinstance(wanted, OptionType):
        return _fits(wanted.some, type_.some if isinstance(type_, OptionType) else type_, binding)
    if isinstance(wanted, ListType) and isinstance(type_, ListType):
        return _fits(wanted.element, type_.element, binding)
    if isinstance(wanted, PairType) and isinstance(type_, PairType):
        return _fits(wanted.first, type_.first, binding) and _fits(wanted.second, type_.second, binding)
    if isinstance(wanted, MapType) and isinstance(type_, MapType):
        return _fits(wanted.key, type_.key, binding) and _fits(wanted.value, type_.value, binding)
    if isinstance(wanted, StructType) and isinstance(type_, StructType):
        required = dict(type_.required)
        return all(
            (own := required.get(label)) is not None and _fits(t, own, binding) for label, t in wanted.required
        ) and all((own := type_.field(label)) is None or _fits(t, own, binding) for label, t in wanted.optional)
    return False


def matched(wanted: Type, own: Type, binding: Binding) -> Type:
    """The meet, with the type variables of ``wanted`` bound on the way."""
    if isinstance(wanted, TypeVariable):
        both = meet(binding.get(wanted.name, ANY), own)
        if both != EMPTY:
            binding[wanted.name] = both
        return both
    if not has_variables((wanted,)):
        return meet(own, wanted)
    if isinstance(own, Union):
        return union(matched(wanted, m, binding) for m in own.members)
    if own == ANY or isinstance(own, TypeVariable):
        return instantiate(wanted, binding)
    if isinstance(wanted, ListType) and isinstance(own, ListType):
        inner = own.element if own.element == BOT else matched(wanted.element, own.element, binding)
        return EMPTY if inner == EMPTY else ListType(inner)
    if isinstance(wanted, PairType) and isinstance(own, PairType):
        first = matched(wanted.first, own.first, binding)
        second = matched(wanted.second, own.second, binding)
        return EMPTY if EMPTY in (first, second) else PairType(first, second)
    return meet(own, instantiate(wanted, {}))


def shapes_agree(param: Type, arg: Type, binding: Binding) -> bool:
    """Does an argument have the constructor a function wants? Kinds of constants are left to the run time."""
    if isinstance(param, TypeVariable):
        known = binding.get(param.name)
        binding[param.name] = arg if known is None else upper((known, arg))
        return True
    if isinstance(arg, Union) and isinstance(param, ListType | PairType | MapType):
        return bool(arg.members) and all(shapes_agree(param, one, binding) for one in arg.members)
    if isinstance(param, ListType):
        return isinstance(arg, ListType) and shapes_agree(param.element, arg.element, binding)
    if isinstance(param, PairType):
        if not isinstance(arg, PairType):
            return False
        return shapes_agree(param.first, arg.first, binding) and shapes_agree(param.second, arg.second, binding)
    if isinstance(param, MapType):
        if not isinstance(arg, MapType):
            return False
        return shapes_agree(param.key, arg.key, binding) and shapes_agree(param.value, arg.value, binding)
    return True
