"""What it means for a value to belong to a type, independently of how the checker sees it."""

from __future__ import annotations

from typing import Final

from manglecp.mangle.types import (
    ANY,
    BYTES,
    DURATION,
    FLOAT,
    NUMBER,
    STRING,
    TIME,
    Base,
    ListType,
    MapType,
    NameType,
    PairType,
    Singleton,
    StructType,
    Type,
    TypeVariable,
    Union,
)
from manglecp.mangle.values import Bytes, Duration, Float, List, Map, Name, Pair, Struct, Time, Value

KINDS: Final[dict[Base, type]] = {
    NUMBER: int, FLOAT: Float, STRING: str, BYTES: Bytes, TIME: Time, DURATION: Duration,
}  # fmt: skip


def is_member(value: Value, type_: Type) -> bool:
    """Does the value belong to the type? As the documentation says; structs may have further fields."""
    match type_:
        case Base():
            return type_ == ANY or (type_ in KINDS and type(value) is KINDS[type_])
        case NameType(prefix):
            return isinstance(value, Name) and (prefix == "/name" or value.text.startswith(f"{prefix}/"))
        case Singleton(only):
            return type(value) is type(only) and value == only
        case Union(members):
            return any(is_member(value, one) for one in members)
        case PairType(first, second):
            return isinstance(value, Pair) and is_member(value.first, first) and is_member(value.second, second)
        case ListType(element):
            return isinstance(value, List) and all(is_member(item, element) for item in value.items)
        case MapType(key, val):
            return isinstance(value, Map) and all(is_member(k, key) and is_member(v, val) for k, v in value.entries)
        case StructType(required, optional):
            if not isinstance(value, Struct):
                return False
            fields = dict(value.entries)
            return all(label in fields and is_member(fields[label], t) for label, t in required) and all(
                label not in fields or is_member(fields[label], t) for label, t in optional
            )
        case TypeVariable():
            return True
    raise AssertionError(type_)
