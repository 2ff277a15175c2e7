"""Goal packs of upstream, the Machina runner: what a run is to achieve, and with which actions.

A goal is complete when all of its ``completion_slots`` are occupied, or one of them with ``any_slot_sufficient``.
Upstream ignores the tags, required tools and input schema of a goal; here they are checked before the run starts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from manglecp.runner.log import RunnerError
from manglecp.toolhost import Slots
from manglecp.wire import schema_errors

_RUNNER_AIDS: Final = frozenset({"AID.ASK_SUP.v1", "AID.NOOP.v1"})  # selections in this runner, not actions


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal of a goal pack."""

    goal_id: Annotated[str, Meta(pattern=r"^goal\.[A-Z0-9_\-.]+\.v\d+$")]
    dsl_schema: dict[str, Any]  # the JSON Schema of the inputs
    candidate_tags: tuple[str, ...]
    required_tools: Annotated[tuple[str, ...], Meta(min_length=1)]
    default_budget_profile: str
    completion_slots: tuple[Annotated[int, Meta(ge=0, le=7)], ...] = ()
    any_slot_sufficient: bool = False

    def is_complete(self, state: Slots) -> bool:
        occupancy = [slot in state for slot in self.completion_slots]
        return any(occupancy) if self.any_slot_sufficient else bool(occupancy) and all(occupancy)

    def check(self, inputs: Mapping[str, Any], aids: Collection[str]) -> None:
        """Raise :class:`RunnerError` for inputs that do not fit the schema, and for a missing required tool."""
        try:
            errors = schema_errors(dict(inputs), self.dsl_schema)
        except ValueError as error:
            raise RunnerError(f"{self.goal_id}: dsl_schema is not a JSON Schema: {error}") from None
        if errors:
            error_text = "; ".join(f"{error.path or '/'}: {error.message}" for error in errors[:5])
            raise RunnerError(f"the inputs do not fit {self.goal_id}: {error_text}")
        if missing_tools := sorted({*self.required_tools} - {*aids} - _RUNNER_AIDS):
            raise RunnerError(
                f"{self.goal_id} requires {', '.join(missing_tools)}, and the target offers {', '.join(aids)}"
            )


class GoalPack(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a goal pack."""

    goalpack_id: Annotated[str, Meta(pattern=r"^goalpack\.[a-z0-9_\-.]+$")]
    goalpack_version: str
    trust_tier: Literal["goal_tier0_builtin", "goal_tier1_signed", "goal_tier2_untrusted"]
    goals: Annotated[tuple[Goal, ...], Meta(min_length=1)]

    @classmethod
    def read(cls, document: object) -> GoalPack:
        """Parse the JSON document of a manifest; unknown members are ignored. Raises :class:`RunnerError`."""
        try:
            pack = msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise RunnerError(f"not a goal pack: {error}") from None
        ids = [goal.goal_id for goal in pack.goals]
        if repeated_ids := {goal_id for goal_id in ids if ids.count(goal_id) > 1}:
            raise RunnerError(f"not a goal pack: {min(repeated_ids)} is defined twice")
        return pack

    def find(self, goal_id: str | None) -> Goal:
        """Return the goal whose id is the longest prefix of ``goal_id``; None selects the only goal."""
        if goal_id is None and len(self.goals) == 1:
            return self.goals[0]
        matching_goals = [goal for goal in self.goals if goal_id is not None and goal_id.startswith(goal.goal_id)]
        if not matching_goals:
            problem, ids = f"no goal {goal_id}" if goal_id else "several goals", [goal.goal_id for goal in self.goals]
            raise RunnerError(f"{self.goalpack_id} has {problem}: select one of {', '.join(ids)} with --goal-id")
        return max(matching_goals, key=lambda goal: len(goal.goal_id))
