"""Why a tool that spoke to the intent is not in the answer, as far as whoever asks may know.

A tool that policy excludes is not mentioned at all: it looks like a name that nobody knows. Reasons about other tools
name only those that may be mentioned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from manglecp.intent.lookup import Lookup
from manglecp.intent.redaction import Sight
from manglecp.intent.validity import expired

if TYPE_CHECKING:
    from collections.abc import Collection

    from manglecp.intent.evaluation import Evaluation

__all__ = ["Exclusions"]

OUTPUT: Final = "output"
"""The phase that leaves tools out which were selected."""


class Exclusions:
    """Of one evaluation, whose answer returns these tools."""

    def __init__(self, evaluation: Evaluation, sight: Sight, returned: Collection[str]) -> None:
        self.evaluation = evaluation
        self.lookup: Lookup = evaluation.lookup
        self.sight = sight
        self.returned = returned
        self.selected = {one.tool: one.score for one in evaluation.selected}
        self.disclosed_from = evaluation.domain.pack.settings.disclosure.minimal
        constraints = evaluation.request.payload.constraints
        self.narrow = (constraints.max_tools_returned, constraints.max_tokens_budget) != (None, None)

    def all(self) -> list[tuple[str, str, str]]:
        """Tool, phase and reason, sorted."""
        tools = {str(row[0]) for row in self.lookup.all("excluded", 3)} | self.selected.keys()
        return [(tool, *why) for tool in sorted(tools) for why in self.of(tool)]

    def of(self, tool: str) -> list[tuple[str, str]]:
        """Phases and reasons, sorted; none if the tool is returned, was not named, or nobody is to know of it."""
        if self.silent(tool) or tool in self.returned:
            return []
        if tool in self.selected:
            return [(OUTPUT, self._left_out(tool))]
        found: set[tuple[str, str]] = set()
        for _, phase, reason in self.lookup.rows("excluded", 3, tool):
            if phase == "exclusion":
                found |= {("exclusion", _barred(str(kind), str(why))) for _, kind, why in self._bars(tool)}
            else:
                found.add((str(phase), self._about_others(tool, str(reason))))
        return [(phase, self.sight.text(reason)) for phase, reason in sorted(found)]

    def silent(self, tool: str) -> bool:
        """Does policy exclude it, and whoever asks may not know?"""
        return not self.sight.explains_policy and self.barred_by_policy(tool)

    def barred_by_policy(self, tool: str) -> bool:
        """Would policy exclude it, whatever speaks for it?"""
        return bool(self.policy_reasons(tool))

    def policy_reasons(self, tool: str) -> list[str]:
        """Why policy would exclude it, whether or not anything speaks for it."""
        rows = self.lookup.rows
        found = {str(reason) for _, reason in rows("prohibited", 2, tool)}
        if self.lookup.all("permitted_only", 0) and not rows("permitted", 1, tool):
            found.add("not permitted")
        for _, action in rows("may_run", 2, tool):
            found |= {str(reason) for _, reason in rows("effect_denied", 2, action)}
        return [self.sight.text(reason) for reason in sorted(found)]

    def _bars(self, tool: str) -> list[tuple[object, ...]]:
        return list(self.lookup.rows("barred_by", 3, tool))

    def _about_others(self, tool: str, reason: str) -> str:
        needed = (str(row[1]) for row in self.lookup.rows("requires", 2, tool))
        if any(name in reason and self.silent(name) for name in needed):
            return "needs a tool that is not available"
        return reason

    def _left_out(self, tool: str) -> str:
        if self.selected[tool] < self.disclosed_from:
            return "its score is below what is disclosed"
        if expired(self.evaluation, tool):
            return "it is no longer valid"
        if self.narrow:
            return "there is no room for it within max_tools_returned and max_tokens_budget"
        return "it could not be composed"


def _barred(kind: str, why: str) -> str:
    return "an action that it needs does not exist" if kind == "capability" else why
