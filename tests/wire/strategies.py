"""Any value and any bound, independently of each other."""

import math
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from manglecp.mangle import INT_MAX, INT_MIN, Bytes, Duration, Float, List, Map, Name, Pair, Struct, Time, Value
from manglecp.mangle.types import (
    ANY,
    BASES,
    NAME,
    ListType,
    MapType,
    NameType,
    PairType,
    Singleton,
    StructType,
    Type,
    Union,
)
from manglecp.wire.values import SAFE_INTEGER
from tests.mangle.strategies import names, strings

__all__ = ["atoms", "types", "values"]

_int64 = st.integers(INT_MIN, INT_MAX)
_edges = st.sampled_from([0, SAFE_INTEGER, SAFE_INTEGER + 1, -SAFE_INTEGER, -SAFE_INTEGER - 1, INT_MIN, INT_MAX])
_booleans = st.sampled_from([Name("/true"), Name("/false"), Name("/null")])
_keys = st.sampled_from(["_type", "_var", "value", "", "/a"])
_special = st.sampled_from([-0.0, 1e22, math.nan, math.inf, -math.inf])
_floats = st.one_of(st.floats(), st.integers(-9, 9).map(float), _special)

atoms: st.SearchStrategy[Value] = st.one_of(
    names,
    _booleans,
    strings,
    _keys,
    _edges,
    _int64,
    _floats.map(Float),
    _int64.map(Time),
    _int64.map(Duration),
    st.binary(max_size=5).map(Bytes),
)


def _entries(values: Sequence[Value]) -> tuple[tuple[Value, Value], ...]:
    """Keys and values in turn; the first of two equal keys counts."""
    found: dict[tuple[type, Value], Value] = {}
    for key, value in zip(values[::2], values[1::2], strict=False):
        found.setdefault((type(key), key), value)
    return tuple((key, value) for (_, key), value in found.items())


def _pair(values: Sequence[Value]) -> Value:
    return Pair(values[0], values[-1]) if values else Pair(1, 2)


def _list(values: Sequence[Value]) -> Value:
    return List(tuple(values))


def _plain_map(values: Sequence[Value]) -> Value:
    return Map(tuple(zip(("_type", "value", "/a", ""), values, strict=False)))


def _map(values: Sequence[Value]) -> Value:
    return Map(_entries(values))


def _plain_struct(values: Sequence[Value]) -> Value:
    return Struct(tuple(zip(_LABELS, values, strict=False)))


def _struct(values: Sequence[Value]) -> Value:
    return Struct(_entries(values))


_LABELS = (Name("/a"), Name("/b"), Name("/_type"), Name("/x/y"))
_composites = st.sampled_from([_pair, _list, _plain_map, _map, _plain_struct, _struct])


def _composite(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    # `inner` stands here once: the description of a strategy doubles with each time it is mentioned.
    return st.tuples(_composites, st.lists(inner, max_size=4)).map(lambda drawn: drawn[0](drawn[1]))


values: st.SearchStrategy[Value] = st.recursive(atoms, _composite, max_leaves=8)

_constructors: st.SearchStrategy[Callable[[Sequence[Type]], Type]] = st.sampled_from(
    [
        lambda inner: ListType(inner[0]),
        lambda inner: PairType(inner[0], inner[-1]),
        lambda inner: MapType(inner[0], inner[-1]),
        lambda inner: StructType(tuple(zip(_LABELS, inner, strict=False))),
        lambda inner: Union(tuple(inner)),
    ]
)


def _constructed(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.tuples(_constructors, st.lists(inner, min_size=1, max_size=3)).map(lambda drawn: drawn[0](drawn[1]))


types: st.SearchStrategy[Type] = st.recursive(
    st.one_of(
        st.sampled_from([*BASES.values(), NAME, ANY, NameType("/a")]),
        atoms.map(Singleton),
    ),
    _constructed,
    max_leaves=6,
)
