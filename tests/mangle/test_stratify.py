"""What is evaluated together, and what cannot be (D13)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle.errors import StratificationError
from manglecp.mangle.stratify import strongly_connected
from tests.effort import examples
from tests.mangle.loading import complaints, facts, load, refusal


def components(text: str) -> list[list[str]]:
    return [[name for name, _ in component.predicates] for component in load(text).components]


def test_dependencies_come_first() -> None:
    text = "c(X) :- b(X). b(X) :- a(X), !d(X). a(1). d(X) :- a(X), X > 1."
    found = components(text)
    assert sorted(found) == [["b"], ["c"], ["d"]]
    assert found.index(["d"]) < found.index(["b"]) < found.index(["c"])


def test_facts_alone_need_no_evaluation() -> None:
    assert components("a(1). b(2).") == []


def test_mutual_recursion_is_one_component() -> None:
    text = "Decl even(X) bound [/number]. Decl odd(X) bound [/number]. even(0)."
    text += "odd(Y) :- even(X), X < 9, Y = fn:plus(X, 1). even(Y) :- odd(X), X < 9, Y = fn:plus(X, 1)."
    (component,) = load(text).components
    assert component.recursive
    assert [name for name, _ in component.predicates] == ["even", "odd"]


def test_recursion_is_told_from_a_single_rule() -> None:
    by_name = {
        c.predicates[0][0]: c.recursive for c in load("e(1, 2). p(X) :- e(X, _). q(X) :- e(X, Y), q(Y).").components
    }
    assert by_name == {"p": False, "q": True}


# --- cycles ----------------------------------------------------------------------------------------------------------


def test_the_cycle_is_named() -> None:
    text = """\
        n(1).
        a(X) :- b(X).
        b(X) :- c(X), n(X).
        c(X) :- n(X), !a(X).
    """
    (diagnostic,) = refusal(text, stage="stratification")
    assert diagnostic.message == "c depends on itself through the negation !a(X): c -> a -> b -> c"
    assert diagnostic.clause == "c(X) :- n(X), !a(X)."
    assert diagnostic.fix == "break the cycle: a negation needs a relation that is finished before"
    assert diagnostic.span is not None
    assert diagnostic.span.text == "!a(X)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n(1).\np(X) :- n(X), !p(X).", ["2:15 p depends on itself through the negation !p(X): p -> p"]),
        (
            "n(1).\np(X) :- n(X), !q(X).\nq(X) :- n(X), !p(X).",
            ["2:15 p depends on itself through the negation !q(X): p -> q -> p"],  # one cycle, said once
        ),
        (
            "n(1).\np(N) :- p(X) |> do fn:group_by(), let N = fn:count().",
            ["2:9 p depends on itself through aggregation: p -> p"],
        ),
        (
            "n(1).\np(X) :- q(X).\nq(N) :- n(X), p(X) |> do fn:group_by(), let N = fn:count().",
            ["3:15 q depends on itself through aggregation: q -> p -> q"],
        ),
        (  # every premise of an aggregating rule is needed in full
            "n(1).\nq(N) :- n(X), !q(X) |> do fn:group_by(), let N = fn:count().",
            ["2:15 q depends on itself through the negation !q(X): q -> q"],
        ),
        (
            "Decl t(X) temporal.\nn(1).\nt(X)@[now] :- n(X), !t(X)@[now].",
            ["3:21 t depends on itself through the negation !t(X)@[now]: t -> t"],
        ),
        (
            "Decl t(X) temporal.\nn(1).\nt(X)@[now] :- n(X), !<-[1d] t(X).",
            ["3:21 t depends on itself through the negation !<-[1d] t(X): t -> t"],
        ),
        (
            "Decl t(X) temporal.\nt(1)@[now].\nt(N)@[now] :- t(X)@[_, _] |> do fn:group_by(), let N = fn:count().",
            ["3:15 t depends on itself through aggregation: t -> t"],
        ),
        (
            'Decl d(X) descr [deferred(), mode("+")].\nd(X) :- X > 0, Y = fn:minus(X, 1), !d(Y).',
            ["2:36 d depends on itself through the negation !d(Y): d -> d"],
        ),
    ],
)
def test_what_cannot_be_stratified(text: str, found: list[str]) -> None:
    assert complaints(text, stage="stratification", bounds="off") == found


def test_every_cycle_is_reported() -> None:
    text = """\
        n(1).
        a(X) :- n(X), !a(X).
        b(X) :- n(X), !c(X).
        c(X) :- b(X).
        d(X) :- e(X), !d(X).
        e(X) :- d(X), !e(X).
    """
    assert complaints(text, stage="stratification") == [
        "2:15 a depends on itself through the negation !a(X): a -> a",
        "3:15 b depends on itself through the negation !c(X): b -> c -> b",
        "5:15 d depends on itself through the negation !d(X): d -> d",
        "6:15 e depends on itself through the negation !e(X): e -> e",
    ]


def test_analysis_comes_first() -> None:
    assert complaints("n(1).\np(X) :- n(X), !p(X).\nq(X) :- nowhere(X).") == ["3:9 unknown predicate nowhere"]


def test_negation_below_is_fine() -> None:
    text = "n(1). n(2). e(1, 2). r(X, Y) :- e(X, Y). r(X, Z) :- r(X, Y), e(Y, Z). end(X) :- n(X), !r(X, _)."
    assert "end(2)" in facts(text)


def test_time_counts_like_any_premise() -> None:
    text = """
        Decl a(X) temporal. Decl b(X) temporal. Decl c(X) temporal.
        c(X)@[T] :- b(X)@[T].
        b(X)@[T] :- a(X)@[T].
        a(1)@[2026-01-01].
        z(X) :- <-[30d] c(X).
    """
    assert components(text) == [["b"], ["c"], ["z"]]
    assert "z(1)" in facts(text)


# --- merge -----------------------------------------------------------------------------------------------------------

BEST = 'Decl best(K, V) descr [fundep([K], [V]), merge([V], "pick")] bound [/name, /number].\n'
PICK = 'Decl pick(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].\n'


def test_a_merge_needs_its_predicate_finished() -> None:
    rules = "pick(A, B, C) :- seen(A), A < B, C = B.\nseen(V) :- best(_, V).\nbest(K, V) :- s(K, V).\ns(/a, 1)."
    (diagnostic,) = refusal(f"{BEST}{PICK}{rules}", stage="stratification")
    assert diagnostic.message == "best depends on itself through its merge predicate: best -> pick -> seen -> best"
    assert diagnostic.span is not None
    assert diagnostic.span.text == 'merge([V], "pick")'
    assert diagnostic.clause == BEST.strip()
    assert diagnostic.fix == "break the cycle: a merge needs a relation that is finished before"


def test_also_if_only_facts_are_merged() -> None:
    text = f"{BEST}pick(A, B, C) :- best(_, A), best(_, B), C = A.\nbest(/a, 1).\nbest(/a, 2)."
    assert complaints(text, stage="stratification") == [
        "1:42 best depends on itself through its merge predicate: best -> pick -> best"
    ]


def test_the_merge_predicate_may_read_what_is_below() -> None:
    rules = "pick(A, B, C) :- rank(A, B), C = B.\npick(A, B, C) :- rank(B, A), C = A.\nbest(K, V) :- s(K, V).\n"
    assert "best(/a,2)" in facts(f"{BEST}{PICK}{rules}rank(1, 2).\ns(/a, 1). s(/a, 2).")


# --- size ------------------------------------------------------------------------------------------------------------

LONG = 5_000


def test_a_long_chain_is_no_deep_recursion() -> None:
    """Read from its far end, so that whoever followed the premises by recursion would go 5,000 levels deep."""
    rules = "".join(f"p{i:05}(X) :- p{i + 1:05}(X).\n" for i in range(LONG))
    program = load(f"{rules}p{LONG:05}(1).")
    assert [c.predicates[0][0] for c in program.components] == [f"p{i:05}" for i in reversed(range(LONG))]


def test_a_long_cycle_is_shortened_in_the_message() -> None:
    rules = "".join(f"p{i:05}(X) :- p{i + 1:05}(X).\n" for i in range(LONG))
    (diagnostic,) = refusal(f"n(1).\n{rules}p{LONG:05}(X) :- n(X), !p00000(X).", stage="stratification")
    assert diagnostic.message.endswith(
        ": p05000 -> p00000 -> p00001 -> p00002 -> p00003 -> … -> p04996 -> p04997 -> p04998 -> p04999 -> p05000"
    )


# --- any graph -------------------------------------------------------------------------------------------------------

_graphs = st.integers(1, 7).flatmap(
    lambda size: st.lists(
        st.tuples(st.integers(0, size - 1), st.integers(0, size - 1), st.sampled_from(["", "", "!"])), max_size=14
    )
)


def reachable(edges: Iterable[tuple[int, int]], start: int) -> set[int]:
    found: set[int] = set()
    queue = [start]
    for node in queue:
        for head, body in edges:
            if head == node and body not in found:
                found.add(body)
                queue.append(body)
    return found


@given(_graphs)
@examples(120)
def test_a_program_is_refused_if_and_only_if_a_negation_leads_back(graph: list[tuple[int, int, str]]) -> None:
    edges = [(head, body) for head, body, _ in graph]
    text = "n(1). " + "".join(f"p{i}(X) :- n(X), X > 5. " for i in range(7))
    text += "".join(f"p{head}(X) :- n(X), {sign}p{body}(X). " for head, body, sign in graph)
    bad = any(sign and (head == body or head in reachable(edges, body)) for head, body, sign in graph)
    if bad:
        with pytest.raises(StratificationError):
            load(text)
        return
    place = {key[0]: i for i, component in enumerate(load(text).components) for key in component.predicates}
    for head, body, sign in graph:
        assert place[f"p{body}"] <= place[f"p{head}"]
        if sign:
            assert place[f"p{body}"] < place[f"p{head}"]


@given(_graphs)
@examples(120)
def test_components_are_what_reaches_each_other(graph: list[tuple[int, int, str]]) -> None:
    nodes = [(str(i), 0) for i in range(7)]
    edges = [(head, body) for head, body, _ in graph]
    neighbours = {node: [nodes[body] for head, body in edges if nodes[head] == node] for node in nodes}
    found = [sorted(int(name) for name, _ in members) for members in strongly_connected(neighbours)]
    assert sorted(node for members in found for node in members) == list(range(7))
    for members in found:
        one = members[0]
        assert set(members) == {
            n for n in range(7) if n == one or (n in reachable(edges, one) and one in reachable(edges, n))
        }
    place = {node: i for i, members in enumerate(found) for node in members}
    assert all(place[body] <= place[head] for head, body in edges)
