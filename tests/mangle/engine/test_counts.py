"""What a base remembers of counting changes no count, and an evaluation leaves nothing for the collector."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest

from manglecp.base.source import Source
from manglecp.mangle.errors import LimitError, MangleError
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import Limits, program_facts
from manglecp.mangle.program import Program
from tests.mangle.engine.programs import NOW, made
from tests.mangle.engine.splitting import LIMITS

RULES = """
Decl asked(X) bound [/string].
known("k"). known("l").
twice(X, X) :- known(X).
echo(X) :- asked(X).
"""


@pytest.mark.parametrize("batch", range(3))
def test_a_base_that_was_used_counts_as_a_new_one(batch: int) -> None:
    compared = 0
    for seed in range(batch * 30, (batch + 1) * 30):
        program = made(seed).loaded()
        if program is None:
            continue
        rng = Random(seed)
        try:
            facts = list(program_facts(program, NOW))
            bare = Program(program.predicates, program.rules, [], program.components, [])
            used = bare.base(facts, limits=LIMITS)
            for _ in range(3):
                extra = [fact for fact in facts if rng.random() < 0.3]
                found = used.evaluate(extra, now=NOW, limits=LIMITS).statistics
                assert found == bare.base(facts, limits=LIMITS).evaluate(extra, now=NOW, limits=LIMITS).statistics
                compared += 1
        except MangleError:
            continue
    assert compared > 10


def test_the_limit_is_exact_however_often_it_is_asked() -> None:
    base = Program.load([Source("a.mg", RULES)]).base()
    facts = [Fact("asked", ("x",))]
    for _ in range(3):
        assert base.evaluate(facts, now=NOW, limits=Limits(derived_facts=3)).statistics.derived == 3
        with pytest.raises(LimitError):
            base.evaluate(facts, now=NOW, limits=Limits(derived_facts=2))
        with pytest.raises(LimitError):
            base.evaluate((), now=NOW, limits=Limits(derived_facts=1))


def test_an_evaluation_is_freed_without_a_search_for_cycles() -> None:
    base = Program.load([Source("a.mg", RULES)]).base()
    gc.disable()
    try:
        result = base.evaluate([Fact("asked", ("x",))], now=NOW, limits=Limits(seconds=60.0))
        held = weakref.ref(result.model.evaluation)
        assert held() is not None
        del result
        assert held() is None
    finally:
        gc.enable()
