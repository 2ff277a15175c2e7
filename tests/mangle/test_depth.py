"""Nothing is too deep or too wide for the analysis: it answers or refuses, and never falls over."""

from __future__ import annotations

import pytest

from manglecp.mangle import AnalysisError, LimitError, Limits, Program, Source
from manglecp.mangle.parser import MAX_NESTING
from manglecp.mangle.types import MAX_DEPTH
from tests.mangle.naive import evaluate

pytestmark = pytest.mark.no_cover


def load(text: str) -> Program:
    return Program.load([Source("deep.mg", text)])


def test_declared_types_as_deep_as_they_can_be_written() -> None:
    deep = MAX_NESTING - 2
    bound = "fn:Struct(/a, " * deep + "/number" + ")" * deep
    fact = "{/a:" * deep + "1" + "}" * deep
    load(f"Decl p(X) bound [{bound}]. p({fact}).")
    wrong = fact.replace("1", '"one"')
    with pytest.raises(AnalysisError):
        load(f"Decl p(X) bound [{bound}]. p({wrong}).")


def test_inferred_types_stop_growing() -> None:
    rules = " ".join(f"p{i + 1}({'[' * 60}X{']' * 60}) :- p{i}(X)." for i in range(20))
    program = load(f"p0(1). {rules}")
    assert evaluate(program, now=0).statistics.derived == 20


@pytest.mark.parametrize("parts", [3, 65, MAX_DEPTH])
def test_long_tuples_fit_their_type(parts: int) -> None:
    types, values = ", ".join(["/number"] * parts), ", ".join(["1"] * parts)
    load(f"Decl p(X) bound [fn:Tuple({types})]. p(fn:tuple({values})).")


def test_longer_tuple_types_are_refused() -> None:
    types = ", ".join(["/number"] * (MAX_DEPTH + 1))
    with pytest.raises(AnalysisError, match="at most"):
        load(f"Decl p(X) bound [fn:Tuple({types})].")


SMALLER = """
Decl v(K, N) descr [fundep([K], [N]), merge([N], "smaller")] bound [/name, /number].
Decl smaller(A, B, C) descr [deferred(), mode("+", "+", "-")] bound [/number, /number, /number].
smaller(A, B, A) :- A <= B.
smaller(A, B, B) :- B < A.
"""


def test_a_merge_counts_only_what_holds_in_the_end() -> None:
    program = load(SMALLER + "i(1). i(2). i(3). v(/k, 3). ord(X, I) :- v(/k, X), X > 2, i(I). v(/k, 1) :- ord(_, _).")
    assert evaluate(program, now=0, limits=Limits(derived_facts=1)).statistics.derived == 1
    with pytest.raises(LimitError):
        evaluate(program, now=0, limits=Limits(derived_facts=0))


def test_many_unknown_names_are_reported_quickly() -> None:
    known = " ".join(f"known_{i}(1)." for i in range(300))
    unknown = " ".join(f"p{i}(X) :- knwon_{i}(X)." for i in range(300))
    with pytest.raises(AnalysisError) as caught:
        load(f"{known} {unknown}")
    assert len(caught.value.diagnostics) == 300
    assert "did you mean" in (caught.value.diagnostics[0].fix or "")


def test_a_product_is_stopped_before_it_fills_the_memory() -> None:
    facts = " ".join(f"n({i})." for i in range(200))
    program = load(facts + " p(A, B, C, D) :- n(A), n(B), n(C), n(D).")
    with pytest.raises(LimitError) as caught:
        evaluate(program, now=0, limits=Limits(derived_facts=1_000))
    assert caught.value.diagnostics[0].span is not None


def test_facts_are_merged_when_the_merge_predicate_is_derived() -> None:
    program = load("""
        Decl d(K, V) descr [fundep([K], [V]), merge([V], "mx")].
        lvl(1). lvl(2).
        mx(A, B, B) :- lvl(A), lvl(B), A <= B.
        mx(A, B, A) :- lvl(A), lvl(B), A > B.
        d(/a, 1). d(/a, 2).
        r(V) :- d(/a, V).
    """)
    assert evaluate(program, now=0).query("r(_)") == ["r(2)"]


def test_no_rule_defines_a_built_in() -> None:
    with pytest.raises(AnalysisError, match="built-in"):
        load("p(1). :foo(X) :- p(X).")


def test_an_evaluation_ends_when_its_time_is_up() -> None:
    program = load("Decl n(X) bound [/number]. n(0). n(Y) :- n(X), Y = fn:plus(X, 1).")
    with pytest.raises(LimitError) as caught:
        evaluate(program, now=0, limits=Limits(seconds=0.05))
    assert caught.value.unit == "seconds"
