"""The JSON representation of values by declared bound.

JSON has fewer kinds than Mangle: a JSON string may be a string, a name, a time, and so on. If the bound allows only one
of these kinds, plain JSON means that kind. Otherwise plain JSON means the default kind (string, number, list, map), and
values of other kinds are wrapped with their kind. Reading and writing use the same shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from manglecp.base.text import quote
from manglecp.mangle import KIND_NAMES, Value, types, value_text


def _plain_kind(candidates: set[str], default: str) -> cached_property[str]:
    """Return a property: the only candidate that the bound allows, or the default if it does not allow exactly one."""

    def kind(shape: Shape) -> str:
        allowed = shape.kinds & candidates
        return next(iter(allowed)) if len(allowed) == 1 else default

    return cached_property(kind)


def _part(type_: type, name: str) -> cached_property[Shape]:
    """Return a property: the shape of the part ``name`` of compound values whose bound has the class ``type_``."""
    return cached_property(lambda shape: _join(getattr(m, name) for m in shape.members if isinstance(m, type_)))


class Shape:
    """The bound of one argument, or of a part of a compound argument. ``members`` are the alternatives of the bound."""

    def __init__(self, type_: types.Type) -> None:
        self.type = type_
        self.members = tuple(_alternatives(type_))

    def __str__(self) -> str:
        return " or ".join(map(str, self.members))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The names of the allowed kinds."""
        return types.kinds_of(self.type) or types.ALL_KINDS

    # The kinds that a plain JSON string, number, array and object mean.
    text = _plain_kind({"string", "name", "time", "duration", "bytes"}, "string")
    number = _plain_kind({"number", "float64", "time", "duration"}, "number")
    array = _plain_kind({"list", "pair"}, "list")
    object = _plain_kind({"map", "struct"}, "map")

    element = _part(types.ListType, "element")
    first = _part(types.PairType, "first")
    second = _part(types.PairType, "second")
    key = _part(types.MapType, "key")
    value = _part(types.MapType, "value")

    @cached_property
    def allows_fraction(self) -> bool:
        """Whether a JSON number with a fraction is allowed."""
        return "float64" in self.kinds or self.kinds.isdisjoint(("number", "time", "duration"))

    def field(self, label: Value) -> Shape:
        return self._fields.get(label, ANYTHING)

    @cached_property
    def _fields(self) -> dict[Value, Shape]:
        structs = [member for member in self.members if isinstance(member, types.StructType)]
        labels = {label for struct in structs for label, _ in (*struct.required, *struct.optional)}
        return {label: _join(type_ for s in structs if (type_ := s.field(label)) is not None) for label in labels}

    @cached_property
    def admits_whole_kinds(self) -> bool:
        """Whether every value of an allowed kind (string, number, …) conforms."""
        return all(
            isinstance(member, types.Base | types.TypeVariable) or member == types.NAME for member in self.members
        )

    def accepts(self, value: Value) -> bool:
        """Return whether the value conforms to the bound."""
        return type(value) in self.whole_kinds or types.conforms(self._vocabulary.value(value), self.type)

    @cached_property
    def whole_kinds(self) -> frozenset[type]:
        """The Python types whose values all conform."""
        if any(member == types.ANY or isinstance(member, types.TypeVariable) for member in self.members):
            return frozenset(KIND_NAMES)
        return frozenset(kind for kind, type_ in types.KIND_TYPES.items() if type_ in self.members)

    @cached_property
    def _vocabulary(self) -> types.Vocabulary:
        return types.Vocabulary([self.type])


def _alternatives(type_: types.Type) -> Iterator[types.Type]:
    """Yield the members of a union, and of nested unions; for any other type, yield the type itself."""
    if isinstance(type_, types.Union):
        for member in type_.members:
            yield from _alternatives(member)
    else:
        yield type_


def _join(bounds: Iterable[types.Type]) -> Shape:
    alternatives = list(bounds)
    if not alternatives or types.ANY in alternatives:
        return ANYTHING
    return Shape(alternatives[0] if len(alternatives) == 1 else types.union(alternatives))


ANYTHING: Final = Shape(types.ANY)


def describe(value: Value) -> str:
    """Return the kind and the canonical text of a value, for a message."""
    return f"the {KIND_NAMES[type(value)]} {quote(value_text(value))}"
