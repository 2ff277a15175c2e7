"""The verdict over a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from manglecp.harness.checks import CHECKS, Check, context, governance, handoff, mutation, protocol, runtime, tool
from manglecp.harness.classes import State
from manglecp.harness.digests import bundle_v1, bundle_v2, witness_id
from manglecp.harness.findings import Finding, ordered
from manglecp.harness.reading import LIMITS, Limits
from manglecp.harness.turn import Turn, read_turn

__all__ = ["CHECKS_UPTO", "Judgement", "conclude", "findings_upto", "judge", "open_findings"]

_FIRST: Final[Mapping[Check, State]] = {
    **dict.fromkeys(
        (tool.caller_edges, tool.truncation, runtime.shell_boundary, runtime.edit_surface, context.scope),
        State.TOOL_RESULTS,
    ),
    **dict.fromkeys(
        (
            tool.join,
            *protocol.CHECKS,
            runtime.compaction,
            context.owed_context,
            context.queues,
            context.context_filter,
            governance.guardrails,
            *handoff.CHECKS,
        ),
        State.JOIN_CLOSED,
    ),
    **dict.fromkeys((governance.promotion, *mutation.CHECKS), State.MUTATION_READY),
}
"""The first state that a class of the check blocks. A check that is not listed is asked at every state."""

CHECKS_UPTO: Final = {
    state: tuple(check for check in CHECKS if _FIRST.get(check, State.CALL_SPEC) <= state) for state in State
}
"""The checks that have something to say about a state."""


@dataclass(frozen=True)
class Judgement:
    """What follows from the evidence of a turn. The same evidence always gives an equal judgement."""

    findings: tuple[Finding, ...]
    turn: Turn

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Of the evidence and the verdict, by their names."""
        first = bundle_v1(self.turn)
        return MappingProxyType(first | bundle_v2(self.turn, first, self.failure_classes))

    @cached_property
    def witness_id(self) -> str:
        """The name of the evidence and the verdict over it."""
        return witness_id(self.digests, self.failure_classes)

    @property
    def result(self) -> Literal["accepted", "rejected"]:
        """``rejected`` if there is any finding."""
        return "rejected" if self.findings else "accepted"

    @property
    def failure_classes(self) -> tuple[str, ...]:
        """The names of the classes of its findings, each once."""
        return _classes(self.findings)

    @property
    def join_closed(self) -> bool:
        """Whether nothing stands before JoinClosed. Some classes forbid only the mutation."""
        return not any(finding.failure.blocks_join for finding in self.findings)

    @property
    def mutation_ready(self) -> bool:
        """Whether nothing is wrong at all, and the turn says what it wants to mutate."""
        return not self.findings and self.turn.evidence.mutation is not None

    @property
    def normalized(self) -> dict[str, Any]:
        """Every normalised row: all that is needed to judge the turn again, without what was in its payloads."""
        whole = {
            "evidence": self.turn.evidence,
            "constraints": self.turn.constraints,
            "policyDocuments": self.turn.documents,
            "schemaVerdicts": self.turn.schema_verdicts,
        }
        rows: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))
        return rows

    def as_json(self) -> dict[str, Any]:
        """What ``manglecp harness check`` prints."""
        return {
            "result": self.result,
            "failureClasses": list(self.failure_classes),
            "joinClosed": self.join_closed,
            "mutationReady": self.mutation_ready,
            "digests": dict(self.digests),
            "witnessId": self.witness_id,
            "findings": [finding.as_json() for finding in self.findings],
        }


def judge(document: Mapping[str, Any], limits: Limits = LIMITS) -> Judgement:
    """The judgement over a turn that has ended; :class:`.InvalidEvidence` if the document cannot be read."""
    return conclude(read_turn(document, limits))


def conclude(turn: Turn) -> Judgement:
    """The judgement over a turn that was read."""
    found = [finding for check in CHECKS for finding in check(turn)]
    findings = ordered(found, turn.call.call_id, bundle_v1(turn)["joinSetDigest"]) if found else ()
    return Judgement(findings, turn)


def open_findings(document: Mapping[str, Any], upto: State, limits: Limits = LIMITS) -> Sequence[Finding]:
    """What keeps a turn that is under way from a state, judged on the evidence so far.

    How the turn ended need not be there yet, and what is owed only later is not missed.
    """
    return findings_upto(read_turn(document, limits, under_way=True), upto)


def findings_upto(turn: Turn, upto: State) -> Sequence[Finding]:
    """The same of a turn that was read."""
    found = [finding for check in CHECKS_UPTO[upto] for finding in check(turn) if finding.failure.blocks <= upto]
    return ordered(found, turn.call.call_id, None) if found else ()


def _classes(findings: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(sorted({finding.failure.name for finding in findings}))
