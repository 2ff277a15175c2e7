"""How many rules have an instance: quickly, and always what rule coverage says."""

from __future__ import annotations

from random import Random

import pytest

from manglecp.base.source import Source
from manglecp.mangle.engine import evaluate
from manglecp.mangle.errors import MangleError
from manglecp.mangle.explain.coverage import RuleUsage
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.externals import External
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import program_facts
from manglecp.mangle.program import Program
from tests.mangle.engine.programs import NOW, made
from tests.mangle.engine.splitting import LIMITS, externals_of

pytestmark = pytest.mark.no_cover

RULES = """
Decl asked(X) bound [/string].
Decl at(X) temporal bound [/string].
both(X) :- asked(X).
both(X) :- known(X).
known("k").
from_base(X) :- known(X).
late(X) :- <-[0s, 5m] at(X).
never(X) :- asked(X), X = "never".
many(N) :- both(X) |> do fn:group_by(), let N = fn:count().
unless(X) :- known(X), !asked(X).
"""


def count(*facts: Fact) -> int:
    return Program.load([Source("a.mg", RULES)]).base().evaluate(facts, now=NOW).rules_fired()


def test_a_rule_counts_once_however_much_it_derives_and_even_if_others_derive_the_same() -> None:
    quiet = 4  # both from known, from_base, many, unless
    assert count() == quiet
    assert count(Fact("asked", ("x",)), Fact("asked", ("y",))) == quiet + 1
    assert count(Fact("asked", ("k",))) == quiet + 1 - 1  # both(k) twice; unless(k) no more
    assert count(Fact("asked", ("never",))) == quiet + 2
    assert count(Fact("at", ("x",), (NOW, NOW))) == quiet + 1
    assert count(Fact("at", ("x",), (0, 0))) == quiet


@pytest.mark.parametrize("batch", range(4))
def test_it_agrees_with_rule_coverage_whatever_came_with_the_request(batch: int) -> None:
    compared = 0
    for seed in range(batch * 30, (batch + 1) * 30):
        program = made(seed).loaded()
        if program is None:
            continue
        rng = Random(seed)
        try:
            facts = list(program_facts(program, NOW))
            extra = [fact for fact in facts if rng.random() < 0.5]
            bare = Program(program.predicates, program.rules, [], program.components, [])
            given_to_base = [fact for fact in facts if fact not in extra]
            base = bare.base(given_to_base, limits=LIMITS, check=False, externals=externals_of(program))
            for given in ((), extra, extra[:1]):  # the same base answers all of them
                result = base.evaluate(given, now=NOW, limits=LIMITS, check=False)
                assert result.rules_fired() == result.explainer.coverage().count("fired"), (seed, len(given))
                compared += 1
        except MangleError:
            continue
    assert compared > 10


WITH_EXTERNALS = """
Decl twice(X, Y) descr [external(), mode("+", "-")] bound [/number, /number].
Decl start(X) bound [/number].
Decl seen(X) temporal bound [/number].
reach(X) :- start(X).
reach(Y) :- reach(X), twice(X, Y), X < 8.
big(X) :- reach(X), X > 100.
odd(X) :- reach(X), !twice(X, 4).
late(Y)@[S, E] :- seen(X)@[S, E], twice(X, Y).
ended(Y)@[E, S] :- seen(X)@[S, E], twice(X, Y).
total(N) :- reach(X), twice(X, _) |> do fn:group_by(), let N = fn:count().
plain(X) :- start(X), X > 5.
"""


@pytest.mark.parametrize(
    ("facts", "fired"),
    [
        ((), 0),
        ((Fact("start", (9,)),), 4),  # reach of start, odd, total, plain
        ((Fact("start", (1,)),), 4),  # both of reach, odd, total
        ((Fact("seen", (1,), (1, 2)),), 1),  # late; ended would end before it starts
        ((Fact("seen", (1,), (2, 2)),), 2),
    ],
)
def test_rules_with_external_predicates_are_counted_without_rule_coverage(
    facts: tuple[Fact, ...], fired: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Program.load([Source("a.mg", WITH_EXTERNALS)]).base(
        externals={"twice": External(lambda inputs: [(inputs[0] * 2,)])}
    )
    result = base.evaluate(facts, now=NOW)
    assert result.explainer.coverage().count("fired") == fired
    result = base.evaluate(facts, now=NOW)
    monkeypatch.setattr(RuleUsage, "_count_facts", None)  # it searches all instances of a rule
    assert result.rules_fired() == fired


def test_only_merged_and_deferred_predicates_need_rule_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    Decl next(X, Y) descr [deferred(), mode("+", "-")] bound [/number, /number].
    next(X, Y) :- Y = fn:plus(X, 1).
    next(X, Y) :- X > 100, Y = 0.
    p(Y) :- q(X), next(X, Y).
    q(1).
    r(X) :- q(X), X > 5.
    """
    counted: list[str] = []
    count_facts = RuleUsage._count_facts

    def count(usage: RuleUsage, shape: Shape) -> int:
        counted.append(shape.rule.head.predicate)
        return count_facts(usage, shape)

    monkeypatch.setattr(RuleUsage, "_count_facts", count)
    program = Program.load([Source("a.mg", text)])
    assert evaluate(program, now=NOW).rules_fired() == 2
    assert counted == ["next", "next"]
