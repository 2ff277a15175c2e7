"""An independent check of contracts 1 to 4.

The contracts are written out again in plain Python over sets, without what the kernel derived in between, so that a
mistake in the kernel's rules becomes visible. It runs after every evaluation of these tests (``conftest.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manglecp.intent.evaluation import IntentEvaluation

DEPENDENCY_SCORE = 80


class ContractBroken(AssertionError):
    """The kernel offered a tool it must not offer, or withheld one it must offer."""


@dataclass(frozen=True, slots=True)
class PackClaims:
    mandatory: frozenset[str] = frozenset()
    relevant: Mapping[str, int] = field(default_factory=dict)
    """The best score of each tool, clamped to 100; negative scores are dropped."""
    forbidden: frozenset[str] = frozenset()
    """Prohibited, not permitted, without steps, with actions that cannot or must not run, or undefined."""
    conflicts: frozenset[tuple[str, str]] = frozenset()
    requires: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, evaluation: IntentEvaluation) -> PackClaims:
        def rows(predicate: str, arity: int) -> list[tuple[str, ...]]:
            return evaluation.result.rows((predicate, arity))

        steps: dict[str, set[str]] = {}
        for tool, _, action in rows("macro_step", 3):
            steps.setdefault(tool, set()).add(action)
        for tool, _, action in rows("undo_step", 3):
            if tool in steps:
                steps[tool].add(action)
        requires: dict[str, set[str]] = {}
        for tool, needed in rows("requires", 2):
            requires.setdefault(tool, set()).add(needed)
        relevant: dict[str, int] = {}
        for tool, score in rows("relevant", 2):
            number = min(100, int(score))
            if number >= 0:
                relevant[tool] = max(number, relevant.get(tool, 0))
        mandatory = {tool for (tool,) in rows("mandatory", 1)}
        every = mandatory | set(relevant) | set(requires) | {one for needed in requires.values() for one in needed}
        runnable = set(evaluation.domain.pack.actions) - {action for action, _ in rows("effect_denied", 2)}
        possible = {tool for tool, _ in rows("macro", 2)} & {t for t, actions in steps.items() if actions <= runnable}
        if _permits(evaluation):
            possible &= {tool for (tool,) in rows("permitted", 1)}
        possible -= {tool for tool, _ in rows("prohibited", 2)}
        return cls(
            frozenset(mandatory),
            relevant,
            frozenset(every - possible),
            frozenset((a, b) for a, b in rows("conflicts", 2)),
            {tool: frozenset(needed) for tool, needed in requires.items()},
        )

    def closure(self, tools: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(tools)
        while waiting:
            tool = waiting.pop()
            if tool not in found:
                found.add(tool)
                waiting += self.requires.get(tool, ())
        return found


def broken_contracts(said: PackClaims, offered: Mapping[str, int]) -> list[str]:
    """Return the violations of an offer of tools and scores, as sentences."""
    wanted = said.mandatory | set(said.relevant)
    standing = {tool for tool in wanted if not said.closure([tool]) & said.forbidden}
    lost = _lost(said, standing)
    return [
        *_relevance(said, offered, wanted),
        *(f"2: {tool} is forbidden" for tool in sorted(said.forbidden & offered.keys())),
        *(f"3: {a} and {b} are rivals" for a, b in sorted(said.conflicts) if a in offered and b in offered and a != b),
        *(f"3: {tool} lost to {lost[tool]}" for tool in sorted(lost.keys() & offered.keys() - said.forbidden)),
        *(
            f"4: {tool} needs {needed}"
            for tool in sorted(offered)
            for needed in sorted(said.requires.get(tool, frozenset()) - offered.keys())
        ),
        *(
            f"{tool} is kept back for no reason"
            for tool in sorted(standing - offered.keys())
            if not said.closure([tool]) & lost.keys()
        ),
    ]


def verify(evaluation: IntentEvaluation) -> None:
    offered = {selected.tool: selected.score for selected in evaluation.selected}
    broken = broken_contracts(PackClaims.of(evaluation), offered)
    if len(offered) != len(evaluation.selected):
        broken.append("6: a tool is offered twice")
    if broken:
        raise ContractBroken("; ".join(broken))


def _relevance(said: PackClaims, offered: Mapping[str, int], wanted: set[str] | frozenset[str]) -> Iterable[str]:
    """Contract 1: every tool is relevant or a dependency of a relevant tool, and has the score that this gives."""
    served = said.closure(wanted & offered.keys())
    for tool, score in sorted(offered.items()):
        if tool not in served:
            yield f"1: nothing speaks for {tool}"
            continue
        scores = [100] if tool in said.mandatory else []
        if tool in said.relevant:
            scores.append(said.relevant[tool])
        dependants = wanted & offered.keys() - {tool}
        if any(tool in said.closure(said.requires.get(other, ())) for other in (*dependants, tool)):
            scores.append(DEPENDENCY_SCORE)
        if score != max(scores):
            yield f"1: {tool} has the score {score} and not {max(scores)}"


def _lost(said: PackClaims, standing: set[str]) -> dict[str, str]:
    """Contract 3: of two rivals the better one stays, by name between equals. Return each loser and a winner."""
    scores: dict[str, int] = {}

    def at_least(tool: str, score: int) -> None:
        scores[tool] = max(score, scores.get(tool, 0))

    for tool in standing:
        at_least(tool, 100 if tool in said.mandatory else said.relevant[tool])
        for needed in said.closure(said.requires.get(tool, ())):
            at_least(needed, DEPENDENCY_SCORE)
    lost: dict[str, str] = {}
    for pair in sorted(said.conflicts):
        if pair[0] != pair[1] and scores.keys() >= set(pair):
            winner, loser = sorted(pair, key=lambda tool: (-scores[tool], tool))
            lost.setdefault(loser, winner)
    return lost


def _permits(evaluation: IntentEvaluation) -> bool:
    program, key = evaluation.domain.program, ("permitted", 1)
    return any(rule.head.key == key for rule in program.rules) or any(fact.key == key for fact in program.facts)
