"""Values: each exists once, kinds never mix, one total order, nothing recurses, nothing is kept."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import pickle
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.mangle.errors import ValueFault
from manglecp.mangle.printer import value_text
from manglecp.mangle.values import (
    FALSE,
    INT_MAX,
    INT_MIN,
    KIND_NAMES,
    MAX_SIZE,
    NEG_INF,
    POS_INF,
    TRUE,
    Bytes,
    Duration,
    Float,
    List,
    Map,
    Name,
    Pair,
    RepeatedKey,
    Struct,
    Time,
    TooLarge,
    Value,
    order_key,
    tuple_of,
    wrap_int64,
)
from tests.effort import examples
from tests.mangle.builtins.strategies import VALUES

NAN = Float(math.nan)
IN_ORDER: list[Value] = [
    *(Name("/a"), Name("/a-b"), Name("/a/b"), Name("/ab"), Name("/b")),
    *("", "\0", "1", "a", "ab", "b", "é", "\uffff", "\U0001f600"),
    *(Bytes(b""), Bytes(b"\0"), Bytes(b"a"), Bytes(b"ab"), Bytes(b"\xff")),
    *(INT_MIN, -1, 0, 1, INT_MAX),
    *(Float(-math.inf), Float(-1.5), Float(-5e-324), Float(-0.0), Float(0.0), Float(5e-324), Float(1.0)),
    *(Float(1e308), Float(math.inf), NAN),
    *(NEG_INF, Time(-1), Time(0), Time(1), POS_INF),
    *(Duration(INT_MIN), Duration(-1), Duration(0), Duration(1)),
    *(Pair(Name("/a"), 1), Pair(0, 1), Pair(1, 0), Pair(1, 1), Pair(1, Pair(0, 0)), Pair(List(), 0)),
    *(List(), List((Name("/a"),)), List((0,)), List((0, 0)), List((0, List())), List((1,)), List((List(),))),
    *(Map(), Map(((0, 0),)), Map(((0, 0), (1, 0))), Map(((0, 1),)), Map(((1, 0),)), Map(((Map(), 0),))),
    *(Struct(), Struct(((Name("/a"), 0),)), Struct(((Name("/a"), 1),)), Struct(((Name("/b"), 0),))),
]
"""At least one of every kind, each less than the next."""


def compare(left: Value, right: Value) -> int:
    """The order of the language, as it is described: by kind, then by value, element by element, a prefix first."""
    kinds = [Name, str, Bytes, int, Float, Time, Duration, Pair, List, Map, Struct]
    by_kind = kinds.index(type(left)) - kinds.index(type(right))
    if by_kind:
        return by_kind
    if isinstance(left, Pair | List | Map | Struct):
        for a, b in zip(parts(left), parts(right), strict=False):
            if found := compare(a, b):
                return found
        return len(parts(left)) - len(parts(right))
    a, b = plain(left), plain(right)
    return int(a > b) - int(a < b)


def parts(value: Value) -> list[Value]:
    if isinstance(value, Pair):
        return [value.first, value.second]
    if isinstance(value, List):
        return list(value.items)
    assert isinstance(value, Map | Struct)
    return [part for entry in value.entries for part in entry]


def plain(value: Value) -> Any:
    if isinstance(value, Float):
        number = value.value
        return (1, 0.0, 0.0) if math.isnan(number) else (0, number, math.copysign(1.0, number))
    return getattr(value, "text", getattr(value, "ns", getattr(value, "data", value)))


def sign(left: Value, right: Value) -> int:
    a, b = order_key(left), order_key(right)
    return int(a > b) - int(a < b)


def rebuilt(value: Value) -> Value:
    """The same value, made again from the bottom."""
    if isinstance(value, int | str):
        return value
    if isinstance(value, Pair):
        return Pair(rebuilt(value.first), rebuilt(value.second))
    if isinstance(value, List):
        return List(tuple(map(rebuilt, value.items)))
    if isinstance(value, Map | Struct):
        entries = tuple((rebuilt(key), rebuilt(entry)) for key, entry in reversed(value.entries))
        return type(value)(entries)
    if isinstance(value, Name):
        return Name("".join(list(value.text)))
    if isinstance(value, Float):
        return Float(value.value)
    if isinstance(value, Bytes):
        return Bytes(bytes(bytearray(value.data)))
    return type(value)(int(str(value.ns)))


# Few atoms, so that equal and nearly equal values are common.
_FEW: st.SearchStrategy[Value] = st.sampled_from([v for v in IN_ORDER if not isinstance(v, Pair | List | Map | Struct)])


def _nested(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    entries = st.dictionaries(inner, inner, max_size=2).map(lambda found: tuple(found.items()))
    lists = st.lists(inner, max_size=3).map(lambda found: List(tuple(found)))
    return st.one_of(st.builds(Pair, inner, inner), lists, st.builds(Map, entries), st.builds(Struct, entries))


values = st.one_of(st.recursive(_FEW, _nested, max_leaves=5), VALUES)

# --- order ---------------------------------------------------------------------------------------------------------


def test_every_kind_is_in_its_place() -> None:
    assert {type(value) for value in IN_ORDER} == set(KIND_NAMES)
    for (i, left), (j, right) in itertools.product(enumerate(IN_ORDER), repeat=2):
        assert sign(left, right) == (i > j) - (i < j), (left, right)


@examples(400)
@given(values, values)
def test_the_order_is_the_one_described(left: Value, right: Value) -> None:
    found = compare(left, right)
    assert sign(left, right) == (found > 0) - (found < 0)
    assert sign(right, left) == (found < 0) - (found > 0)
    assert (order_key(left) == order_key(right)) == (left == right)
    assert (found == 0) == (left == right)


@examples(200)
@given(values, values, values)
def test_the_order_is_transitive(a: Value, b: Value, c: Value) -> None:
    low, middle, high = sorted((a, b, c), key=order_key)
    assert sign(low, middle) <= 0
    assert sign(middle, high) <= 0
    assert sign(low, high) <= 0
    if sign(low, high) == 0:
        assert low is middle is high or low == middle == high


@settings(deadline=None)
@given(st.lists(values, max_size=8), st.randoms(use_true_random=False))
def test_sorting_forgets_the_order(found: list[Value], random: Random) -> None:
    shuffled = found.copy()
    random.shuffle(shuffled)
    assert sorted(found, key=order_key) == sorted(shuffled, key=order_key)


# --- one object for one value --------------------------------------------------------------------------------------


def _same(left: Value, right: Value) -> bool:
    """Identical, where the kind is interned."""
    return left is right if not isinstance(left, int | str) else type(left) is type(right) and left == right


@examples(200)
@given(values)
def test_a_value_exists_once(value: Value) -> None:
    assert _same(value, rebuilt(value))
    assert _same(value, copy.copy(value))
    assert _same(value, copy.deepcopy(value))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert _same(value, pickle.loads(pickle.dumps(value, protocol)))


def test_a_value_from_another_process_is_the_same() -> None:
    everything = List(tuple(IN_ORDER))
    command = "import pickle, sys; v = pickle.load(sys.stdin.buffer); pickle.dump(v, sys.stdout.buffer)"
    done = subprocess.run([sys.executable, "-c", command], input=pickle.dumps(everything), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert pickle.loads(done.stdout) is everything


@examples(400)
@given(values, values)
def test_equality_is_identity(left: Value, right: Value) -> None:
    if isinstance(left, int | str) or isinstance(right, int | str):
        assert (left == right) == (type(left) is type(right) and left == right)
    else:
        assert (left == right) == (left is right)
    assert left != right or hash(left) == hash(right)


def test_entries_have_no_order_of_their_own() -> None:
    entries = tuple((i, str(i)) for i in range(5))
    for kind in (Map, Struct):
        for some in itertools.permutations(entries):
            assert kind(some) is kind(entries)
        assert kind(entries[::-1]).entries == entries


def test_kinds_never_equal_each_other() -> None:
    alike: list[Value] = [1, "1", Name("1"), Float(1.0), Bytes(b"1"), Time(1), Duration(1)]
    alike += [Pair(1, 1), List((1,)), List((1, 1)), List((Pair(1, 1),)), Map(((1, 1),)), Struct(((1, 1),))]
    alike += ["", Name(""), Bytes(b""), List(), Map(), Struct(), 0, Float(0.0), Float(-0.0), Time(0), Duration(0)]
    for (i, left), (j, right) in itertools.product(enumerate(alike), repeat=2):
        assert (left == right) == (i == j), (left, right)
        assert ({left: 1} == {right: 1}) == (i == j)


def test_floats_are_their_bits() -> None:
    assert Float(0.0) is not Float(-0.0)
    assert Float(math.nan) is Float(-math.nan) is Float(math.inf - math.inf)
    assert math.isnan(NAN.value)
    assert Float(1) is Float(1.0)
    assert type(Float(1).value) is float
    assert Float(0.1 + 0.2) is not Float(0.3)


@pytest.mark.parametrize("value", [v for v in IN_ORDER if not isinstance(v, int | str)], ids=repr)
def test_values_are_immutable(value: Any) -> None:
    slots = type(value).__slots__
    before = value_text(value)
    for name in (*slots, "text", "anything", "__class__"):
        with pytest.raises(AttributeError):
            setattr(value, name, 1)
    for name in slots:
        with pytest.raises(AttributeError):
            delattr(value, name)
    assert value_text(value) == before
    assert not hasattr(value, "__dict__")


def test_threads_agree() -> None:
    """Values are made and forgotten in eight threads at once; at the end all hold the same objects."""
    count = 8
    kept: list[dict[int, Value]] = [{} for _ in range(count)]
    start = threading.Barrier(count)

    def build(number: int) -> Value:
        inner = List((Float(float(number)), Name(f"/thread/{number}")))
        return Map(((inner, Pair(inner, Bytes(str(number).encode()))), (Time(number), Struct())))

    def work(which: int) -> None:
        random = Random(which)
        start.wait()
        for _ in range(3_000):
            number = random.randrange(200)
            kept[which][number] = build(number)
            kept[which].pop(random.randrange(200), None)
        for number in range(200):
            kept[which][number] = build(number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(which,)) for which in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    for number in range(200):
        assert len({id(mine[number]) for mine in kept}) == 1


# --- nothing is kept -----------------------------------------------------------------------------------------------


def test_an_unused_value_is_forgotten() -> None:
    kept = Name("/kept")
    name, data, time = Name("/tests/gone"), Bytes(b"tests gone"), Time(987654321)
    made = [kept, name, data, time, Float(123456.789), Duration(987654321)]
    made += [Pair(name, data), List((data,)), Map(((name, time),)), Struct(((name, time),))]
    watched = [weakref.ref(value) for value in made if value is not kept]
    del made, name, data, time
    gc.collect()
    assert [reference() for reference in watched] == [None] * len(watched)
    assert Name("/kept") is kept


@pytest.mark.parametrize(
    "make",
    [
        lambda i: Name(f"/n/{i}"),
        lambda i: Float(i + 0.5),
        lambda i: Bytes(b"%d" % i),
        Time,
        Duration,
        lambda i: Pair(i, Time(i)),
        lambda i: List((i, "x")),
        lambda i: Map(((i, List((i,))),)),
        lambda i: Struct(((Name("/i"), i),)),
    ],
    ids=["name", "float64", "bytes", "time", "duration", "pair", "list", "map", "struct"],
)
def test_memory_does_not_grow(make: Callable[[int], Value]) -> None:
    """What is made and dropped leaves no trace, not even the entry that remembered it."""
    for i in range(100):
        make(10**9 + i)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for i in range(3_000):
            make(2 * 10**9 + i)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 60_000  # one reference for each would be at least ten times as much


# --- depth ---------------------------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("depth", "wrap", "opening", "closing"),
    [
        (30_000, lambda inner: Pair(1, inner), "fn:pair(1, ", ")"),
        (10_000, lambda inner: Pair(inner, 1), "fn:pair(", ", 1)"),
        (30_000, lambda inner: List((inner,)), "[", "]"),
        (10_000, lambda inner: Map(((1, inner),)), "[1 : ", "]"),
        (10_000, lambda inner: Struct(((Name("/a"), inner),)), "{/a : ", "}"),
    ],
    ids=["second", "first", "list", "map", "struct"],
)
def test_nesting_is_limited_by_memory_only(
    depth: int, wrap: Callable[[Value], Value], opening: str, closing: str
) -> None:
    low: Value = 0
    high: Value = 1
    for _ in range(depth):
        low, high = wrap(low), wrap(high)
    assert sign(low, high) == -1
    assert value_text(low) == opening * depth + "0" + closing * depth
    del low, high  # must not end the process
    gc.collect()


def test_the_size_of_a_value_is_limited() -> None:
    """Sharing makes a value of a million parts small in memory, but nobody could print it."""
    value: Value = 0
    for _ in range(18):
        value = Pair(value, value)
    assert isinstance(value, Pair)
    assert value.size == 2**19 - 1
    for make in (lambda: Pair(value, value), lambda: List((value, value)), lambda: Map(((0, value), (1, value)))):
        with pytest.raises(TooLarge):
            make()
    rest = MAX_SIZE - value.size - 1
    assert List((value, *range(rest))).size == MAX_SIZE
    with pytest.raises(TooLarge):
        List((value, *range(rest + 1)))
    assert issubclass(TooLarge, ValueFault)


# --- the rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Map, Struct])
def test_a_repeated_key_is_refused(kind: type[Map] | type[Struct]) -> None:
    for key in (1, "a", Name("/a"), NAN, Float(-0.0), List((1,)), Pair(1, 2)):
        with pytest.raises(RepeatedKey) as raised:
            kind(((key, 1), (0, 0), (rebuilt(key), 2)))
        assert raised.value.key == key
        assert isinstance(raised.value, ValueError)
    several = kind(
        ((1, 0), ("1", 0), (Float(1.0), 0), (Name("/1"), 0), (Time(1), 0), (Float(-0.0), 0), (Float(0.0), 0))
    )
    assert len(several.entries) == 7


def test_lookup_by_key() -> None:
    for kind in (Map, Struct):
        entries = kind(tuple((value, position) for position, value in enumerate(IN_ORDER)))
        for position, value in enumerate(IN_ORDER):
            assert entries.get(rebuilt(value)) == position
        for absent in (2, "2", Float(2.0), Name("/2"), Time(2), List((2,)), kind()):
            assert entries.get(absent) is None or absent in IN_ORDER
    assert Map(((1, 0),)).get(Float(1.0)) is None
    assert Map(((Float(1.0), 0),)).get(1) is None
    assert Map(((Float(0.0), 0),)).get(Float(-0.0)) is None
    assert Map((("a", 0),)).get(Name("/a")) is None


def test_tuples_are_nested_pairs() -> None:
    assert tuple_of((1,)) == 1
    assert tuple_of((1, 2)) is Pair(1, 2)
    assert tuple_of((1, 2, 3)) is Pair(1, Pair(2, 3))


@settings(deadline=None)
@given(st.integers(-(1 << 70), 1 << 70))
def test_numbers_wrap_around(number: int) -> None:
    wrapped = wrap_int64(number)
    assert INT_MIN <= wrapped <= INT_MAX
    assert (wrapped - number) % (1 << 64) == 0


def test_kinds_have_names() -> None:
    wanted = "name, string, bytes, number, float64, time, duration, pair, list, map, struct"
    assert ", ".join(KIND_NAMES[kind] for kind in KIND_NAMES) == wanted
    assert {type(value) for value in IN_ORDER} == set(KIND_NAMES)


def test_well_known_values() -> None:
    assert TRUE is Name("/true")
    assert FALSE is Name("/false")
    assert NEG_INF is Time(-(2**63))
    assert POS_INF is Time(2**63 - 1)
    assert repr(Pair(1, List((Name("/a"),)))) == "Pair(1, List((Name('/a'),)))"
