"""Null counts as absent wherever a member may be left out, and as missing where it may not (OPEN-19).

That is one rule for every message in both directions. Where null says something of its own, as the id of a manifest
does, the struct says so and null is kept. Only what the struct library refused is looked at: nulls are rare, and a
message without them pays nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

__all__ = ["converted", "entry_of", "fields_of", "item_of", "struct_of", "without_nulls"]

S = TypeVar("S", bound=msgspec.Struct)


def converted(data: Any, struct: type[S]) -> S:
    """The struct that JSON says, or the struct library's ``ValidationError``."""
    try:
        return msgspec.convert(data, struct)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(data, struct), struct)


def without_nulls(data: Any, type_: Any) -> Any:
    """The same JSON without the members that are null and may not be."""
    if isinstance(data, dict) and (struct := struct_of(type_)) is not None:
        members = _members(struct)
        kept = {}
        for name, value in data.items():
            member = members.get(name)
            if value is not None:
                kept[name] = value if member is None else without_nulls(value, member.type)
            elif member is None or member.nullable:
                kept[name] = None
        return kept
    if isinstance(data, list) and (item := item_of(type_)) is not None:
        return [without_nulls(part, item) for part in data]
    return data


class _Member(NamedTuple):
    type: Any
    nullable: bool


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The members of a struct; the library reads the annotations anew each time."""
    return msgspec.structs.fields(struct)


@cache
def _members(struct: type[msgspec.Struct]) -> dict[str, _Member]:
    fields = fields_of(struct)
    return {f.encode_name: _Member(f.type, f.type is None or type(None) in (f.type, *get_args(f.type))) for f in fields}


@cache
def struct_of(type_: Any) -> type[msgspec.Struct] | None:
    """The struct that an object has to be here, if it is one."""
    structs = [one for one in (type_, *get_args(type_)) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return structs[0] if len(structs) == 1 and get_origin(type_) is not tuple else None


@cache
def item_of(type_: Any) -> Any:
    """What every item of an array has to be here."""
    for one in (type_, *get_args(type_)):
        args = get_args(one)
        if get_origin(one) is tuple and len(args) == 2 and args[1] is ...:
            return args[0]
    return None


@cache
def entry_of(type_: Any) -> tuple[Any, Any] | None:
    """What every key and every value of an object has to be here, if it is no struct."""
    for one in (type_, *get_args(type_)):
        if get_origin(one) is dict:
            key, value = get_args(one)
            return key, value
    return None
