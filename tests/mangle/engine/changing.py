"""Bases that change: what holds afterwards, by the engine and by the naive evaluator."""

from __future__ import annotations

from typing import Final, Literal

from manglecp.base.source import Source
from manglecp.mangle.engine import Base
from manglecp.mangle.errors import MangleError
from manglecp.mangle.facts import Fact
from manglecp.mangle.program import Program
from tests.mangle.engine.splitting import Answer, difference, from_outside, oracle, with_facts

NOW: Final = 1_768_478_400 * 10**9  # 2026-01-15T12:00:00Z
Bounds = Literal["error", "off"]


def load(text: str, bounds: Bounds = "error") -> Program:
    return Program.load([Source("a.mg", text)], bounds=bounds)


class World:
    """Rules, and facts written as text."""

    def __init__(self, rules: str, bounds: Bounds = "error") -> None:
        self.rules = rules
        self.bounds = bounds
        self.program = load(rules, bounds)

    def facts(self, text: str) -> list[Fact]:
        program = self._with(text)
        return [from_outside(program, fact) for fact in program.facts]

    def want(self, text: str) -> Answer:
        """By the naive evaluator."""
        program = self._with(text)
        distinct = {from_outside(program, fact): fact for fact in program.facts}
        return oracle(with_facts(program, list(distinct.values())), NOW)

    def base(self, text: str = "") -> Base:
        return self.program.base(self.facts(text))

    def ask(self, base: Base, text: str = "") -> Answer:
        try:
            return Answer.of(base.evaluate(self.facts(text), now=NOW))
        except MangleError as error:
            return Answer.refused(error)

    def agrees(self, base: Base, request: str, everything: str) -> Answer:
        """The answer over a base, once it is found to be that over all facts."""
        got = self.ask(base, request)
        assert difference(got, self.want(everything)) is None
        return got

    def _with(self, text: str) -> Program:
        lines = [f"{fact}." for fact in text.split()]
        return load(self.rules + "\n" + "\n".join(lines), self.bounds)


def only(answer: Answer, predicate: str) -> list[str]:
    return [fact for fact in answer.facts if fact.startswith(f"{predicate}(")]


def maintained(base: Base, predicate: str) -> bool:
    """Has a component been brought up to date fact by fact?"""
    for component in base.compiled.components:
        for key in component.component.predicates:
            if key[0] == predicate:
                return isinstance(component.maintained_rules, tuple)
    raise AssertionError(predicate)
