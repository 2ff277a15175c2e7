"""Why a fact does not hold, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from manglecp.mangle.explain.blocked import Blocked
from manglecp.mangle.explain.unlock import Unlocked
from manglecp.mangle.explain.wording import bindings_text
from manglecp.mangle.facts import Fact


@dataclass(frozen=True, slots=True)
class WhyNot:
    """What stops each rule, and the smallest sets of facts that would help."""

    fact: str
    blocked: tuple[Blocked, ...]
    unlocked: Unlocked

    @property
    def holds(self) -> bool:
        """Nothing has to be added: the question was mistaken."""
        return self.unlocked.sets == ((),)

    @property
    def would_unlock(self) -> tuple[tuple[Fact, ...], ...]:
        """Sets of facts, each of which would be enough."""
        return self.unlocked.sets

    @property
    def complete(self) -> bool:
        """Are these all the smallest sets there are?"""
        return self.unlocked.complete

    def as_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists and texts."""
        return {
            "fact": self.fact,
            "blocked": [
                {"rule": one.rule.as_json(), "premise": one.premise, "bindings": bindings_text(one.bindings)}
                for one in self.blocked
            ],
            "would_unlock": [[fact.text for fact in facts] for facts in self.would_unlock],
            "complete": self.complete,
        }

    def text(self) -> str:
        """For people: what stops each rule, then what would help."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        if self.holds:
            yield f"{self.fact} holds"
            return
        yield f"{self.fact} does not hold"
        for one in self.blocked:
            yield f"  {one.rule.text}{f'  ({one.rule.place})' if one.rule.place else ''}"
            values = ", ".join(f"{name} = {value}" for name, value in bindings_text(one.bindings).items())
            yield f"    stops at {one.premise}{f'  with {values}' if values else ''}"
        if not self.blocked:
            yield "  no rule could derive it"
        for facts in self.would_unlock:
            yield f"  it would hold with {' and '.join(fact.text for fact in facts)}"
        if not self.would_unlock:
            yield (
                "  no few facts would make it hold" if self.complete else "  nothing was found that would make it hold"
            )
        elif not self.complete:
            yield "  there may be other ways"
