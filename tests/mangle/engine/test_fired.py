"""How many rules have an instance: quickly, and always what rule coverage says."""

from __future__ import annotations

from random import Random

import pytest

from manglecp.base.source import Source
from manglecp.mangle.errors import MangleError
from manglecp.mangle.externals import External
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import program_facts
from manglecp.mangle.program import Program
from tests.mangle.engine.programs import NOW, made
from tests.mangle.engine.splitting import LIMITS

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
            base = bare.base([fact for fact in facts if fact not in extra], limits=LIMITS, check=False)
            for given in ((), extra, extra[:1]):  # the same base answers all of them
                result = base.evaluate(given, now=NOW, limits=LIMITS, check=False)
                assert result.rules_fired() == result.explainer.coverage().count("fired"), (seed, len(given))
                compared += 1
        except MangleError:
            continue
    assert compared > 10


def test_externals_do_not_matter() -> None:
    text = """
    Decl twice(X, Y) descr [external(), mode("+", "-")] bound [/number, /number].
    p(Y) :- q(X), twice(X, Y).
    q(1).
    r(X) :- q(X), X > 5.
    """
    program = Program.load([Source("a.mg", text)])
    base = program.base(externals={"twice": External(lambda inputs: [(inputs[0] * 2,)])})
    assert base.evaluate(now=NOW).rules_fired() == 1
