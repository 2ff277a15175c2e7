"""The constants of Mangle as Python objects.

*Hash-consing.* Numbers and strings are ``int`` and ``str``. Values of other kinds are interned, so equality is identity
and hashing runs at C speed. Interning separates ``1``, ``1.0``, ``"1"`` and ``/1``, and ``0.0`` and ``-0.0``.

*Flat order.* :func:`order_key` maps a value to a flat tuple whose comparison is the value order of the language.
No function recurses, so values may be nested deeply. Shared parts can make the text of a value exponentially long;
therefore :data:`MAX_SIZE` bounds the number of parts, in which a shared part counts for each occurrence.

The extreme instants ``NEG_INF`` and ``POS_INF`` stand for infinity and print as ``_`` in annotations.
"""

from __future__ import annotations

import itertools
import math
import struct
import threading
import weakref
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Self, TypeAlias

from manglecp.mangle.errors import ValueFault

MAX_SIZE: Final = 1_000_000  # parts of one value, see part_size
INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1

_LOCK = threading.RLock()  # reentrant: the garbage collector may call _forget while _intern holds it


class TooLarge(ValueFault):
    """A value would have more than :data:`MAX_SIZE` parts."""


class _Reference(weakref.ref["InternedValue"]):
    """A weak reference to a value, with the table and the key of its entry."""

    __slots__ = ("key", "table")
    key: Any
    table: dict[Any, _Reference]


def _forget(reference: Any, lock: Any = _LOCK) -> None:
    """Drop the entry of a dead value, unless an equal value was created in the meantime.

    The function uses no module globals, because these may not exist any more at interpreter exit.
    """
    with lock:
        if reference.table.get(reference.key) is reference:
            del reference.table[reference.key]


class InternedValue:
    """A value of which only one object exists; each subclass defines the key that identifies the value."""

    __slots__ = ("__weakref__",)
    _table: ClassVar[dict[Any, _Reference]]  # references to the objects of this class, by key
    _setters: ClassVar[tuple[Any, ...]]  # one per slot, to bypass __setattr__, which raises

    def __init_subclass__(cls) -> None:
        cls._table = {}
        cls._setters = tuple(cls.__dict__[slot].__set__ for slot in cls.__slots__)

    @classmethod
    def _intern(cls, key: Any, *fields: Any) -> Self:
        reference = cls._table.get(key)
        value = None if reference is None else reference()
        if value is None:
            with _LOCK:  # two threads must not both make the value
                reference = cls._table.get(key)
                value = None if reference is None else reference()
                if value is None:
                    value = object.__new__(cls)
                    for setter, field in zip(cls._setters, fields, strict=True):
                        setter(value, field)
                    reference = _Reference(value, _forget)
                    reference.key, reference.table = key, cls._table
                    cls._table[key] = reference
        return value  # type: ignore[return-value]  # the table holds only this class

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, slot) for slot in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(repr(getattr(self, slot)) for slot in self.__slots__)
        return f"{type(self).__name__}({fields})"


class Name(InternedValue):
    """A name such as ``/animal/cat``; ``/true`` and ``/false`` are the booleans."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Name:
        return cls._intern(text, text)


class Float(InternedValue):
    """An IEEE double, identified by its bits: ``0.0`` is not ``-0.0``, and there is one NaN, equal to itself."""

    __slots__ = ("value",)
    value: float

    def __new__(cls, value: float) -> Float:
        value = math.nan if math.isnan(value) else float(value)
        return cls._intern(struct.pack("<d", value), value)


class Bytes(InternedValue):
    """A byte string, never equal to a text string."""

    __slots__ = ("data",)
    data: bytes

    def __new__(cls, data: bytes) -> Bytes:
        return cls._intern(data, data)


class Time(InternedValue):
    """An instant: nanoseconds since 1970-01-01T00:00:00Z, as int64."""

    __slots__ = ("ns",)
    ns: int

    def __new__(cls, ns: int) -> Time:
        return cls._intern(ns, ns)


class Duration(InternedValue):
    """A signed span of nanoseconds, as int64."""

    __slots__ = ("ns",)
    ns: int

    def __new__(cls, ns: int) -> Duration:
        return cls._intern(ns, ns)


class Composite(InternedValue):
    """A value made of values. ``size`` is the number of parts; a part that occurs twice counts twice."""

    __slots__ = ("size",)
    size: int

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._setters += (Composite.__dict__["size"].__set__,)

    @classmethod
    def _compose(cls, key: Any, parts: Iterable[Value], *fields: Any) -> Self:
        size = 1
        for part in parts:
            size += 1 if type(part) is int else part_size(part)
        if size > MAX_SIZE:
            raise TooLarge(f"a {KIND_NAMES[cls]} of {size} parts is larger than the limit of {MAX_SIZE}")
        return cls._intern(key, *fields, size)


def part_size(value: Value) -> int:
    """Return the number of parts of a value; 16 characters of a string count as one part."""
    if isinstance(value, Composite):
        return value.size
    return 1 + (len(value) >> 4) if isinstance(value, str) else 1


class Pair(Composite):
    """Two values; a longer tuple is a pair whose second part is a pair."""

    __slots__ = ("first", "second")
    first: Value
    second: Value

    def __new__(cls, first: Value, second: Value) -> Pair:
        key = (first, second)
        return cls._compose(key, key, first, second)


class List(Composite):
    """A list of values."""

    __slots__ = ("items",)
    items: tuple[Value, ...]

    def __new__(cls, items: tuple[Value, ...] = ()) -> List:
        items = tuple(items)
        return cls._compose(items, items, items)


class _Entries(Composite):
    """Entries in the order of keys. The constructor raises :class:`RepeatedKey` for a repeated key."""

    __slots__ = ()
    entries: tuple[tuple[Value, Value], ...]

    def __new__(cls, entries: tuple[tuple[Value, Value], ...] = ()) -> Self:
        ordered = tuple(sorted(((k, v) for k, v in entries), key=lambda entry: order_key(entry[0])))
        for (key, _), (next_key, _) in itertools.pairwise(ordered):
            if key == next_key:
                raise RepeatedKey(key)
        return cls._compose(ordered, itertools.chain.from_iterable(ordered), ordered)

    def get(self, key: Value) -> Value | None:
        """Return the value of a key; None if it is absent."""
        for entry_key, value in self.entries:
            if entry_key == key:
                return value
        return None


class Map(_Entries):
    """Entries with any values as keys."""

    __slots__ = ("entries",)


class Struct(_Entries):
    """Entries with field names as keys."""

    __slots__ = ("entries",)


Value: TypeAlias = int | str | Name | Float | Bytes | Time | Duration | Pair | List | Map | Struct

NEG_INF: Final = Time(INT_MIN)
POS_INF: Final = Time(INT_MAX)
TRUE: Final = Name("/true")
FALSE: Final = Name("/false")
NULL: Final = Name("/null")


class RepeatedKey(ValueError):
    """A key occurs twice in a map or struct."""

    def __init__(self, key: Value) -> None:
        super().__init__(key)
        self.key = key


KIND_NAMES: Final[dict[type, str]] = {
    Name: "name",
    str: "string",
    Bytes: "bytes",
    int: "number",
    Float: "float64",
    Time: "time",
    Duration: "duration",
    Pair: "pair",
    List: "list",
    Map: "map",
    Struct: "struct",
}
"""The names of the kinds, in the order in which values of different kinds compare."""
# The tags of `order_key`. 0 closes a sequence, so that a list sorts before the lists that continue it.
_TAGS: Final = {kind: tag for tag, kind in enumerate(KIND_NAMES, 1)}
_CLOSE: Final = object()


def order_key(value: Value) -> tuple[Any, ...]:
    """Return a flat tuple; comparing two such tuples compares their values in the order of the language."""
    flat: list[Any] = []
    stack: list[Any] = [value]
    while stack:
        v = stack.pop()  # a value or _CLOSE
        if v is _CLOSE:
            flat.append(0)
            continue
        kind = type(v)
        flat.append(_TAGS[kind])
        if kind is int or kind is str:
            flat.append(v)
        elif kind is Name:
            flat.append(v.text)
        elif kind is Time or kind is Duration:
            flat.append(v.ns)
        elif kind is Float:
            flat.append(_float_order(v.value))
        elif kind is Bytes:
            flat.append(v.data)
        elif kind is Pair:
            stack.append(v.second)
            stack.append(v.first)
        elif kind is List:
            stack.append(_CLOSE)
            stack.extend(reversed(v.items))
        else:
            stack.append(_CLOSE)
            for key, entry_value in reversed(v.entries):
                stack.append(entry_value)
                stack.append(key)
    return tuple(flat)


def _float_order(value: float) -> int:
    """Map a double to an integer in IEEE total order."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else bits ^ INT_MAX


def tuple_of(values: tuple[Value, ...]) -> Value:
    """Return the value of ``fn:tuple``: nested pairs, or the only value itself."""
    result = values[-1]
    for value in reversed(values[:-1]):
        result = Pair(value, result)
    return result


def wrap_int64(number: int) -> int:
    """Reduce a number to 64 bits, as two's complement."""
    if INT_MIN <= number <= INT_MAX:
        return number
    return (number - INT_MIN) % (1 << 64) + INT_MIN
