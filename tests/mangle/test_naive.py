"""The naive evaluator: limits, termination, merge, deferred predicates, queries, constraints, errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest

from manglecp.base.source import Source
from manglecp.mangle.errors import AnalysisError, EvalError, LimitError, MangleError, ParseError
from manglecp.mangle.model import Limits
from manglecp.mangle.program import Program
from manglecp.mangle.result import Result
from tests.mangle.naive import evaluate

DAY = 86_400 * 10**9
NOW = 1_767_312_000 * 10**9
"""2026-01-02T00:00:00Z"""


def load(text: str, bounds: Literal["error", "off"] = "error") -> Program:
    return Program.load([Source("test.mg", text)], bounds=bounds)


def run(
    text: str, *, now: int = NOW, limits: Limits | None = None, bounds: Literal["error", "off"] = "error"
) -> Result:
    return evaluate(load(text, bounds), now=now, limits=limits)


def limit(text: str, limits: Limits, bounds: Literal["error", "off"] = "error") -> LimitError:
    with pytest.raises(LimitError) as raised:
        run(text, limits=limits, bounds=bounds)
    error = raised.value
    assert error.stage == "eval"
    assert str(error.limit) in error.render()
    assert str(error.consumed) in error.render()
    assert error.consumed > error.limit
    return error


def fails(text: str, kind: type[MangleError] = EvalError) -> MangleError:
    program = load(text)
    with pytest.raises(kind) as raised:
        evaluate(program, now=0)
    assert type(raised.value) is kind
    return raised.value


# --- the limit of derived facts ------------------------------------------------------------------------------------

COUNTING = "Decl n(X) bound [/number]. n(0). n(Y) :- n(X), X < 20, Y = fn:plus(X, 1)."


@pytest.mark.parametrize(
    ("text", "derived"),
    [
        (COUNTING, 20),
        ("d(1). d(2). d(3). p(A, B, C) :- d(A), d(B), d(C).", 27),
        ("d(1). d(2). d(3). p(X) :- d(X). q(X) :- p(X). q(X) :- d(X).", 6),
        ("d(1). d(2). p(N) :- d(X) |> do fn:group_by(), let N = fn:count(). q(N) :- p(N).", 2),
        ("d(1). d(2). p(1). p(2). p(X) :- d(X). q(X) :- p(X).", 2),  # p was given
        ("d(1). d(2). p(2). p(X) :- d(X).", 1),
        ("p() :- !q(_). Decl q(X). r(1) :- p().", 2),
        ("d(1). d(2). d(3). p(/x) :- d(A), d(B), d(C).", 1),  # rows on the way are free
        ("d(1). d(2). e(X, Y) :- d(X), d(Y). r(X, Z) :- e(X, Y), e(Y, Z), X < Z.", 5),
    ],
)
def test_the_limit_of_derived_facts_is_exact(text: str, derived: int) -> None:
    """N passes, and N + 1 is the error, whether the last one comes early or late."""
    result = run(text, limits=Limits(derived_facts=derived))
    assert result.statistics.derived == derived
    assert result.facts() == run(text).facts()
    error = limit(text, Limits(derived_facts=derived - 1))
    assert (error.limit, error.unit) == (derived - 1, "derived facts")
    assert derived - 1 < error.consumed <= derived


TEMPORAL = """
Decl p(X) temporal.
Decl q(X) temporal.
p(1)@[2026-01-01, 2026-01-03].
p(1)@[2026-01-05, 2026-01-06].
p(2)@[2026-01-01].
"""


@pytest.mark.parametrize(
    ("rules", "derived", "printed"),
    [
        ("q(X)@[S, E] :- p(X)@[S, E].", 3, 3),
        ("q(X)@[S, E] :- p(X)@[S, E]. q(X)@[S, now] :- p(X)@[S, _], p(X)@[now].", 4, 3),  # one lies in another
        ("q(X)@[S, E] :- p(X)@[S, E]. q(Y)@[S, E] :- p(Y)@[S, E].", 3, 3),  # twice the same
        ("q(1)@[2026-01-01, 2026-01-03]. q(X)@[S, E] :- p(X)@[S, E].", 2, 3),  # one was given
        ("q(1)@[2026-01-01, 2026-01-04]. q(X)@[S, E] :- p(X)@[S, E].", 3, 3),  # part of one was given
        ("q(X)@[_, _] :- p(X)@[_, _].", 2, 2),
        ("q(X)@[E, S] :- p(X)@[S, E].", 1, 1),  # two are inverted
    ],
)
def test_temporal_facts_count_once_per_interval_as_derived(rules: str, derived: int, printed: int) -> None:
    text = TEMPORAL + rules
    result = run(text, limits=Limits(derived_facts=derived))
    assert result.statistics.derived == derived
    assert len(result.facts("q")) == printed
    error = limit(text, Limits(derived_facts=derived - 1))
    assert error.consumed == derived
    assert error.unit == "derived facts"


@pytest.mark.parametrize(
    "text",
    [
        "n(0). n(Y) :- n(X), Y = fn:plus(X, 1).",
        "n([]). n(Y) :- n(X), Y = [X].",
        'n("a"). n(Y) :- n(X), Y = fn:string:concat(X, "a").',
        "n(1.0). n(Y) :- n(X), Y = fn:float:mult(X, 1.01).",
        "n(0). n(Y) :- n(X) |> let Y = fn:plus(X, 1).",
        "a(0). b(Y) :- a(X), Y = fn:plus(X, 1). a(Y) :- b(X), Y = fn:mult(X, 2).",
        "Decl n() temporal. n()@[2026-01-01]. n()@[U] :- n()@[T], U = fn:time:add(T, fn:duration:from_nanos(1)).",
        "Decl n() temporal. n()@[2026-01-01]. n()@[T, U] :- n()@[T, V], U = fn:time:add(V, fn:duration:from_hours(1)).",
        "d(1). d(2). d(3). p(A, B, C, D, E) :- d(A), d(B), d(C), d(D), d(E).",
        "p([1], [1]). p(X, [Y]) :- p(X, Y). p([X], Y) :- p(X, Y).",
    ],
)
def test_what_would_not_end_ends_at_the_limit(text: str) -> None:
    error = limit(text, Limits(derived_facts=100), bounds="off")
    assert error.limit == 100
    assert 100 < error.consumed <= 300
    assert error.unit == "derived facts"


def test_the_default_limit() -> None:
    assert Limits() == Limits(derived_facts=10_000_000, intervals=1_000, merge_steps=1_000_000, call_depth=10_000)


def test_a_limit_of_zero() -> None:
    assert run("p(1). q(X) :- p(X), X > 1.", limits=Limits(derived_facts=0)).facts() == ["p(1)"]
    assert limit("p(1). q(X) :- p(X).", Limits(derived_facts=0)).consumed == 1


# --- the limit of intervals ----------------------------------------------------------------------------------------


def apart(count: int, gap: int, head: str = "t(1)") -> str:
    """Instants, ``gap`` nanoseconds from one to the next, derived from numbers."""
    numbers = " ".join(f"i({number * gap})." for number in range(count))
    return f"Decl t(X) temporal. {numbers} {head}@[T] :- i(N), T = fn:time:from_unix_nanos(N)."


def test_intervals_of_one_fact() -> None:
    assert len(run(apart(5, 10), limits=Limits(intervals=5)).facts("t")) == 5
    error = limit(apart(6, 10), Limits(intervals=5))
    assert (error.limit, error.consumed, error.unit) == (5, 6, "intervals of t(1)")


def test_intervals_are_counted_after_coalescing() -> None:
    assert len(run(apart(6, 1), limits=Limits(intervals=1)).facts("t")) == 1
    given = "Decl t() temporal. t()@[2026-01-01, 2026-01-02]. t()@[2026-01-02, 2026-01-04]. t()@[2026-01-06]."
    assert len(run(given, limits=Limits(intervals=2)).facts()) == 2
    assert limit(given, Limits(intervals=1)).consumed == 2  # given facts have to keep it too


def test_intervals_of_several_facts_are_counted_apart() -> None:
    assert len(run(apart(6, 10, "t(N)"), limits=Limits(intervals=1)).facts("t")) == 6


# --- merge ---------------------------------------------------------------------------------------------------------

MERGED = """
Decl v(K, V) descr [fundep([K], [V]), merge([V], "m")].
Decl m(A, B, C) descr [mode("+", "+", "-"), deferred()].
"""
SMALLER = MERGED + "m(A, B, C) :- A <= B, C = A. m(A, B, C) :- B < A, C = B.\n"
LARGER = MERGED + "m(A, B, C) :- A >= B, C = A. m(A, B, C) :- B > A, C = B.\n"
LATEST = MERGED + "m(A, B, C) :- C = B.\n"


def test_a_merge_that_never_settles_ends() -> None:
    for text in (
        LARGER + "v(/k, 0). v(/k, Y) :- v(/k, X), Y = fn:plus(X, 1).",
        LATEST + "v(/k, 0). v(/k, 1) :- v(/k, 0). v(/k, 0) :- v(/k, 1).",
    ):
        error = limit(text, Limits(merge_steps=100), bounds="off")
        assert (error.limit, error.consumed, error.unit) == (100, 101, "merge steps")


def test_the_limit_of_merge_steps_is_exact() -> None:
    text = LARGER + "v(/k, 0). v(/k, Y) :- v(/k, X), X < 7, Y = fn:plus(X, 1)."
    assert run(text, limits=Limits(merge_steps=7), bounds="off").facts("v") == ["v(/k,7)"]
    assert limit(text, Limits(merge_steps=6), bounds="off").consumed == 7


def test_only_the_final_values_of_a_merge_count() -> None:
    text = SMALLER + "v(/k, 9). v(/k, Y) :- v(/k, X), X > 1, Y = fn:minus(X, 1)."
    result = run(text, limits=Limits(derived_facts=1), bounds="off")
    assert result.facts("v") == ["v(/k,1)"]
    assert result.statistics.derived == 1
    assert limit(text, Limits(derived_facts=0), bounds="off").consumed == 1
    unchanged = SMALLER + "v(/k, 1). v(/k, Y) :- v(/k, X), Y = fn:plus(X, 1)."
    assert run(unchanged, limits=Limits(derived_facts=0), bounds="off").facts("v") == ["v(/k,1)"]


def test_other_predicates_of_the_component_see_the_settled_values_only() -> None:
    text = SMALLER + "v(/k, 10). v(/k, Y) :- seen(X), X > 1, Y = fn:minus(X, 1). seen(X) :- v(/k, X). seen(99)."
    result = run(text, bounds="off")
    assert result.facts("v") == ["v(/k,1)"]
    assert result.facts("seen") == ["seen(1)", "seen(99)"]  # what was given stays
    assert result.statistics.derived == 2


def test_given_facts_are_merged_too() -> None:
    assert run(SMALLER + "v(/k, 3). v(/k, 1). v(/k, 2). v(/l, 5).").facts("v") == ["v(/k,1)", "v(/l,5)"]
    assert run(SMALLER + "v(/k, 3). v(/k, 1). v(K, 0) :- v(K, 1).").facts("v") == ["v(/k,0)"]


def test_the_merge_predicate_may_be_an_ordinary_one() -> None:
    text = 'Decl v(K, V) descr [fundep([K], [V]), merge([V], "m")]. m(/low, /high, /high). m(/high, /low, /high). '
    result = run(text + "v(1, /low). v(1, X) :- level(X). v(2, /low). level(/high). level(/low).")
    assert result.facts("v") == ["v(1,/high)", "v(2,/low)"]


def test_values_that_stay_incomparable_violate_the_dependency() -> None:
    error = fails(MERGED + "m(A, B, C) :- A = B, C = A. v(/k, 1). v(/k, 2).")
    assert "functional dependency violated by v(/k,1) and v(/k,2)" in error.diagnostics[0].message


@contextmanager
def little_stack() -> Iterator[None]:
    """Recursion in Python would not get far."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 120)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def test_one_value_may_absorb_many() -> None:
    text = MERGED + "m(A, B, C) :- B = 1000, C = B.\n" + " ".join(f"v(/k, {i})." for i in [*range(150), 1000])
    program = load(text)
    with little_stack():
        assert evaluate(program, now=0).facts("v") == ["v(/k,1000)"]


# --- deferred predicates -------------------------------------------------------------------------------------------

SUM = """
Decl sum(N, S) descr [mode("+", "-"), deferred()] bound [/number, /number].
sum(0, 0).
sum(N, S) :- N > 0, M = fn:minus(N, 1), sum(M, R), S = fn:plus(R, N).
"""


@pytest.mark.no_cover
def test_deep_calls() -> None:
    program = load(SUM + "p(S) :- sum(5000, S).")
    with little_stack():
        assert evaluate(program, now=0).facts("p") == ["p(12502500)"]


def test_the_depth_of_calls_is_limited_exactly() -> None:
    assert run(SUM + "p(S) :- sum(99, S).", limits=Limits(call_depth=100)).facts("p") == ["p(4950)"]
    error = limit(SUM + "p(S) :- sum(100, S).", Limits(call_depth=100))
    assert (error.limit, error.consumed, error.unit) == (100, 101, "nested calls of sum")


@pytest.mark.no_cover
@pytest.mark.parametrize("rule", ["f(N, R) :- f(N, R).", "f(N, R) :- M = fn:plus(N, 1), f(M, R)."])
def test_calls_that_never_end(rule: str) -> None:
    text = f'Decl f(N, R) descr [mode("+", "-"), deferred()]. {rule} p(R) :- f(0, R).'
    assert limit(text, Limits(), "off").limit == 10_000


def test_expressions_in_the_heads_of_deferred_rules() -> None:
    text = 'Decl f(N, R) descr [mode("+", "-"), deferred()]. f(fn:plus(1, 1), /two). f(N, fn:plus(N, N)) :- N > 2. '
    assert run(text + "d(2). d(3). p(X, R) :- d(X), f(X, R).", bounds="off").facts("p") == ["p(2,/two)", "p(3,6)"]


def test_deferred_facts_are_answers_too() -> None:
    text = 'Decl f(N, R) descr [mode("+", "-"), deferred()]. f(1, /one). f(N, /big) :- N > 9. d(1). d(2). d(10).'
    result = run(text + "p(X, R) :- d(X), f(X, R). q(X) :- d(X), !f(X, _).")
    assert result.facts("p") == ["p(1,/one)", "p(10,/big)"]
    assert result.facts("q") == ["q(2)"]
    assert result.statistics.derived == 3  # answers are no facts


# --- constraints ---------------------------------------------------------------------------------------------------


def test_every_missing_inclusion_is_named() -> None:
    error = fails(
        "Decl p(X, Y) inclusion [q(X), r(Y, _)]. Decl q(X). Decl r(X, Y). q(1). r(/a, 5). p(1, /a). p(2, /b)."
    )
    assert [d.message for d in error.diagnostics] == [
        "inclusion violated: p(2,/b) needs q(2)",
        "inclusion violated: p(2,/b) needs r(/b, _)",
    ]
    assert error.diagnostics[0].span is not None
    assert error.diagnostics[0].span.text.startswith("Decl p(X, Y)")


def test_inclusions_look_at_the_finished_model() -> None:
    text = "Decl p(X) inclusion [q(X)]. p(2). p(Y) :- p(X), X < 4, Y = fn:plus(X, 1). q(1). q(X) :- p(X), X < 4."
    error = fails(text)
    assert [d.message for d in error.diagnostics] == ["inclusion violated: p(4) needs q(4)"]
    assert run(text + "q(4).").facts("p") == ["p(2)", "p(3)", "p(4)"]


def test_every_broken_dependency_is_named() -> None:
    error = fails(
        "Decl p(A, B, C) descr [fundep([A], [B]), fundep([A, B], [C])]. p(1, 2, 3). p(1, 3, 3). p(2, 2, 2). p(2, 2, 3)."
    )
    assert [d.message for d in error.diagnostics] == [
        "functional dependency violated by p(1,2,3) and p(1,3,3)",
        "functional dependency violated by p(2,2,2) and p(2,2,3)",
    ]
    assert run("Decl p(A, B) descr [fundep([A], [B])]. p(1, 2). p(2, 2). p(X, 2) :- p(X, _).").facts()


def test_temporal_dependencies_only_where_facts_overlap() -> None:
    text = "Decl p(A, B) temporal descr [fundep([A], [B])]. p(1, 2)@[2026-01-01, 2026-01-05]. "
    error = fails(text + "p(1, 3)@[2026-01-05, 2026-01-07].")
    assert error.diagnostics[0].message == (
        "functional dependency violated by p(1,2)@[2026-01-01T00:00:00Z, 2026-01-05T00:00:00Z]"
        " and p(1,3)@[2026-01-05T00:00:00Z, 2026-01-07T00:00:00Z]"
    )
    assert len(run(text + "p(1, 3)@[2026-01-06, 2026-01-07]. p(2, 3)@[_, _].").facts()) == 3
    assert fails(text + "p(1, 3)@[_, _].").diagnostics
    assert fails(text + "p(1, B)@[S, E] :- p(1, A)@[S, E], A < 3, B = fn:plus(A, 1).").diagnostics


def test_there_is_an_end_to_violations() -> None:
    error = fails("Decl p(X) inclusion [q(X)]. Decl q(X). " + " ".join(f"p({i})." for i in range(1_000)))
    assert len(error.diagnostics) <= 100


# --- statistics ----------------------------------------------------------------------------------------------------


def test_statistics() -> None:
    statistics = run(
        COUNTING + "d(X) :- n(X), X > 18. e(N) :- d(X) |> do fn:group_by(), let N = fn:count()."
    ).statistics
    assert (statistics.given, statistics.derived, statistics.strata) == (1, 20 + 2 + 1, 3)
    assert statistics.rounds >= 21
    empty = run("").statistics
    assert (empty.given, empty.derived, empty.strata, empty.rounds) == (0, 0, 0, 0)


def test_given_facts_are_counted_once() -> None:
    assert run("p(1). p(1). p(2).").statistics.given == 2
    twice = "Decl p() temporal. p()@[2026-01-01]. p()@[2026-01-01]. p()@[2026-01-01, 2026-01-02]."
    assert run(twice).statistics.given == 2


def test_inverted_intervals_are_skipped() -> None:
    result = run(TEMPORAL + "q(X)@[E, S] :- p(X)@[S, E].")
    assert result.facts("q") == ["q(2)@[2026-01-01T00:00:00Z]"]


# --- evaluation leaves the program alone ---------------------------------------------------------------------------


def test_a_program_can_be_evaluated_again_and_again() -> None:
    text = TEMPORAL + "q(X)@[now] :- p(X)@[now]. n(X) :- p(X)@[now]. at(fn:time:now()). " + SMALLER
    text += "v(/k, 5). v(/k, N) :- p(N)@[_, _]. s(T) :- sum(3, T)." + SUM
    program = load(text, "off")
    before = repr((program.rules, program.facts, program.components, program.predicates))
    first = evaluate(program, now=NOW).facts()
    later = evaluate(program, now=NOW + 4 * DAY)
    assert later.now == NOW + 4 * DAY
    assert later.facts("n") == ["n(1)"]
    assert later.facts("at") == ['at(fn:time:parse_rfc3339("2026-01-06T00:00:00Z"))']
    assert evaluate(program, now=NOW - 10 * DAY).facts("n") == []
    with pytest.raises(LimitError):
        evaluate(program, now=NOW, limits=Limits(derived_facts=1))
    assert evaluate(program, now=NOW).facts() == first
    assert later.facts("n") == ["n(1)"]
    assert repr((program.rules, program.facts, program.components, program.predicates)) == before


# --- time ----------------------------------------------------------------------------------------------------------


def test_the_bounds_of_a_head_may_be_times_or_numbers() -> None:
    text = "Decl t(X) temporal. n(0, 5). n(5, 0). t(1)@[A, B] :- n(A, B). t(2)@[B] :- n(_, B), B > 0."
    assert run(text, bounds="off").facts("t") == [
        "t(1)@[1970-01-01T00:00:00Z, 1970-01-01T00:00:00.000000005Z]",
        "t(2)@[1970-01-01T00:00:00.000000005Z]",
    ]
    with pytest.raises(EvalError, match="S is not a time"):
        run('Decl t() temporal. q("now"). t()@[S] :- q(S).', bounds="off")


def test_rows_that_fail_are_left_out_of_a_collection_only() -> None:
    text = "d([1]). d([]). d([2, 3]). p(L) :- d(X) |> do fn:group_by(), let L = {}."
    assert run(text.replace("{}", "fn:collect(fn:list:get(X, 0))"), bounds="off").facts("p") == ["p([1, 2])"]
    with pytest.raises(EvalError):
        run(text.replace("{}", "fn:sum(fn:list:get(X, 0))"), bounds="off")


# --- asking --------------------------------------------------------------------------------------------------------

ASKED = """
Decl t(X) temporal.
Decl empty(X).
t(1)@[2026-01-01, 2026-01-05].
t(2)@[2026-01-03].
t(3)@[_, 2025-12-31].
p(1, 1). p(1, 2). p(2, /a). p(3, "x"). p(4, [1, /a.]).
q() :- p(1, 1).
"""
ONE = "t(1)@[2026-01-01T00:00:00Z, 2026-01-05T00:00:00Z]"
TWO = "t(2)@[2026-01-03T00:00:00Z]"
THREE = "t(3)@[_, 2025-12-31T00:00:00Z]"


@pytest.fixture(scope="module")
def asked() -> Result:
    return run(ASKED)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("p(X, Y)", ["p(1,1)", "p(1,2)", "p(2,/a)", 'p(3,"x")', "p(4,[1, /a.])"]),
        ("p(_, _)", ["p(1,1)", "p(1,2)", "p(2,/a)", 'p(3,"x")', "p(4,[1, /a.])"]),
        ("p(1, X)", ["p(1,1)", "p(1,2)"]),
        ("p(X, X)", ["p(1,1)"]),
        ("p(1, 1)", ["p(1,1)"]),
        ("p(1, 1.0)", []),
        ("p(X, /a)", ["p(2,/a)"]),
        ("p(X, [1, /a.])", ["p(4,[1, /a.])"]),
        ('p(_, "x").', ['p(3,"x")']),
        ("  p( 1 ,\n 2 )\n. ", ["p(1,2)"]),
        ("p(1, 2) # why not", ["p(1,2)"]),
        ("p(fn:plus(1, 1), X)", ["p(2,/a)"]),
        ("q()", ["q()"]),
        ("empty(X)", []),
        ("t(X)", [ONE, TWO, THREE]),
        ("t(X)@[_, _]", [ONE, TWO, THREE]),
        ("t(X)@[S, E]", [ONE, TWO, THREE]),
        ("t(X)@[now]", [ONE]),
        ("t(X)@[T]", [TWO]),
        ("t(X)@[T, T]", [TWO]),
        ("t(X)@[2026-01-03]", [ONE, TWO]),
        ("t(X)@[2026-01-04, E]", [ONE]),
        ("t(X)@[2025-12-31]", [THREE]),
        ("t(1)@[2026-01-06]", []),
        ("<-[1d] t(X)", [ONE]),
        ("<-[3d] t(X)", [ONE, THREE]),
        ("[-[1d] t(X)", [ONE]),
        ("<+[1d] t(X)", [ONE, TWO]),
        ("[+[3d] t(X)", [ONE]),
        ("<-[2026-01-03, 2026-01-09] t(X)", [ONE, TWO]),
        ("<-[3d] t(X)@[_, 2025-12-30]", [THREE]),
    ],
)
def test_queries(asked: Result, query: str, found: list[str]) -> None:
    assert asked.query(query) == found


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("", ParseError),
        (".", ParseError),
        ("p(X", ParseError),
        ('p("', ParseError),
        ("p(1, 2) :- q()", ParseError),
        ("Decl p(X)", ParseError),
        ("Package x!", ParseError),
        ("p(X, Y), q()", ParseError),
        ("p(1, 1). q()", ParseError),
        ("p(X, Y) |> let Z = fn:plus(X)", ParseError),
        ("!q()", AnalysisError),
        ("X = 1", AnalysisError),
        ("1 < 2", AnalysisError),
        (":list:member(X, [1])", AnalysisError),
        ("nothing(X)", AnalysisError),
        ("p(X)", AnalysisError),
        ("q(1)", AnalysisError),
        ("p(fn:nothing(), X)", AnalysisError),
        ("p(fn:plus(X, 1), X)", AnalysisError),
        ("p(X, Y)@[now]", AnalysisError),
        ("<-[1d] p(X, Y)", AnalysisError),
        ("<-[D] t(X)", AnalysisError),
        ("t(X)@[5m]", AnalysisError),
        ("p(fn:div(1, 0), X)", EvalError),
    ],
)
def test_queries_that_are_refused(asked: Result, query: str, kind: type[MangleError]) -> None:
    with pytest.raises(kind) as raised:
        asked.query(query)
    assert raised.value.stage == kind.stage
    for diagnostic in raised.value.diagnostics:
        assert diagnostic.span is not None
        assert diagnostic.span.source.text == query
    assert raised.value.render()


def test_errors_of_a_query_point_into_it(asked: Result) -> None:
    with pytest.raises(AnalysisError, match="query:1:6: unknown function fn:nothing"):
        asked.query("p(1, fn:nothing())")
    with pytest.raises(ParseError, match="query:2:3: one premise is enough"):
        asked.query("p(1,\n )X")


def test_facts_of_one_predicate(asked: Result) -> None:
    assert asked.facts("q") == ["q()"]
    assert asked.facts("t") == [ONE, TWO, THREE]
    assert asked.facts("empty") == asked.facts("nothing") == []
    assert asked.facts() == sorted(asked.facts("p") + asked.facts("q") + asked.facts("t"))
    both = run("Decl p(X). Decl p(X, Y). p(1). p(1, 2).")
    assert both.facts("p") == ["p(1)", "p(1,2)"]
    assert run("Package zoo! p(1). q(X) :- p(X).").facts("zoo.q") == ["zoo.q(1)"]


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("z(0). p(fn:div(1, X)) :- z(X).", "p(fn:div(1, X))"),
        ("z(0). p(Y) :- z(X), Y = fn:div(1, X).", "Y = fn:div(1, X)"),
        ("z(0). p(X) :- z(X), z(fn:div(1, X)).", "z(fn:div(1, X))"),
        ("z(0). p(X) :- z(X), !z(fn:div(1, X)).", "!z(fn:div(1, X))"),
        ("z(0). p(X) :- z(X), 1 != fn:div(1, X).", "1 != fn:div(1, X)"),
        ("z(0). p(X) :- z(X), fn:div(1, X) < 2.", "fn:div(1, X) < 2"),
        ("z(0). p(Y) :- z(X) |> let Y = fn:div(1, X).", "|> let Y = fn:div(1, X)"),
        (
            "z(0). p(Y) :- z(X) |> do fn:group_by(X), let Y = fn:div(1, X).",
            "|> do fn:group_by(X), let Y = fn:div(1, X)",
        ),
        ("z([]). p(Y) :- z(X), Y = fn:list:get(X, 0).", "Y = fn:list:get(X, 0)"),
        ("Decl t() temporal. t()@[2026-01-02, 2026-01-01].", "@[2026-01-02, 2026-01-01]"),
        ("Decl t() temporal. t()@[_, now] :- t()@[now]. t()@[2026-01-01, now].", "@[2026-01-01, now]"),
    ],
)
def test_errors_point_at_the_place(text: str, marked: str) -> None:
    (diagnostic,) = fails(text).diagnostics
    assert diagnostic.span is not None
    assert diagnostic.span.text == marked
    assert diagnostic.clause is not None


def test_an_error_in_a_fact_that_depends_on_the_time_belongs_to_the_analysis() -> None:
    text = "p(fn:div(1, fn:time:to_unix_nanos(fn:time:now())))."
    assert run(text, now=1).facts() == ["p(1)"]
    error = fails(text, AnalysisError)
    assert error.stage == "analysis"


def test_nothing_fails_before_it_is_needed() -> None:
    assert run("z(0). p(X) :- z(X), X > 0, Y = fn:div(1, X), Y > 0.").facts("p") == []
    assert run("Decl z(X). p(fn:div(1, X)) :- z(X).").facts("p") == []
    assert run("z(1). z(0). p(Y) :- z(X), X != 0, Y = fn:div(1, X).").facts("p") == ["p(1)"]
