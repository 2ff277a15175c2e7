"""Deltas are applied as one change: retractions first, wildcards, no fact twice. A list of facts is the model."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.client.errors import RequestRefused
from manglecp.client.working_state import AppliedDelta, WorkingState
from manglecp.wire.messages import StateDelta

Fact = dict[str, Any]


def fact(name: str, *args: Any, **more: Any) -> Fact:
    return {"pred": name, "args": list(args), **more}


# --- against a model -------------------------------------------------------------------------------------------------

TIMES = (None, {"at": "2026-03-02T09:14:00Z"}, {"start": "2026-03-02T09:14:00Z", "end": "_"})
VALUES = st.sampled_from(["a", "b", 1, 2, 1.0, True, [1], {"k": 1}, {"k": None}])


def facts(values: st.SearchStrategy[Any] = VALUES) -> st.SearchStrategy[Fact]:
    return st.builds(
        lambda name, args, time, source: (
            {"pred": name, "args": args}
            | ({} if time is None else {"t": time})
            | ({} if source is None else {"source": {"source_type": source}})
        ),
        st.sampled_from(["p", "q"]),
        st.lists(values, max_size=3),
        st.sampled_from(TIMES),
        st.sampled_from([None, "server", "scan"]),
    )


PATTERNS = facts(st.one_of(st.none(), VALUES))


def says(value: Any) -> str:
    """JSON text tells 1 from 1.0 and from true, which Python does not."""
    return json.dumps(value, sort_keys=True)


def same(one: Fact, other: Fact) -> bool:
    return all(says(one.get(member)) == says(other.get(member)) for member in ("pred", "args", "t"))


def matches(pattern: Fact, one: Fact) -> bool:
    return (
        pattern["pred"] == one["pred"]
        and len(pattern["args"]) == len(one["args"])
        and all(p is None or says(p) == says(a) for p, a in zip(pattern["args"], one["args"], strict=True))
        and ("t" not in pattern or says(pattern["t"]) == says(one.get("t")))
    )


def model(state: list[Fact], asserts: list[Fact], retract: list[Fact]) -> list[Fact]:
    left = [one for one in state if not any(matches(pattern, one) for pattern in retract)]
    for new in asserts:
        if not any(same(new, one) for one in left):
            left.append(new)
    return left


@pytest.mark.req("DELTA-05", "DELTA-06", "DELTA-07", "DELTA-08", "DELTA-09", "CLI-09")
@given(
    st.lists(facts(), max_size=6),
    st.lists(st.tuples(st.lists(facts(), max_size=4), st.lists(PATTERNS, max_size=3)), max_size=4),
)
def test_a_state_is_what_the_model_says(first: list[Fact], deltas: list[tuple[list[Fact], list[Fact]]]) -> None:
    state = WorkingState(first)
    expected = model([], first, [])
    for asserts, retract in deltas:
        state.apply({"assert": asserts, "retract": retract})
        expected = model(expected, asserts, retract)
        assert [says(one) for one in state.facts] == [says(one) for one in expected]


# --- one by one ------------------------------------------------------------------------------------------------------


@pytest.mark.req("DELTA-06")
def test_null_matches_any_value_of_an_argument() -> None:
    state = WorkingState([fact("phase", "s1", 1, "done"), fact("phase", "s1", 2, "open"), fact("phase", "s2", 2, "x")])
    state.apply({"retract": [fact("phase", "s1", 2, None)]})
    assert list(state) == [fact("phase", "s1", 1, "done"), fact("phase", "s2", 2, "x")]
    state.apply({"retract": [fact("phase", "s1", None, None)]})
    assert state.facts == (fact("phase", "s2", 2, "x"),)


@pytest.mark.req("DELTA-07")
def test_a_pattern_of_another_length_or_predicate_matches_nothing() -> None:
    state = WorkingState([fact("p", 1, 2)])
    state.apply({"retract": [fact("p", None), fact("p", None, None, None), fact("q", None, None)]})
    assert len(state) == 1


@pytest.mark.req("DELTA-06")
def test_null_inside_a_value_is_a_value() -> None:
    state = WorkingState([fact("p", {"k": 1}), fact("p", {"k": None})])
    assert state.retract([fact("p", {"k": None})]) == (fact("p", {"k": None}),)
    assert state.facts == (fact("p", {"k": 1}),)


@pytest.mark.req("DELTA-08", "DELTA-09")
def test_what_is_in_both_lists_is_there_afterwards() -> None:
    state = WorkingState([fact("p", 1), fact("q", 2)])
    applied = state.apply({"assert": [fact("p", 1)], "retract": [fact("p", 1)]})
    assert state.facts == (fact("q", 2), fact("p", 1))
    assert (applied.retracted, applied.asserted) == ((fact("p", 1),), (fact("p", 1),))


@pytest.mark.req("DELTA-05")
@pytest.mark.parametrize(
    ("time", "left"),
    [
        (None, 0),
        ({"at": "2026-03-02T09:14:00Z"}, 2),
        ({"at": "2026-03-02T10:14:00+01:00"}, 2),
        ({"start": "2026-03-02T09:14:00Z", "end": "2026-03-02T09:14:00Z"}, 2),
        ({"at": 1772442840000}, 2),
        ({"at": "2026-03-02T09:14:01Z"}, 3),
        ({"start": "_", "end": "_"}, 2),
        ({"at": "now"}, 2),
    ],
)
def test_time_matches_if_it_is_given(time: Any, left: int) -> None:
    """And two ways to write one instant are the same."""
    state = WorkingState([fact("p"), fact("p", t={"at": "2026-03-02T09:14:00Z"}), fact("p", t={"at": "now"})])
    state.retract([fact("p") if time is None else fact("p", t=time)])
    assert len(state) == left


@pytest.mark.req("DELTA-05", "CLI-09")
def test_where_a_fact_comes_from_does_not_matter() -> None:
    state = WorkingState([fact("p", 1, source={"source_type": "scan"}, category="server")])
    state.add([fact("p", 1, source={"source_type": "client"}, category="session")])
    assert len(state) == 1
    assert state.retract([fact("p", 1, category="derived", source={"source_type": "derived"})]) != ()
    assert len(state) == 0


def test_a_wrapped_whole_number_is_that_number() -> None:
    state = WorkingState([fact("p", 5), fact("p", 2**60)])
    state.add([fact("p", {"_type": "int64", "value": str(2**60)}), fact("p", {"_type": "int64", "value": "5"})])
    assert len(state) == 2
    assert fact("p", {"_type": "int64", "value": "05x"}) not in state


def test_one_and_true_and_one_point_zero_are_three_facts() -> None:
    assert len(WorkingState([fact("p", 1), fact("p", True), fact("p", 1.0)])) == 3


@pytest.mark.req("DELTA-12")
def test_what_states_nothing_is_ignored_and_told() -> None:
    state = WorkingState([fact("p", 1)])
    wrong: list[Any] = [fact("p", None), {"pred": 5, "args": []}, {"pred": "p"}, "p(1)", fact("p", float("nan"))]
    applied = state.apply({"assert": [*wrong, fact("q")], "retract": [{"args": [1]}, {"pred": "p", "args": "no"}]})
    assert len(applied.ignored) == 7
    assert state.facts == (fact("p", 1), fact("q"))


@pytest.mark.req("DELTA-01")
def test_a_delta_without_lists_changes_nothing() -> None:
    state = WorkingState([fact("p", 1)])
    nothing: list[Any] = [{}, {"assert": [], "retract": None}, StateDelta()]
    for delta in nothing:
        assert state.apply(delta) == AppliedDelta()
    assert state.facts == (fact("p", 1),)


@pytest.mark.req("DELTA-10")
def test_nobody_sees_half_a_delta() -> None:
    """Two facts change places a thousand times; whoever looks sees exactly one of them."""
    state = WorkingState([fact("side", "left")])
    seen: set[tuple[str, ...]] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(tuple(one["args"][0] for one in state.facts))

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(1_000):
        for old, new in (("left", "right"), ("right", "left")):
            state.apply({"assert": [fact("side", new)], "retract": [fact("side", old)]})
    over.set()
    watcher.join()
    assert seen <= {("left",), ("right",)}


@pytest.mark.req("DELTA-10")
def test_a_delta_that_does_not_fit_changes_nothing() -> None:
    state = WorkingState([fact("p", n) for n in range(3)], max_facts=4)
    with pytest.raises(RequestRefused) as refused:
        state.apply({"assert": [fact("q", n) for n in range(3)], "retract": [fact("p", 0)]})
    assert refused.value.code == "state_full"
    assert state.facts == tuple(fact("p", n) for n in range(3))
    state.apply({"assert": [fact("q", 0), fact("q", 1)], "retract": [fact("p", 0)]})
    assert len(state) == 4


def test_facts_are_copies() -> None:
    mine = fact("p", [1])
    state = WorkingState([mine])
    mine["args"][0].append(2)
    state.facts[0]["args"][0].append(3)
    assert state.facts == (fact("p", [1]),)
    with pytest.raises(RequestRefused):
        state.add([fact("q"), fact("p", None)])
    assert len(state) == 1
    state.clear()
    assert list(state) == []
