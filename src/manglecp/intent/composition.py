"""From derived facts to the definition of a macro-tool. Rules decided everything; this only reads.

Which predicates say what is in ``rules/0_vocabulary.mg``. The chain has a module of its own. Text, context, safety and
validity are added here, because they may differ between requests that prove the same chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from manglecp.intent import context
from manglecp.intent.chain import PREDICATES, Chain, Kept, chain
from manglecp.intent.definition import Definition, Flaw
from manglecp.intent.safety import safety
from manglecp.intent.tokens import counter
from manglecp.intent.validity import validity
from manglecp.intent.visible import shown

if TYPE_CHECKING:
    from manglecp.intent.evaluation import Evaluation, Selected

__all__ = ["Composer", "compose"]

_kept: Final = Kept()


def compose(evaluation: Evaluation, tool: str) -> Definition:
    """The definition of a selected tool; a :class:`Flaw` if what the rules say makes none."""
    return Composer(evaluation).compose(tool)


class Composer:
    """For all tools of one evaluation."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self._lookup = evaluation.lookup
        self._pack = evaluation.domain.pack
        self._selected: dict[str, Selected] = {one.tool: one for one in evaluation.selected}
        self._counter = counter(self._pack.settings.disclosure.tokens)

    def compose(self, tool: str) -> Definition:
        try:
            return self._definition(self._selected[tool])
        except Flaw as flaw:
            raise Flaw(f"{shown(tool)}: {flaw.message}", flaw.fix) from None

    def _definition(self, selected: Selected) -> Definition:
        tool, lookup = selected.tool, self._lookup
        links = self._chain(tool)
        description = self._text("macro", tool)
        instructions = [str(text) for _, _, text in lookup.rows("instruction", 3, tool)]
        skills = tuple(str(skill) for _, skill in lookup.rows("needs_skill", 2, tool) if skill in self._pack.skills)
        wanted = cast("list[tuple[str, str, str, int]]", lookup.rows("needs_resource", 4, tool))
        needed = [str(name) for _, name in lookup.rows("requires", 2, tool)]
        not_before, expires_at = validity(self.evaluation, tool)
        return Definition(
            tool=tool,
            macro_id=links.macro_id,
            description=description,
            summary=context.one_line(self._text("macro_summary", tool) or description),
            steps=links.steps,
            ordered=links.ordered,
            input_schema=links.input_schema,
            output_schema=links.output_schema,
            results=links.results,
            safety=safety(
                links.side_effects,
                links.actions,
                needs_confirmation=lookup.holds("needs_confirmation", tool),
                reversible=lookup.holds("reversible", tool),
                idempotent=lookup.holds("idempotent", tool),
            ),
            not_before=not_before,
            expires_at=expires_at,
            instructions=context.instructions(map(shown, instructions), self._counter) if instructions else "",
            skills=skills,
            resources=context.resources((shown(uri), shown(why), priority) for _, uri, why, priority in wanted),
            score=selected.score,
            phase=selected.phase,
            requires=tuple(name for name in needed if name in self._selected),
        )

    def _chain(self, tool: str) -> Chain:
        lookup = self._lookup
        rows = {name: tuple(lookup.rows(name, arity, tool)) for name, arity in PREDICATES.items()}
        key = (self.evaluation.domain.digest, tool, *rows.values())
        return _kept.get(key, lambda: chain(tool, rows, self._pack.actions))

    def _text(self, predicate: str, tool: str) -> str:
        row = self._lookup.one(predicate, 2, tool)
        return "" if row is None else shown(str(row[1]))

    def all(self, tools: Iterable[str]) -> tuple[list[Definition], list[Flaw]]:
        """The tools with what they require, as far as they can be composed, and what is wrong with the rest. Whoever
        needs a tool that has a flaw goes with it (contract 4)."""
        definitions: dict[str, Definition] = {}
        flaws: dict[str, Flaw] = {}
        waiting = list(tools)
        while waiting:
            tool = waiting.pop()
            if tool in definitions or tool in flaws:
                continue
            try:
                definitions[tool] = definition = self.compose(tool)
                waiting += definition.requires
            except Flaw as flaw:
                flaws[tool] = flaw
        gone = set(flaws)
        while gone:
            gone = {one.tool for one in definitions.values() if not gone.isdisjoint(one.requires)}
            for tool in gone:
                del definitions[tool]
        return list(definitions.values()), [flaws[tool] for tool in sorted(flaws)]
