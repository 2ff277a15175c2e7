"""What may stand behind ``|>``, and what a row is (D6, D7, D26)."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, strategies as st

from tests.effort import examples
from tests.mangle.loading import complaints, facts, refusal

BASE = "v(/a, 1). v(/a, 2). v(/b, 5). ok(/x). ok(/y). l([3, 4])."


def derived(rules: str) -> list[str]:
    """The facts of p."""
    return [fact for fact in facts(f"{BASE}\n{rules}") if fact.startswith("p(")]


# --- let -------------------------------------------------------------------------------------------------------------


def test_lets_run_in_order_and_see_each_other() -> None:
    assert derived("p(X, Y, Z) :- v(/b, X) |> let Y = fn:plus(X, 10), let Z = fn:mult(Y, 2).") == ["p(5,15,30)"]


def test_heads_see_let_variables() -> None:
    assert derived("p(fn:plus(Y, 1)) :- v(/b, X) |> let Y = fn:mult(X, 10).") == ["p(51)"]


def test_a_let_may_throw_its_value_away() -> None:
    assert derived("p(X) :- v(/b, X) |> let _ = fn:plus(X, 1), let _ = fn:plus(X, 2).") == ["p(5)"]


def test_recursion_through_let() -> None:
    text = "p(0). p(Y) :- p(X), X < 3 |> let Y = fn:plus(X, 1)."
    assert derived(text) == ["p(0)", "p(1)", "p(2)", "p(3)"]


def test_the_first_let_may_fold_a_list() -> None:
    assert derived("p(S) :- l(L) |> let S = fn:sum(L).") == ["p(7)"]
    assert complaints(f"{BASE}\np(S) :- v(_, X) |> let S = fn:sum(X).", stage="eval") == [
        "2:17 fn:sum takes a list, not the number 1"
    ]


# --- do --------------------------------------------------------------------------------------------------------------


def test_one_fact_per_group() -> None:
    assert derived("p(K, S) :- v(K, X) |> do fn:group_by(K), let S = fn:sum(X).") == ["p(/a,3)", "p(/b,5)"]
    assert derived("p(S) :- v(K, X) |> do fn:group_by(), let S = fn:sum(X).") == ["p(8)"]
    assert derived("p(K, X) :- v(K, X) |> do fn:group_by(K, X).") == ["p(/a,1)", "p(/a,2)", "p(/b,5)"]


def test_grouping_nothing_gives_nothing() -> None:
    assert derived("p(N) :- v(K, X), X > 9 |> do fn:group_by(), let N = fn:count().") == []


def test_ordinary_functions_combine_keys_and_results() -> None:
    rule = "p(K, T) :- v(K, X) |> do fn:group_by(K), let S = fn:sum(X), let T = fn:plus(S, 100)."
    assert derived(rule) == ["p(/a,103)", "p(/b,105)"]


def test_the_head_is_evaluated_after_the_reducers() -> None:
    assert derived("p(fn:mult(S, 10)) :- v(K, X) |> do fn:group_by(), let S = fn:sum(X).") == ["p(80)"]


def test_rows_of_a_single_positive_premise_are_its_facts() -> None:
    assert derived("p(N) :- v(K, _) |> do fn:group_by(), let N = fn:count().") == ["p(3)"]
    assert derived("p(S) :- v(_, X), 1 = 1 |> do fn:group_by(), let S = fn:count().") == ["p(3)"]
    assert derived("p(N) :- v(/a, _) |> do fn:group_by(), let N = fn:count().") == ["p(2)"]


def test_rows_of_several_premises_are_distinct_bindings() -> None:
    assert derived("p(N) :- v(K, _), ok(_) |> do fn:group_by(), let N = fn:count().") == ["p(2)"]
    assert derived("p(N) :- v(K, X), ok(_) |> do fn:group_by(), let N = fn:count().") == ["p(3)"]
    assert derived("p(N) :- v(K, X), ok(Y) |> do fn:group_by(), let N = fn:count().") == ["p(6)"]


def test_a_repeated_variable_is_respected() -> None:
    assert derived("q(1, 1). q(1, 2). p(N) :- q(X, X) |> do fn:group_by(), let N = fn:count().") == ["p(1)"]


def test_an_expression_in_the_premise_is_evaluated() -> None:
    assert derived("p(N) :- v(K, fn:plus(1, 1)) |> do fn:group_by(), let N = fn:count().") == ["p(1)"]


def test_count_distinct_looks_at_named_variables() -> None:
    assert derived("p(N) :- v(K, _) |> do fn:group_by(), let N = fn:count_distinct().") == ["p(2)"]


def test_a_temporal_fact_is_one_row_per_interval() -> None:
    decl = "Decl t(X) temporal. t(1)@[2026-01-01]. t(1)@[2026-01-03]. t(2)@[2026-01-02]. "
    assert derived(f"{decl}p(N) :- t(X)@[_, _] |> do fn:group_by(), let N = fn:count().") == ["p(3)"]
    assert derived(f"{decl}p(N) :- t(X)@[_, _], ok(_) |> do fn:group_by(), let N = fn:count().") == ["p(2)"]
    assert derived(f"{decl}p(N) :- t(X)@[S, _], ok(_) |> do fn:group_by(), let N = fn:count().") == ["p(3)"]


def test_every_rule_has_its_own_rows() -> None:
    rules = """
        p(/sum, S) :- v(K, X), ok(Y) |> do fn:group_by(), let S = fn:sum(X).
        p(/count, N) :- v(K, X), ok(_) |> do fn:group_by(), let N = fn:count().
    """
    assert derived(rules) == ["p(/count,3)", "p(/sum,16)"]


def test_results_take_part_in_later_derivation_of_the_same_predicate() -> None:
    rules = "p(N) :- v(K, X) |> do fn:group_by(), let N = fn:count(). p(Y) :- p(X), X < 5, Y = fn:plus(X, 1)."
    assert derived(f"Decl p(X) bound [/number]. {rules}") == ["p(3)", "p(4)", "p(5)"]


def test_a_repeated_key_keeps_the_least_value() -> None:
    assert derived("p(M) :- v(K, X) |> do fn:group_by(), let M = fn:collect_to_map(K, X).") == ["p([/a : 1, /b : 5])"]


def test_collecting_skips_rows_whose_expression_fails() -> None:
    rules = "d(0). d(2). p(L) :- d(X) |> do fn:group_by(), let L = fn:collect(fn:div(8, X))."
    assert derived(rules) == ["p([4])"]


# --- chains (D26) ----------------------------------------------------------------------------------------------------


def test_steps_run_one_after_the_other() -> None:
    rule = """
        p(M, T) :- v(K, X)
          |> do fn:group_by(K), let S = fn:sum(X)
          |> let D = fn:mult(S, 10)
          |> do fn:group_by(), let M = fn:max(D), let L = fn:collect(K)
          |> let T = fn:list:len(L).
    """
    assert derived(rule) == ["p(50,2)"]


def test_rows_between_steps_are_not_merged() -> None:
    rule = """
        p(N, S) :- v(K, X), X != 5
          |> do fn:group_by(X), let C = fn:count()
          |> do fn:group_by(C), let N = fn:count(), let S = fn:sum(X).
    """
    assert derived(rule) == ["p(2,3)"]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        # 1. a let variable is new
        ("p(X) :- v(_, X) |> let X = fn:plus(1, 1).", ["2:24 let defines X, which already has a value"]),
        ("p(Y) :- v(_, X) |> let Y = fn:plus(), let Y = fn:mult().", ["2:43 let defines Y, which already has a value"]),
        (
            "p(K, X) :- v(K, X) |> do fn:group_by(K), let X = fn:count().",
            ["2:46 let defines X, which already has a value"],
        ),
        (
            "p(K) :- v(K, X) |> do fn:group_by(K), let K = fn:count().",
            ["2:43 let defines K, which already has a value"],
        ),
        (  # also when grouping left it behind
            "p(K, X) :- v(K, X) |> do fn:group_by(K), let S = fn:sum(X) |> let X = fn:plus(S, 1).",
            ["2:67 let defines X, which already has a value"],
        ),
        (
            "p(K, X) :- v(K, X) |> do fn:group_by(K), let S = fn:sum(X) |> do fn:group_by(K), let X = fn:count().",
            ["2:86 let defines X, which already has a value"],
        ),
        # 2. what is used has a value
        ("p(Y) :- v(_, X) |> let Y = fn:plus(Z, 1).", ["2:36 Z has no value here"]),
        ("p(Y) :- v(_, X) |> let Y = fn:plus(_, 1).", ["2:36 _ has no value"]),
        ("p(Y) :- v(_, X) |> let Y = fn:plus(Z, 1), let Z = fn:plus(X, 1).", ["2:36 Z has no value here"]),
        ("p(N) :- v(_, X) |> do fn:group_by(), let N = fn:sum(Z).", ["2:53 Z has no value here"]),
        # 4. group_by
        ("p(N) :- v(K, X) |> do fn:group_by(1), let N = fn:count().", ["2:23 fn:group_by takes variables, not 1"]),
        ("p(N) :- v(K, X) |> do fn:group_by(_), let N = fn:count().", ["2:23 fn:group_by takes variables, not _"]),
        ("p(N) :- v(K, X) |> do fn:group_by([K]), let N = fn:count().", ["2:23 fn:group_by takes variables, not [K]"]),
        ("p(K, N) :- v(K, X) |> do fn:group_by(K, K), let N = fn:count().", ["2:41 fn:group_by names K twice"]),
        ("p(N) :- v(K, X) |> do fn:group_by(Z), let N = fn:count().", ["2:35 Z has no value here"]),
        ("p(K, Y) :- v(K, X) |> do fn:group_by(K), let Y = fn:plus(X, 1).", ["2:58 X has no value here"]),
        ("p(K, X) :- v(K, X) |> do fn:group_by(K), let N = fn:count().", ["2:6 X is neither grouped by nor computed"]),
        ("p(fn:plus(X, 1)) :- v(K, X) |> do fn:group_by(K).", ["2:11 X is neither grouped by nor computed"]),
        ("p(_) :- v(K, X) |> do fn:group_by(K).", ["2:3 _ in a head has no value"]),
        # 5. reducers
        (
            "p(A, B) :- l(L) |> let A = fn:list:len(L), let B = fn:sum(L).",
            ["2:52 fn:sum reduces many rows to one"],
        ),
        ("p(N) :- v(K, X) |> let N = fn:count().", ["2:28 fn:count works on the rows of a group, not here"]),
        (
            "p(N) :- v(K, X) |> do fn:group_by(), let N = fn:plus(fn:count(), 1).",
            ["2:54 fn:count works on the rows of a group, not here"],
        ),
        ("p(N) :- v(K, X) |> do fn:group_by(), let N = fn:count(X).", ["2:46 fn:count takes 0 arguments, not 1"]),
        ("p(N) :- v(K, X) |> do fn:group_by(), let N = fn:sum().", ["2:46 fn:sum takes 1 argument, not 0"]),
        ("p(N) :- v(K, X) |> do fn:group_by(), let N = fn:sum(K, X).", ["2:46 fn:sum takes 1 argument, not 2"]),
        (
            "p(N) :- v(K, X) |> do fn:group_by(), let N = fn:collect().",
            ["2:46 fn:collect takes at least 1 argument, not 0"],
        ),
        (
            "p(N) :- v(K, X) |> do fn:group_by(), let N = fn:collect_to_map(K).",
            ["2:46 fn:collect_to_map takes 2 arguments, not 1"],
        ),
        ("p(N) :- v(K, X) |> do fn:group_by(), let N = fn:cuont().", ["2:46 unknown function fn:cuont"]),
        ("p(N) :- v(K, X) |> do fn:group_by(), let N = fn:collect(fn:foo(X)).", ["2:57 unknown function fn:foo"]),
        # 6. do
        ("p(N) :- v(K, X) |> do fn:sort(X), let N = fn:count().", ["2:23 do takes fn:group_by, not fn:sort"]),
        # all of them
        (
            "p(A, B) :- v(K, X) |> do fn:group_by(1, Z), let A = fn:sum(), let K = fn:foo(X).",
            [
                "2:6 B is neither grouped by nor computed",
                "2:26 fn:group_by takes variables, not 1",
                "2:41 Z has no value here",
                "2:53 fn:sum takes 1 argument, not 0",
                "2:67 let defines K, which already has a value",
                "2:71 unknown function fn:foo",
                "2:78 X has no value here",
            ],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_transform(rule: str, found: list[str]) -> None:
    assert complaints(f"{BASE}\n{rule}") == found


def test_a_let_wants_a_function() -> None:
    assert len(complaints("n(1).\np(Y) :- n(X) |> let Y = 5.", stage="parse")) == 1


def test_a_misspelled_reducer() -> None:
    (diagnostic,) = refusal(f"{BASE}\np(N) :- v(K, X) |> do fn:group_by(), let N = fn:cuont().")
    assert diagnostic.fix == "did you mean fn:count?"


def test_what_remains_behind_do_is_said() -> None:
    (diagnostic,) = refusal(f"{BASE}\np(K, Y) :- v(K, X) |> do fn:group_by(K), let Y = fn:plus(X, 1).")
    assert diagnostic.fix == "behind do, only the grouping variables and the results of reducers remain"
    (diagnostic,) = refusal(f"{BASE}\np(Y) :- v(K, X) |> do fn:group_by(Z), let Y = fn:count().")
    assert diagnostic.fix == "group by K, X"


# --- any table -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3), st.integers(0, 1)), max_size=8))
@examples(60)
def test_reducers_agree_with_plain_arithmetic(table: list[tuple[int, int, int]]) -> None:
    rows = set(table)
    text = "Decl r(K, V, W) bound [/number, /number, /number]. one(1)."
    text += "".join(f"r({k}, {v}, {w}). " for k, v, w in rows)
    lets = "let N = fn:count(), let S = fn:sum(V), let A = fn:min(V), let B = fn:max(V), let L = fn:collect(V)"
    text += f"facts(K, N, S, A, B, L) :- r(K, V, _) |> do fn:group_by(K), {lets}."
    text += f"bindings(K, N, S, A, B, L) :- r(K, V, _), one(_) |> do fn:group_by(K), {lets}."
    by_fact: dict[int, list[int]] = defaultdict(list)
    by_binding: dict[int, set[int]] = defaultdict(set)
    for key, value, _ in rows:
        by_fact[key].append(value)
        by_binding[key].add(value)

    def expected(name: str, key: int, values: list[int]) -> str:
        values = sorted(values)
        return f"{name}({key},{len(values)},{sum(values)},{values[0]},{values[-1]},{values})"

    want = [expected("facts", key, values) for key, values in by_fact.items()]
    want += [expected("bindings", key, list(values)) for key, values in by_binding.items()]
    assert [fact for fact in facts(text) if fact[0] in "bf"] == sorted(want)
