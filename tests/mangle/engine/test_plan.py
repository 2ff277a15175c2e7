"""Premises may be visited in another order only if nobody can tell."""

from __future__ import annotations

import pytest

from tests.mangle.engine.changing import NOW, Bounds, load
from tests.mangle.engine.splitting import disagreement, fresh

TYPED = """
Decl a(X) bound [/number].
Decl b(X) bound [/number].
Decl c(X, Y) bound [/number, /number].
Decl any(X) bound [/any].
Decl p(X) bound [/number].
Decl q(X) bound [/any].
Decl none(X) bound [/number].
"""
UNTYPED = "Decl a(X). Decl b(X). Decl c(X, Y). Decl any(X). Decl p(X). Decl q(X). Decl none(X).\n"
FACTS = 'a(0). a(2). b(2). b(3). c(0, 2). c(2, 2). any(1). any("x"). any(/n).\n'

BARRIERS = [
    # the test behind the division cannot come to its rescue, the one in front can
    ("p(X) :- a(X), Y = fn:div(6, X), b(X).", "eval"),
    ("p(X) :- a(X), b(X), Y = fn:div(6, X).", None),
    ("p(X) :- a(X), X != 0, Y = fn:div(6, X).", None),
    ("p(X) :- a(X), Y = fn:div(6, X), X != 0.", "eval"),
    ("p(X) :- a(X), !b(X), Y = fn:div(6, X).", "eval"),
    ("p(X) :- a(X), X != 0, !c(X, fn:div(6, X)).", None),
    ("p(X) :- a(X), !c(X, fn:div(6, X)).", "eval"),
    # a premise without facts hides only what stands behind it
    ("p(X) :- a(X), Y = fn:div(6, X), none(Y).", "eval"),
    ("p(X) :- none(Y), a(X), Z = fn:div(6, X).", None),
    ("p(X) :- a(X), none(Y), Z = fn:div(6, X).", None),
    ("p(X) :- a(X), c(X, fn:div(6, X)), none(X).", "eval"),
    ("p(X) :- a(X), none(fn:div(6, X)).", "eval"),
    ("p(X) :- a(X), !none(fn:div(6, X)).", "eval"),
    ("p(X) :- a(X), b(X), none(fn:div(6, X)).", None),
    # two barriers
    ("p(X) :- b(X), Y = fn:div(6, fn:minus(X, 1)), a(Z), W = fn:div(1, Z).", "eval"),
    ("p(X) :- b(X), Y = fn:div(6, fn:minus(X, 1)), a(Z), Z > 0, W = fn:div(1, Z).", None),
    # in heads and transforms
    ("p(fn:div(6, X)) :- a(X).", "eval"),
    ("p(fn:div(6, X)) :- a(X), b(X).", None),
    ("p(Y) :- a(X) |> let Y = fn:div(6, X).", "eval"),
    ("p(Y) :- a(X), X > 1 |> let Y = fn:div(6, X).", None),
    ("p(N) :- a(X), Y = fn:div(6, X) |> do fn:group_by(), let N = fn:count().", "eval"),
    # recursion reaches zero
    ("p(X) :- b(X). p(Y) :- p(X), Y = fn:minus(X, 1), Z = fn:div(6, Y).", "eval"),
    ("p(X) :- b(X). p(Y) :- p(X), X > 1, Y = fn:minus(X, 1), Z = fn:div(6, Y).", None),
]
KINDS = [
    ("q(X) :- any(X), X < 3.", "eval"),
    ("q(X) :- any(X), a(Y), X < Y, none(Y).", "eval"),
    ("q(X) :- any(X), none(Y), X < Y.", None),
    ("q(X) :- any(X), X = 1, X < 3.", None),
    ("q(X) :- any(X), X < 3, X = 1.", "eval"),
    ('q(X) :- any(X), :string:starts_with(X, "x").', None),
    ('q(X) :- any(X), any(Y), :string:starts_with("x", Y).', "eval"),
    ("q(X) :- any(X), :match_prefix(X, /n).", None),
    ("q(X) :- any(X), any(Y), :match_prefix(Y, X).", "eval"),
    ("q(Y) :- any(X), Y = fn:plus(X, 1).", "eval"),
    ("q(Y) :- any(X), b(X), Y = fn:plus(X, 1).", None),
]


@pytest.mark.no_cover
@pytest.mark.parametrize(("rules", "error"), BARRIERS)
@pytest.mark.parametrize("bounds", ["error", "off"])
def test_no_premise_passes_one_that_may_fail(rules: str, error: str | None, bounds: Bounds) -> None:
    program = load((TYPED if bounds == "error" else UNTYPED) + FACTS + rules, bounds)
    assert fresh(program, NOW).error == error
    assert disagreement(program, NOW, 0, splits=25) is None


# Each fails for some values, and what stands behind it finds nothing.
RISKS = [
    "X < Y",
    "X != Y, X >= 1",
    ":match_prefix(X, Y)",
    "!:match_prefix(X, Y)",
    ":string:contains(X, Y)",
    "!:string:ends_with(X, Y)",
    ":string:has_word(X, Y)",
    '!:string:matches(X, fn:string:concat(X, Y, "("))',
    "_ = fn:string:upper(X)",
    "_ = fn:string:len(X)",
    "_ = fn:string:split(X, Y)",
    ":is_string(X), _ = fn:plus(X, 1)",
    "_ = fn:plus(X, 1)",
    "fn:mult(X, Y) != 3",
    "fn:div(6, X) != 0",
    "_ = fn:mod(6, X)",
    "_ = fn:list:len(X)",
    "_ = fn:list:get([X], Y)",
    "_ = fn:list:cons(X, Y)",
    "_ = fn:name:root(X)",
    "_ = fn:name:to_string(X)",
    "_ = fn:string:concat(X, [Y])",
    "_ = fn:time:parse_rfc3339(fn:string:concat(X, Y))",
    "_ = fn:map(X, 1, Y, 2)",
    "_ = fn:float:div(1.0, X)",
    "b(fn:minus(X, Y))",
    "!b(fn:minus(X, Y))",
]


@pytest.mark.parametrize("risk", RISKS)
def test_every_risk_keeps_its_place(risk: str) -> None:
    for rule, error in (
        (f"q(X) :- any(X), any(Y), {risk}, none(X).", "eval"),
        (f"q(X) :- any(X), {risk}, any(Y), none(X).", "eval"),
        (f"q(X) :- any(X), any(Y), {risk}, !any(X).", "eval"),
        (f"q(X) :- none(X), any(Y), {risk}.", None),
        (f"q(X) :- any(X), any(Y), none(X), {risk}.", None),
        (f"q(X) :- any(X), !any(X), any(Y), {risk}.", None),
    ):
        program = load(UNTYPED + FACTS + rule, "off")
        assert fresh(program, NOW).error == error, rule
        assert disagreement(program, NOW, 0, splits=4) is None, rule


@pytest.mark.parametrize(("rules", "error"), KINDS)
def test_kinds_that_do_not_fit(rules: str, error: str | None) -> None:
    program = load(UNTYPED + FACTS + rules, "off")
    assert fresh(program, NOW).error == error
    assert disagreement(program, NOW, 0, splits=25) is None


# --- time ----------------------------------------------------------------------------------------------------------

ELSEWHERE = [
    # the newest fact, the head's own value or a negated one binds X before the premise that has only numbers
    "q(X) :- any(X). p(X) :- a(X), X < 5, q(X). q(X) :- p(X), q(X).",
    "q(X) :- any(X). p(X) :- a(X), fn:plus(X, 1) < 5, q(X). q(X) :- p(X), q(X).",
    "q(X) :- any(X). p(X) :- a(X), Y = fn:plus(X, 1), Y > 0, q(X). q(X) :- p(X), q(X).",
    "q(X) :- any(X). p(X) :- a(X), c(fn:plus(X, 0), Y), q(X). q(X) :- p(X), q(X).",
    "q(X) :- any(X). p(X) :- a(X), !b(fn:mult(X, 2)), q(X). q(X) :- p(X), q(X).",
    "q(X) :- any(X). q(X) :- a(X), X < 5, !none(X).",
    "q(X) :- any(X), !none(3). q(X) :- a(X), Y = fn:plus(X, 1), !none(Y).",
    "q(X) :- a(X), X < 5, !any(X).",
    "q(X) :- a(X), fn:plus(X, 1) > 0, !any(X), !none(X).",
    "q(X) :- any(X). q(X) :- c(X, Y), X <= Y, !none(Y) |> do fn:group_by(X), let N = fn:count().",
    # the same value under two names
    "q(X) :- any(X). p(X) :- a(X), X = Y, Y < 5, q(Y). q(X) :- p(X), q(X).",
    "q(X) :- any(X). p(X) :- X = Y, q(Y), a(X), Y < 5. q(X) :- p(X), q(X).",
]


@pytest.mark.no_cover
@pytest.mark.parametrize("rules", ELSEWHERE)
def test_values_of_other_kinds_arrive_first(rules: str) -> None:
    """A premise is harmless only behind the ones that make it so."""
    program = load(TYPED + FACTS + rules)
    assert fresh(program, NOW).error is None
    for seed in range(4):
        assert disagreement(program, NOW, seed, splits=10) is None


TIMES = """
Decl up(X) temporal bound [/name].
Decl shift(X) temporal bound [/name].
Decl who(X) bound [/name].
Decl at(T) bound [/time].
Decl out(X, T) bound [/name, /time].
Decl span(X, S, E) bound [/name, /time, /time].
Decl seen(X) temporal bound [/name].
Decl calm(X) bound [/name].
up(/a)@[2026-01-01, 2026-01-10]. up(/a)@[2026-01-12, 2026-01-20]. up(/b)@[2026-01-05]. up(/c)@[_, 2026-01-04].
shift(/a)@[2026-01-01, 2026-01-20]. shift(/b)@[2026-01-05, 2026-01-06]. shift(/c)@[_, _].
who(/a). who(/b).
at(fn:time:parse_rfc3339("2026-01-05T00:00:00Z")). at(fn:time:parse_rfc3339("2026-01-12T00:00:00Z")).
"""


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("rule", "want"),
    [
        # at the second premise S is known: it has to lie within, and does not bind
        ("span(X, S, E) :- up(X)@[S, E], shift(X)@[S, F].", 4),
        ("span(X, S, F) :- up(X)@[S, E], shift(X)@[S, F].", 4),
        ("span(X, S, E) :- shift(X)@[S, E], up(X)@[S, F].", 3),
        ("span(X, S, E) :- up(X)@[S, E], shift(X)@[S, E].", 4),
        ("span(X, S, E) :- shift(X)@[S, E], up(X)@[S, E].", 0),
        ("out(X, T) :- up(X)@[T].", 1),
        ("out(X, T) :- at(T), up(X)@[T].", 3),
        ("out(X, T) :- up(X)@[T], at(T).", 1),
        ("out(X, T) :- up(X)@[T, _], at(T).", 2),
        ("out(X, T) :- at(T), up(X)@[T, _].", 3),
        ("out(X, T) :- at(T), up(X)@[T, T].", 3),
        ("out(X, T) :- who(X), at(T), up(X)@[T, _], shift(X)@[_, T].", 3),
        ("seen(X)@[S, E] :- up(X)@[S, E], who(X), !shift(X)@[E].", None),
        ("seen(X)@[S, E] :- up(X)@[S, E]. seen(X)@[T, E] :- seen(X)@[S, E], at(T), T > S.", None),
        ("calm(X) :- who(X), !<-[5d] up(X).", None),
        ("calm(X) :- who(X), [-[2d] up(X).", 1),
        ("calm(X) :- at(T), <-[T, 0s] up(X), who(X).", None),
    ],
)
def test_roles_of_interval_variables(rule: str, want: int | None) -> None:
    program = load(TIMES + rule)
    answer = fresh(program, NOW)
    assert disagreement(program, NOW, 1, splits=25) is None
    if want is not None:
        assert answer.derived == want
