"""The first round of a recursive component: what nothing was derived for yet is not joined with large relations."""

from __future__ import annotations

import time

from manglecp.base.source import Source
from manglecp.mangle.engine import Base
from manglecp.mangle.facts import Fact
from manglecp.mangle.program import Program

RULES = """
Decl seen(X) bound [/number].
Decl next(X, Y) bound [/number, /number].
Decl label(X, Y, Z) bound [/number, /number, /number].
reached(X, X, 0) :- seen(X).
reached(X, Z, N) :- reached(X, Y, N), next(Y, Z), label(Y, Z, N).
"""


def _base(links: int) -> Base:
    facts = [Fact("next", (i, i + 1)) for i in range(links) if i % 10]
    facts += [Fact("label", (i, i + 1, 0)) for i in range(links)]
    return Program.load([Source("rules.mg", RULES)]).base(facts)


def _least(base: Base) -> float:
    took = []
    for _ in range(15):
        start = time.process_time()
        result = base.evaluate([Fact("seen", (11,))], now=0)
        took.append(time.process_time() - start)
        assert len(result.relations["reached", 3]) == 10
    return min(took)


def test_the_cost_of_a_request_does_not_follow_the_size_of_the_base() -> None:
    few, many = _base(100), _base(50_000)
    _least(few), _least(many)
    assert _least(many) < 20 * _least(few)
