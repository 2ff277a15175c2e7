"""The verdict over a turn, and its digests in two bundles.

**v1** equals the bundle of upstream (the reference implementation). It covers eleven fields of the call spec and the
members that upstream reads; its join digest does not cover the call spec.

**v2** covers every input of a verdict (all normalised rows, the whole call spec, constraints and policy documents) and
the failure classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.harness.call_spec import UPSTREAM_FIELDS
from manglecp.harness.checks import CHECKS
from manglecp.harness.classes import Finding, TurnState, sort_findings
from manglecp.harness.evidence import Evidence
from manglecp.harness.readers import JsonRecord
from manglecp.harness.turn import Turn, read_turn

_encode: Final = msgspec.json.Encoder(order="sorted").encode
"""Encodes canonical JSON without checks: :mod:`.readers` has checked that each value has a canonical form."""

# The members of a row that upstream reads; an empty list, or a member that was not given, is omitted.
_UPSTREAM_REQUEST: Final = ("toolCallId", "toolName", "schemaDigest", "callerId", "searchRefDigest")
_UPSTREAM_QUEUE: Final = ("queueId", "reducedDigest", "policyDigest")
_UPSTREAM_HANDOFF: Final = ("target", "requiredArtifactRefs", "returnPathRef")
_UPSTREAM_DISPOSITIONS: Final = {"observed_only": "observed", "discarded_with_reason": "discarded"}
_SET_FIELDS: Final = Evidence.__struct_fields__[1:]  # all fields except the call spec, which has its own digest


def _digest(value: Any) -> str:
    return digest_bytes(_encode(value))


def _pick(row: JsonRecord, *names: str) -> dict[str, Any]:
    """Return the members of the row's JSON that have these names."""
    members = msgspec.to_builtins(row)
    return {name: members[name] for name in names if name in members}


def _find_missing(required: Iterable[str], present: Iterable[str]) -> list[str]:
    return sorted(set(required).difference(present))


def digest_bundle_v1(turn: Turn) -> dict[str, str]:
    evidence, call = turn.evidence, turn.call
    results, uses = [], []
    for row in turn.results.values():
        error = row.error and {"error": _pick(row.error, "errorCode", "retryable", "errorMessageDigest")}
        results.append({**_pick(row, "toolCallId", "status", "resultDigest"), **(error or {})})
    for use in evidence.tool_use:
        disposition = _UPSTREAM_DISPOSITIONS.get(use.disposition, use.disposition)
        uses.append({**_pick(use, "toolCallId", "resultDigest"), "disposition": disposition})
    sets = {
        "requestSetDigest": _digest([_pick(row, *_UPSTREAM_REQUEST) for row in evidence.tool_requests]),
        "resultSetDigest": _digest(results),
        "useSetDigest": _digest(uses),
        "toolRenderSetDigest": _digest(evidence.tool_render),
        "reminderQueueSetDigest": _digest([_pick(row, *_UPSTREAM_QUEUE) for row in evidence.reminder_queue]),
        "stateViewSetDigest": _digest(evidence.state_views),
        "protocolStateDigest": _digest(
            evidence.protocol_state
            and {"stopReason": evidence.protocol_state.stop_reason, "continuationAllowed": turn.continues}
        ),
    }
    handoff_digest = None if evidence.handoff is None else _digest(_pick(evidence.handoff, *_UPSTREAM_HANDOFF))
    rendered_ids = [row.tool_call_id for row in evidence.tool_render]
    missing_renders = _find_missing(turn.results, rendered_ids)
    render_valid = all(row.policy_digest == call.tool_render_protocol_digest for row in evidence.tool_render)
    queue_valid = all(row.policy_digest == call.reminder_queue_policy_digest for row in evidence.reminder_queue)
    view_valid = all(row.policy_digest == call.state_view_policy_digest for row in evidence.state_views)
    context_present = not missing_renders and bool(evidence.reminder_queue) and bool(evidence.state_views)
    join = {
        **sets,
        "handoffDigest": handoff_digest,
        "requestedCallIds": list(turn.requests),
        "resultCallIds": list(turn.results),
        "usedCallIds": list(turn.uses),
        "renderCallIds": rendered_ids,
        "queueIds": [row.queue_id for row in evidence.reminder_queue],
        "stateViewIds": [row.view_id for row in evidence.state_views],
        "missingResultCallIds": _find_missing(turn.requests, turn.results),
        "orphanResultCallIds": _find_missing(turn.results, turn.requests),
        "missingUseCallIds": _find_missing(turn.results, turn.uses),
        "unknownUseCallIds": _find_missing(turn.uses, turn.results),
        "missingRenderCallIds": missing_renders,
        "queueReductionPresent": bool(evidence.reminder_queue),
        "stateViewPresent": bool(evidence.state_views),
        "renderPolicyValid": render_valid,
        "queuePolicyValid": queue_valid,
        "stateViewPolicyValid": view_valid,
        "continuationContextReady": not turn.needs_context
        or (context_present and render_valid and queue_valid and view_valid),
    }
    handoff_member = {} if handoff_digest is None else {"handoffDigest": handoff_digest}
    call_digest = _digest(_pick(call, *UPSTREAM_FIELDS))
    return {"callSpecDigest": call_digest, **sets, "joinSetDigest": _digest(join), **handoff_member}


def digest_bundle_v2(turn: Turn, v1: dict[str, str], failure_classes: Iterable[str]) -> dict[str, str]:
    """Return the digests that v1 lacks: of the whole call spec, of the uses with their reasons, and of all inputs."""
    evidence = turn.evidence
    call_digest = _digest(evidence.call_spec)
    all_inputs = {
        "schema": 2,
        "v1": v1,
        "callSpecDigest": call_digest,
        "sets": {name: _digest(rows) for name in _SET_FIELDS if (rows := getattr(evidence, name))},
        "schemaVerdicts": turn.schema_verdicts,
        "guardrailsGiven": evidence.guardrail_decisions is not None,
        "constraintsDigest": _digest([turn.constraints, turn.documents.contents]),
        "failureClasses": list(failure_classes),
    }
    uses = []
    for row in evidence.tool_use:
        reason = {} if row.reason_code is None else {"useReason": row.reason_code}
        uses.append({**_pick(row, "toolCallId", "resultDigest"), "useDisposition": row.disposition, **reason})
    return {"callSpecDigestV2": call_digest, "useSetDigestV2": _digest(uses), "evidenceDigestV2": _digest(all_inputs)}


@dataclass(frozen=True)
class Judgement:
    """The verdict over a turn. Equal evidence gives an equal judgement."""

    findings: tuple[Finding, ...]
    turn: Turn

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The digests of evidence and verdict, by name."""
        v1 = digest_bundle_v1(self.turn)
        return MappingProxyType(v1 | digest_bundle_v2(self.turn, v1, self.failure_classes))

    @cached_property
    def witness_id(self) -> str:
        """An id that changes with the evidence and with the verdict."""
        members = {name: self.digests[name] for name in ("callSpecDigest", "joinSetDigest", "evidenceDigestV2")}
        return f"jw1_{_digest({**members, 'failureClasses': self.failure_classes}).removeprefix('sha256:')}"

    @property
    def result(self) -> Literal["accepted", "rejected"]:
        return "rejected" if self.findings else "accepted"

    @property
    def failure_classes(self) -> tuple[str, ...]:
        """The distinct class names of the findings, sorted."""
        return tuple(sorted({finding.failure.name for finding in self.findings}))

    @property
    def join_closed(self) -> bool:
        """Whether no finding blocks JoinClosed. Some classes forbid only the mutation."""
        return not any(finding.failure.blocks_join for finding in self.findings)

    @property
    def mutation_ready(self) -> bool:
        """Whether the turn has a mutation and no finding."""
        return not self.findings and self.turn.evidence.mutation is not None

    @property
    def normalized(self) -> dict[str, Any]:
        """All normalised rows and terms as JSON, from which the turn can be judged again."""
        inputs = {
            "evidence": self.turn.evidence,
            "constraints": self.turn.constraints,
            "policyDocuments": self.turn.documents.contents,
            "schemaVerdicts": self.turn.schema_verdicts,
        }
        json_copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(inputs))
        return json_copy

    def as_json(self) -> dict[str, Any]:
        """Return the output of ``manglecp harness check``."""
        return {
            "result": self.result,
            "failureClasses": list(self.failure_classes),
            "joinClosed": self.join_closed,
            "mutationReady": self.mutation_ready,
            "digests": dict(self.digests),
            "witnessId": self.witness_id,
            "findings": [finding.as_json() for finding in self.findings],
        }


def judge(document: Mapping[str, Any]) -> Judgement:
    """Return the judgement of a turn that has ended. Raises :class:`.InvalidEvidence`."""
    return judge_turn(read_turn(document))


def judge_turn(turn: Turn) -> Judgement:
    all_findings = [finding for check in CHECKS for finding in check(turn)]
    findings = (
        sort_findings(all_findings, turn.call.call_id, digest_bundle_v1(turn)["joinSetDigest"]) if all_findings else ()
    )
    return Judgement(findings, turn)


def find_blocking(turn: Turn, upto: TurnState) -> Sequence[Finding]:
    """Return the findings of an open turn that block the state ``upto`` or an earlier one."""
    all_findings = [finding for check in CHECKS for finding in check(turn) if finding.failure.blocks <= upto]
    return sort_findings(all_findings, turn.call.call_id, join_digest=None) if all_findings else ()
