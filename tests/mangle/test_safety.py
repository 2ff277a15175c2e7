"""The order in which premises run, and rules for which there is none (D2-D5)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle import printer
from manglecp.mangle.errors import AnalysisError
from tests.effort import examples
from tests.mangle.loading import complaints, facts, load, refusal


def order_of(rule: str, *others: str) -> list[str]:
    """The premises of the one rule, as they run."""
    (found,) = (r for r in load("\n".join([*others, rule]), bounds="off").rules if r.head.predicate == "p")
    return [printer.premise(premise) for premise in found.premises]


# --- order -----------------------------------------------------------------------------------------------------------

BASE = "n(1). n(2). n(3). e(1, 2). e(2, 3). l([1, 2])."


@pytest.mark.parametrize(
    ("body", "order"),
    [
        ("n(X), e(X, Y)", ["n(X)", "e(X, Y)"]),
        ("e(X, Y), n(X)", ["e(X, Y)", "n(X)"]),  # both could run: as written
        ("X < 2, n(X), Y = X", ["n(X)", "X < 2", "Y = X"]),  # at the first chance, before what follows
        ("!n(X), X < 5, e(X, Y)", ["e(X, Y)", "!n(X)", "X < 5"]),
        ("Z = fn:plus(Y, 1), Y = fn:plus(X, 1), n(X)", ["n(X)", "Y = fn:plus(X, 1)", "Z = fn:plus(Y, 1)"]),
        (":list:member(X, L), l(L)", ["l(L)", ":list:member(X, L)"]),
        ("n(fn:plus(X, 1)), n(X)", ["n(X)", "n(fn:plus(X, 1))"]),
        ("X = Y, Y = Z, n(Z)", ["n(Z)", "Y = Z", "X = Y"]),
        ("n(X), X = Y, Y = Z", ["n(X)", "X = Y", "Y = Z"]),
        ("!e(X, _), !e(_, X), n(X)", ["n(X)", "!e(X, _)", "!e(_, X)"]),
        ("X != Y, n(X), n(Y)", ["n(X)", "n(Y)", "X != Y"]),
        ("1 = X, X < 2", ["1 = X", "X < 2"]),
        ("[X, Y] = [Y, X], e(X, Y)", ["e(X, Y)", "[X, Y] = [Y, X]"]),
        ("n(X), n(X), X < 2, X < 2", ["n(X)", "n(X)", "X < 2", "X < 2"]),
        ("n(X), X = _", ["n(X)", "X = _"]),
    ],
)
def test_premises_run_as_written_unless_they_wait(body: str, order: list[str]) -> None:
    assert order_of(f"p() :- {body}.", BASE) == order


def test_a_long_body_in_the_wrong_order() -> None:
    equations = [f"X{i} = [X{i - 1}]" for i in range(1, 2_000)]
    assert order_of(f"p() :- {', '.join(reversed(equations))}, n(X0).", BASE) == ["n(X0)", *equations]


def test_a_guard_runs_before_what_it_guards() -> None:
    assert facts("n(0). n(5). p(Y) :- n(X), X != 0, Y = fn:div(10, X).") == ["n(0)", "n(5)", "p(2)"]
    assert len(complaints("n(0). n(5).\np(Y) :- n(X), Y = fn:div(10, X), X != 0.", stage="eval")) == 1


def test_the_order_decides_whether_an_interval_variable_is_known() -> None:
    decls = "Decl a(X) temporal. Decl b(X) temporal. a(/x)@[2026-01-03, 2026-01-04]. b(/y)@[2026-01-01, 2026-01-31]. "
    # a first: S is the start of a, and lies in b; b first: S is the start of b, and does not lie in a.
    assert "p()" in facts(f"{decls}p() :- a(X)@[S, _], b(Y)@[S, _].")
    assert "p()" not in facts(f"{decls}p() :- b(Y)@[S, _], a(X)@[S, _].")


# --- negation --------------------------------------------------------------------------------------------------------


def test_a_wildcard_under_negation_means_no_such_fact() -> None:
    text = f"{BASE} p(X) :- n(X), !e(X, _). q(X) :- n(X), !e(_, X). r() :- !e(_, _). s() :- !e(3, _)."
    assert [fact for fact in facts(text) if fact[0] in "pqrs"] == ["p(3)", "q(1)", "s()"]


def test_each_wildcard_stands_for_itself() -> None:
    assert facts("e(1, 2). p() :- !e(_, _).") == ["e(1,2)"]
    assert facts("e(1, 2). f(2, 2). p() :- e(_, _), f(_, _).") == ["e(1,2)", "f(2,2)", "p()"]


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("p(X) :- n(X), !e(X, Y).", "2:21 Y is bound nowhere outside the negation !e(X, Y)"),
        ("p() :- !e(X, Y).", "2:11 X, Y are bound nowhere outside the negation !e(X, Y)"),
        ("p(X) :- n(X), !n(fn:plus(Y, 1)).", "2:26 Y is bound nowhere outside the negation !n(fn:plus(Y, 1))"),
        ("p(X) :- n(X), !:list:member(Y, [X]).", "2:29 Y is bound nowhere outside the negation !:list:member(Y, [X])"),
    ],
)
def test_a_variable_that_only_a_negation_mentions(rule: str, found: str) -> None:
    assert complaints(f"{BASE}\n{rule}") == [found]


def test_the_fix_for_it_is_a_wildcard() -> None:
    (diagnostic,) = refusal(f"{BASE}\np(X) :- n(X), !e(X, Y).")
    assert diagnostic.fix == "write _ for 'no such fact at all', or bind Y in a positive premise"


def test_an_interval_variable_that_only_a_negation_mentions() -> None:
    text = "Decl t(X) temporal.\nn(1).\np(X) :- n(X), !t(X)@[S, _].\nq(X) :- n(X), !<-[D] t(X)."
    assert complaints(text) == [
        "3:22 S is bound nowhere outside the negation !t(X)@[S, _]",
        "4:19 D is bound nowhere outside the negation !<-[D] t(X)",
    ]


# --- what no order can save ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("p(X) :- X < 3.", ["2:9 X is bound by no premise that could run before X < 3"]),
        ("p(X) :- n(X), Y < 3.", ["2:15 Y is bound by no premise that could run before Y < 3"]),
        ("p(X) :- n(X), X != Y.", ["2:20 Y is bound by no premise that could run before X != Y"]),
        ("p(X) :- n(fn:plus(X, 1)).", ["2:19 X is bound by no premise that could run before n(fn:plus(X, 1))"]),
        ("p(X) :- e(X, fn:plus(X, 1)).", ["2:22 X is bound by no premise that could run before e(X, fn:plus(X, 1))"]),
        ("p(X) :- n(X), [X, Y] = [1, 2].", ["2:19 Y is bound by no premise that could run before [X, Y] = [1, 2]"]),
        ("p(X) :- l([X, 2]).", ["2:12 X is bound by no premise that could run before l([X, 2])"]),
        ("p(X) :- :list:member(X, L).", ["2:25 L is bound by no premise that could run before :list:member(X, L)"]),
        ("p(X) :- n(X), _ = _.", ["2:15 _ = _ needs a value where _ stands"]),
        ("p(X) :- n(X), X < _.", ["2:19 X < _ needs a value where _ stands"]),
        ("p(X) :- n(X), X != _.", ["2:20 X != _ needs a value where _ stands"]),
        ("p(X) :- n(X), n(fn:plus(_, 1)).", ["2:25 n(fn:plus(_, 1)) needs a value where _ stands"]),
        ("p(X) :- n(X), :match_cons(_, H, T).", ["2:27 :match_cons(_, H, T) needs a value where _ stands"]),
        (
            "p(X) :- X = Y, Y = X.",
            [
                "2:9 X, Y are bound by no premise that could run before X = Y",
                "2:16 Y, X are bound by no premise that could run before Y = X",
            ],
        ),
        (
            "p(X) :- n(X), Y < Z, Z < 3.",
            [
                "2:15 Y, Z are bound by no premise that could run before Y < Z",
                "2:22 Z is bound by no premise that could run before Z < 3",
            ],
        ),
        ("p(X, Y) :- n(X).", ["2:6 Y in the head is bound by no premise"]),
        ("p(fn:plus(Y, 1)) :- n(X).", ["2:11 Y in the head is bound by no premise"]),
        ("p(_) :- n(X).", ["2:3 _ in a head has no value"]),
        ("p([_]) :- n(X).", ["2:4 _ in a head has no value"]),
        ("p(X).", ["2:3 a fact has no variables, found X"]),
        ("p(X, _).", ["2:3 a fact has no variables, found X", "2:6 a fact has no variables, found _"]),
        ("p([1, X]).", ["2:7 a fact has no variables, found X"]),
    ],
)
def test_unsafe_rules_name_the_variable(rule: str, found: list[str]) -> None:
    assert complaints(f"{BASE}\n{rule}") == found


def test_a_variable_that_waits_for_another_waiting_premise() -> None:
    first, _ = refusal("p(X) :- X = fn:plus(Y, 1), Y = fn:minus(X, 1).")
    assert first.fix == "Y also occurs in Y = fn:minus(X, 1), which waits too; bind Y in a positive premise"


def test_names_and_safety_are_reported_together() -> None:
    assert complaints("p(X) :- nowhere(X), !gone(Y), fn:foo(X) = Z, :bar(W).") == [
        "1:9 unknown predicate nowhere",
        "1:22 unknown predicate gone",
        "1:27 Y is bound nowhere outside the negation !gone(Y)",
        "1:31 unknown function fn:foo",
        "1:46 unknown built-in predicate :bar",
    ]


# --- output positions of built-ins -----------------------------------------------------------------------------------


def test_a_bound_variable_at_an_output_is_a_test() -> None:
    assert facts("n(1). n(5). l([1, 2]). p(X) :- n(X), l(L), :list:member(X, L).")[-1] == "p(1)"
    assert facts("l([1, 1]). l([1, 2]). p(L) :- l(L), :match_cons(L, H, T), :match_cons(T, H, _).")[-1] == "p([1, 1])"


@pytest.mark.parametrize(
    ("premise", "place"),
    [(":list:member(1, L)", "2:28"), (":match_cons(L, fn:plus(1, 1), _)", "2:30"), (":match_cons(L, _, [])", "2:33")],
)
def test_a_constant_at_an_output_is_refused(premise: str, place: str) -> None:
    (found,) = complaints(f"l([1]).\np(L) :- l(L), {premise}.")
    assert found.startswith(f"{place} argument ")
    assert found.endswith("is an output and takes a variable")


def test_in_a_negation_it_is_a_test() -> None:
    assert facts("l([1]). l([2]). p(L) :- l(L), !:list:member(1, L).")[-1] == "p([2])"
    assert facts("l([1]). l([2]). p(L) :- l(L), !:match_cons(L, fn:plus(1, 0), _).")[-1] == "p([2])"


# --- modes -----------------------------------------------------------------------------------------------------------


def test_an_input_position_does_not_bind() -> None:
    text = 'Decl link(X, Y) descr [mode("+", "-")].\nlink(1, 2).\nn(1).\n'
    assert complaints(f"{text}p(Y) :- link(X, Y).") == [
        "4:14 X is bound by no premise that could run before link(X, Y)"
    ]
    assert complaints(f"{text}p(Y) :- link(_, Y).") == ["4:14 link(_, Y) needs a value where _ stands"]
    assert "p(2)" in facts(f"{text}p(Y) :- link(X, Y), n(X).")
    assert "p(2)" in facts(f"{text}p(Y) :- link(1, Y).")


def test_a_position_with_two_modes_binds() -> None:
    text = 'Decl link(X, Y) descr [mode("+", "-"), mode("-", "+")].\nlink(1, 2).\n'
    assert "p(1,2)" in facts(f"{text}p(X, Y) :- link(X, Y).")


def test_negated_atoms_are_not_asked_for_inputs() -> None:
    text = 'Decl link(X, Y) descr [mode("+", "-")].\nlink(1, 2).\nn(2).\nn(3).\n'
    assert facts(f"{text}p(X) :- n(X), !link(_, X).")[-1] == "p(3)"


def test_unless_the_predicate_is_deferred() -> None:
    text = 'Decl double(X, Y) descr [deferred(), mode("+", "-")].\ndouble(X, Y) :- Y = fn:mult(X, 2).\nn(2).\n'
    assert complaints(f"{text}p(X) :- n(X), !double(_, X).", bounds="off") == [
        "4:23 !double(_, X) needs a value where _ stands"
    ]
    assert facts(f"{text}p(X) :- n(X), !double(X, _).", bounds="off") == ["n(2)"]


def test_head_variables_at_input_positions_are_given() -> None:
    text = 'Decl big(X) descr [deferred(), mode("+")].\nbig(X) :- X > 3.\nn(1). n(5).\np(X) :- n(X), big(X).'
    assert facts(text, bounds="off")[-1] == "p(5)"
    assert complaints("Decl big(X).\nbig(X) :- X > 3.") == ["2:11 X is bound by no premise that could run before X > 3"]


def test_a_mode_alone_gives_no_value() -> None:
    text = 'Decl p(X, Y) descr [mode("+", "-")].\nq(1).\np(X, Y) :- q(Y).'
    assert complaints(text, stage="eval") == ["3:1 variable X has no value"]


# --- reflects --------------------------------------------------------------------------------------------------------

ANIMAL = "Decl animal(X) descr [reflects(/animal)] bound [/animal]. animal(/animal/dog). n(/animal/cat). n(/x)."


@pytest.mark.parametrize(
    ("body", "order"),
    [
        ("n(X), animal(X)", ["n(X)", ":match_prefix(X, /animal)"]),
        ("animal(X), n(X)", ["animal(X)", "n(X)"]),
        ("X = /animal/cow, animal(X)", ["X = /animal/cow", ":match_prefix(X, /animal)"]),
        ("animal(/animal/cow)", ["animal(/animal/cow)"]),
        ("animal(_)", ["animal(_)"]),
        ("n(X), !animal(X)", ["n(X)", "!animal(X)"]),
    ],
)
def test_a_reflecting_predicate_tests_a_bound_variable_by_its_prefix(body: str, order: list[str]) -> None:
    assert order_of(f"p() :- {body}.", ANIMAL) == order


def test_a_reflecting_predicate_that_takes_an_input_is_always_a_test() -> None:
    text = 'Decl animal(X) descr [reflects(/animal), mode("+")] bound [/animal]. n(/animal/cat).'
    assert order_of("p() :- animal(X), n(X).", text) == ["n(X)", ":match_prefix(X, /animal)"]


# --- functions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("p(Y) :- n(X), Y = fn:mod(X).", "2:19 fn:mod takes 2 arguments, not 1"),
        ("p(Y) :- n(X), Y = fn:minus().", "2:19 fn:minus takes at least 1 argument, not 0"),
        ("p(X) :- n(X), n(fn:div()).", "2:17 fn:div takes at least 1 argument, not 0"),
        ("p(X) :- n(X), !n(fn:sqrt(X, X)).", "2:18 fn:sqrt takes 1 argument, not 2"),
        ("p(X) :- n(X), fn:sqrt() != X.", "2:15 fn:sqrt takes 1 argument, not 0"),
        ("p(X) :- n(X), Y = fn:map(X).", "2:19 fn:map takes keys and values in pairs, not 1 argument"),
        ("p(X) :- n(X), Y = fn:struct(/a, 1, /b).", "2:19 fn:struct takes keys and values in pairs, not 3 arguments"),
        ("p(Y) :- n(X) |> let Y = fn:mod(X).", "2:25 fn:mod takes 2 arguments, not 1"),
        ("p(Y) :- n(X), Y = fn:list:len([fn:foo()]).", "2:32 unknown function fn:foo"),
        ("p(fn:mod(1)).", "2:3 fn:mod takes 2 arguments, not 1"),
        ("p(fn:foo()).", "2:3 unknown function fn:foo"),
        ("p(X) :- n(X), :lt(X).", "2:15 :lt takes 2 arguments, not 1"),
        ("p(N) :- n(X), N = fn:count().", "2:19 fn:count works on the rows of a group, not here"),
    ],
)
def test_functions_have_a_name_and_an_arity(rule: str, found: str) -> None:
    assert complaints(f"{BASE}\n{rule}") == [found]


@pytest.mark.parametrize("head", ["p(fn:foo(X))", "p(fn:mod(X))", "p(fn:struct(/a))", "p(fn:pair(X))", "p(fn:map(X))"])
def test_in_a_head_they_are_looked_at_when_the_rule_fires(head: str) -> None:
    assert len(complaints(f"n(1).\n{head} :- n(X).", stage="eval")) == 1
    assert facts(f"Decl none(X). n(1). {head} :- none(X).") == ["n(1)"]


def test_under_an_annotation_they_are_looked_at_when_they_are_called() -> None:
    decls = "Decl t(X) temporal. Decl none(X). n(1)."
    assert len(complaints(f"{decls}\np(X) :- n(X), t(fn:foo(X))@[now].", stage="eval")) == 1
    assert facts(f"{decls} p(X) :- none(X), t(fn:foo(X))@[now].") == ["n(1)"]


# --- any rule --------------------------------------------------------------------------------------------------------
#
# Small rules without functions have an obvious meaning: every assignment of the values at hand that makes each premise
# true. The rule is safe if every variable gets its value from an atom, a constant or an equation with a safe variable.

Premise: TypeAlias = tuple[str, tuple[str, ...]]
VALUES: Final = range(4)
FACTS: Final[dict[str, set[tuple[int, ...]]]] = {"n": {(0,), (1,), (2,)}, "e": {(0, 1), (1, 1), (1, 2), (3, 0)}}
COMPARED: Final[dict[str, Any]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "!=": ne}

_terms = st.sampled_from(["A", "B", "C", "0", "1", "3"])
_columns = st.one_of(_terms, _terms, st.just("_"))
_premises: st.SearchStrategy[Premise] = st.one_of(
    st.tuples(st.sampled_from(["n", "n", "!n"]), st.tuples(_columns)),
    st.tuples(st.sampled_from(["e", "e", "!e"]), st.tuples(_columns, _columns)),
    st.tuples(st.sampled_from([*COMPARED, "="]), st.tuples(_terms, _terms)),
    st.tuples(st.sampled_from(["member", "!member"]), st.tuples(st.sampled_from("ABC"), _terms, _terms)),
)
_bodies = st.lists(_premises, min_size=1, max_size=5)


def written(premise: Premise) -> str:
    name, args = premise
    if name in COMPARED:
        return f"{args[0]} {name} {args[1]}"
    if name.endswith("member"):
        return f"{name.removesuffix('member')}:list:member({args[0]}, [{args[1]}, {args[2]}])"
    return f"{name}({', '.join(args)})"


def variables(premises: Iterable[Premise]) -> list[str]:
    return sorted({arg for _, args in premises for arg in args if arg in ("A", "B", "C")})


def is_safe(premises: list[Premise]) -> bool:
    bound: set[str] = set()
    for _ in premises:
        for name, args in premises:
            known = [arg.isdigit() or arg in bound for arg in args]
            if name in ("n", "e") or (name == "=" and any(known)):
                bound |= set(args)
            elif name == "member" and all(known[1:]):
                bound.add(args[0])
    return bound.issuperset(variables(premises))


def holds(premise: Premise, values: dict[str, int]) -> bool:
    name, args = premise
    known = [None if arg == "_" else values.get(arg, int(arg) if arg.isdigit() else 0) for arg in args]
    if name in COMPARED:
        return bool(COMPARED[name](*known))
    positive = name.removeprefix("!")
    if positive == "member":
        found = known[0] in known[1:]
    else:
        found = any(all(k in (None, v) for k, v in zip(known, fact, strict=True)) for fact in FACTS[positive])
    return found != name.startswith("!")


def meaning(premises: list[Premise]) -> list[str]:
    names = variables(premises)
    found = []
    for row in product(VALUES, repeat=len(names)):
        if all(holds(premise, dict(zip(names, row, strict=True))) for premise in premises):
            found.append(f"p({','.join(map(str, row))})")
    return sorted(found)


@given(_bodies)
@examples(300)
def test_a_rule_means_what_its_premises_say_in_any_order(premises: list[Premise]) -> None:
    given_facts = "".join(f"{name}({', '.join(map(str, f))}). " for name, rows in FACTS.items() for f in sorted(rows))
    rule = f"p({', '.join(variables(premises))}) :- {', '.join(map(written, premises))}."
    if is_safe(premises):
        assert [fact for fact in facts(given_facts + rule) if fact.startswith("p")] == meaning(premises)
    else:
        with pytest.raises(AnalysisError):
            load(given_facts + rule)


_CALCULATIONS: Final = [
    "n(A)", "e(A, B)", "e(B, C)", "!n(C)", "A < C", "B = fn:plus(A, 1)", "C = fn:mult(B, 2)", "fn:minus(C, B) = D",
    "n(fn:plus(B, 1))", "!e(A, fn:plus(A, 1))", "D != A", "L = [A, B]", ":list:member(D, L)", ":match_cons(L, A, _)",
    "P = fn:pair(A, L)", ":match_pair(P, D, L)", "fn:list:len(L) = 2", "<-[1d] t(A)", "t(B)@[now]", "!t(C)@[_, _]",
    "A = B", "D = D", "5 > C", "!:list:member(C, L)",
]  # fmt: skip


@given(st.lists(st.sampled_from(_CALCULATIONS), min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
@examples(200)
def test_no_order_of_premises_changes_the_result(premises: list[str], random: Any) -> None:
    given_facts = "".join(f"n({i}). e({i}, {i + 1}). t({i})@[2026-01-15, _]. " for i in range(3)) + "e(1, 1). "

    def outcome(body: list[str]) -> object:
        names = sorted({name for name in "ABCDLP" if any(name in premise for premise in body)})
        try:
            return facts(f"{given_facts} p({', '.join(names)}) :- {', '.join(body)}.", bounds="off")
        except AnalysisError as error:
            return sorted(d.message for d in error.diagnostics)

    shuffled = random.sample(premises, len(premises))
    assert outcome(shuffled) == outcome(premises)
