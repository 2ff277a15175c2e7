"""The states of a turn, the 42 failure classes that block them, and findings.

    CallSpec -> ToolRequests -> ToolResults -> ToolUse -> JoinClosed -> MutationReady

Each failure class blocks a state: while a finding has this class, the turn can reach neither that state nor a later
state. A
turn is **closed** if no finding blocks JoinClosed or an earlier state; it may **mutate** if it has a mutation and
no finding at all. :mod:`.checks` derive findings from evidence; a claim of the runtime can add a finding, never
remove one. A :class:`Finding` is a class, the row that raised it and a message; its id depends on class, row and turn,
not on the message.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, Final

from manglecp.harness.canonical_v1 import canonical


class TurnState(IntEnum):
    """The states of a turn, in their order."""

    CALL_SPEC = 0
    TOOL_REQUESTS = 1
    TOOL_RESULTS = 2
    TOOL_USE = 3
    JOIN_CLOSED = 4
    MUTATION_READY = 5

    @property
    def title(self) -> str:
        """The name of the state in the specification, such as ``CallSpec``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class RetryKind(Enum):
    """The retry that is permitted after a failure."""

    EVIDENCE = "evidence"  # complete the evidence of the same turn and check it again
    TURN = "turn"  # return the failure to the model and make a new turn
    NEVER = "never"  # blocked until a person intervenes


@dataclass(frozen=True, slots=True)
class FailClass:
    name: str
    blocks: TurnState  # the first state that is blocked
    retry: RetryKind
    remedy: str

    @property
    def blocks_join(self) -> bool:
        """Whether the class blocks JoinClosed, not only a mutation."""
        return self.blocks <= TurnState.JOIN_CLOSED

    def at(self, where: str, message: str) -> Finding:
        """Return a finding of this class, at this place."""
        return Finding(self, where, message)


_CALL_SPEC, _REQUESTS, _RESULTS, _USE, _JOIN, _MUTATION = TurnState
_EVIDENCE, _NEW_TURN, _NEVER = RetryKind

# fmt: off
SCHEMA: Final = FailClass("tool.schema_invalid", _REQUESTS, _NEW_TURN,
    "repair the row: arguments that fit the pinned schema, a typed error envelope, an output digest, a reason")
TOOL_DISALLOWED: Final = FailClass("tool.unknown_or_disallowed", _REQUESTS, _NEVER,
    "call a listed tool, or have the tool policy changed and pinned")
DISCOVERY_MISMATCH: Final = FailClass("tool.discovery_mismatch", _REQUESTS, _EVIDENCE,
    "repeat the search over the pinned catalogue and record its digests")
DISCOVERY_UNRESOLVED: Final = FailClass("tool.discovery_unresolved", _REQUESTS, _NEW_TURN,
    "search for the tool first and call it under the name that the search resolved")
EXAMPLES: Final = FailClass("tool.example_digest_mismatch", _REQUESTS, _NEVER,
    "restore the pinned examples, or pin the new ones")
CALLER: Final = FailClass("tool.caller_not_allowed", _REQUESTS, _NEVER,
    "call it from where it may be called, or have the list changed and pinned")
RESULT_MISSING: Final = FailClass("tool.result_missing", _JOIN, _EVIDENCE,
    "wait for the result, or record the call as an error with a typed envelope")
RESULT_ORPHAN: Final = FailClass("tool.result_orphan", _JOIN, _EVIDENCE,
    "record the request it belongs to, or drop the row from the evidence at its source")
JOIN_INCOMPLETE: Final = FailClass("tool.join_incomplete", _JOIN, _EVIDENCE,
    "repair what the other findings name; close every branch")
USE_MISSING: Final = FailClass("tool.use_missing", _JOIN, _EVIDENCE,
    "record the use of the result: consumed, observed_only, discarded_with_reason or retry_scheduled")
USE_UNKNOWN_RESULT: Final = FailClass("tool.use_unknown_result", _JOIN, _NEW_TURN,
    "cite the digest of the recorded result, after it is terminal")
USE_WITHOUT_RESULT: Final = FailClass("tool.use_without_result", _JOIN, _NEW_TURN,
    "drop the use row, or record the result that it cites")
PARALLEL: Final = FailClass("tool.parallel_policy_violation", _REQUESTS, _NEW_TURN,
    "spread the calls over several turns, or have the policy changed and pinned")
CALLER_EDGE: Final = FailClass("tool.programmatic_caller_edge_invalid", _RESULTS, _EVIDENCE,
    "record the caller edge: the code_execution call as parent, this call as child")
TRUNCATION: Final = FailClass("tool.response_truncation_policy_violation", _RESULTS, _EVIDENCE,
    "cut the payload as the policy requires, and record sizes, marker and strategy")
STOP_REASON: Final = FailClass("protocol.stop_reason_unhandled", _JOIN, _NEW_TURN,
    "handle the reason in the protocol state policy, stop, or record the checkpoint")
ORDER: Final = FailClass("protocol.parallel_transport_order_invalid", _JOIN, _EVIDENCE,
    "send the results in the order of their calls and record positions on both sides")
BOUNDARY: Final = FailClass("runtime.shell_boundary_violation", _RESULTS, _NEVER,
    "run in the sandbox, in a working directory inside the roots, and edit by an allowed surface")
COMPACTION: Final = FailClass("runtime.compaction_state_invalid", _JOIN, _EVIDENCE,
    "compact under the pinned policy and carry every required reference and every open call")
QUEUE: Final = FailClass("context.queue_policy_violation", _JOIN, _EVIDENCE,
    "rebuild the queue, the views and the renders under the pinned policies")
INJECTION: Final = FailClass("context.injection_point_missing", _JOIN, _EVIDENCE,
    "render every terminal result at an allowed injection point and record a state view")
SCOPE: Final = FailClass("context.scope_violation", _RESULTS, _NEVER,
    "stay within the prefixes of the role, or hand the work to the role that owns them")
DECOMPOSITION: Final = FailClass("coordination.decomposition_policy_violation", _REQUESTS, _NEW_TURN,
    "choose an admitted pattern and width; give autonomous patterns their measured trigger")
CLAIM_ID_INVALID: Final = FailClass("governance.claim_id_invalid", _CALL_SPEC, _NEVER,
    "claim profile.doctrine_inf_governance.v0, or nothing")
PACKAGE_UNPINNED: Final = FailClass("governance.policy_package_unpinned", _CALL_SPEC, _NEVER,
    "pin the package: reference, expected digest and bound digest")
PACKAGE_MISMATCH: Final = FailClass("governance.policy_package_mismatch", _CALL_SPEC, _NEVER,
    "load the pinned package, or promote and pin the new one")
STAGE_MISSING: Final = FailClass("governance.guardrail_stage_missing", _JOIN, _NEVER,
    "run the guardrails of every required stage and record their decisions")
STAGE_ORDER_INVALID: Final = FailClass("governance.guardrail_stage_order_invalid", _JOIN, _NEVER,
    "run the stages in their order")
EVAL_GATE_UNMET: Final = FailClass("governance.eval_gate_unmet", _MUTATION, _NEVER,
    "improve the policy until every thresholded metric reaches its floor")
LINEAGE_MISSING: Final = FailClass("governance.eval_lineage_missing", _MUTATION, _NEVER,
    "record the three lineage references, of the benchmark that the call spec names")
RED_TEAM_UNMET: Final = FailClass("governance.redteam_gate_unmet", _MUTATION, _NEVER,
    "run every required plugin and strategy with enough probes and attach the report")
RETRY_LIMIT_MISSING: Final = FailClass("governance.self_evolution_retry_missing", _MUTATION, _NEVER,
    "declare the number of attempts, at least one")
ESCALATION_MISSING: Final = FailClass("governance.self_evolution_escalation_missing", _MUTATION, _NEVER,
    "name the owner")
ROLLBACK_MISSING: Final = FailClass("governance.self_evolution_rollback_missing", _MUTATION, _NEVER,
    "name the version")
TRACE_MODE: Final = FailClass("governance.trace_mode_violation", _CALL_SPEC, _NEVER,
    "choose an admitted mode, name its processor, and export nothing while tracing is disabled")
RISK_PROFILE_MISSING: Final = FailClass("governance.risk_tier_profile_missing", _CALL_SPEC, _NEVER,
    "bind the control profile of the tier and record the approval")
ARTIFACT_MISSING: Final = FailClass("handoff.required_artifact_missing", _JOIN, _EVIDENCE,
    "produce the artifact, record its digest, and carry its reference in the packet")
TARGET_DISALLOWED: Final = FailClass("handoff.target_not_allowed", _JOIN, _NEVER,
    "hand over to an admitted target of the acting role")
RETURN_PATH_MISSING: Final = FailClass("handoff.return_path_missing", _JOIN, _EVIDENCE,
    "put the return path into the packet")
MUTATION_POLICY_MISMATCH: Final = FailClass("mutation.policy_digest_mismatch", _MUTATION, _NEVER,
    "make the turn again under the active policy")
CLAIM_MISSING: Final = FailClass("mutation.capability_claim_missing", _MUTATION, _NEVER,
    "claim the base capability and the one of the action, if the instruction grants them")
USE_EVIDENCE_MISSING: Final = FailClass("mutation.use_evidence_missing", _MUTATION, _EVIDENCE,
    "trace every input to a consumed result with provenance and link the turn to its session or trajectory")
# fmt: on

CLASSES: Final = {value.name: value for value in [*globals().values()] if isinstance(value, FailClass)}


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why a turn cannot advance."""

    failure: FailClass
    where: str  # the offending row: ``toolUse/g1``, ``protocolState``, ``governanceProfile/evalGate``
    message: str
    call_id: str = ""  # call_id and join_digest identify the turn; sort_findings() sets both
    join_digest: str | None = None

    @property
    def law(self) -> str:
        """The violated section of the specification, which has one section per state."""
        return f"HARNESS-TYPESTATE-4.{self.failure.blocks + 1}"

    @property
    def id(self) -> str:
        """An id that depends on class, law, row and turn, not on the message."""
        key = {
            "schema": 1,
            "class": self.failure.name,
            "lawRef": self.law,
            "tokenPath": self.where,
            "context": {"callId": self.call_id, "joinSetDigest": self.join_digest},
        }
        key_hash = base64.b32hexencode(hashlib.sha256(canonical(key)).digest())
        return f"w1_{key_hash.decode().rstrip('=').lower()}"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of the finding, with the remedy of its class."""
        return {
            "id": self.id,
            "class": self.failure.name,
            "lawRef": self.law,
            "where": self.where,
            "message": self.message,
            "remedy": self.failure.remedy,
            "retry": self.failure.retry.value,
            "blocks": self.failure.blocks.title,
        }


def row_pointer(rows: str, name: object) -> str:
    """Return the place of a row for a finding: the name of its list and its id."""
    token = str(name)
    if "~" in token or "/" in token:
        token = token.replace("~", "~0").replace("/", "~1")
    return f"{rows}/{token}"


def sort_findings(findings: Iterable[Finding], call_id: str, join_digest: str | None) -> tuple[Finding, ...]:
    """Return one finding per class and place, with all messages joined, sorted by class and place."""
    messages: dict[tuple[str, str], dict[str, None]] = {}
    first_findings: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.failure.name, finding.where)
        first_findings.setdefault(key, finding)
        messages.setdefault(key, {})[finding.message] = None
    return tuple(
        replace(first_findings[key], message="; ".join(sorted(messages[key])), call_id=call_id, join_digest=join_digest)
        for key in sorted(first_findings)
    )


BACKOFFS: Final = ("none", "fixed_short", "exponential_short")


class NextStep(Enum):
    SAME_TURN = "same_turn"  # check the same turn again, with more evidence
    NEW_TURN = "new_turn"  # make another turn, with the failure as its input
    STOP = "stop"


class Escalation(Enum):
    """The action after the last attempt."""

    ISSUE_DISCOVER = "issue_discover"  # create a child of the current issue
    MARK_BLOCKED = "mark_blocked"  # set the status of the issue to blocked
    STOP = "stop"  # end without an action


ESCALATIONS: Final = tuple(action.value for action in Escalation)


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often a turn may be attempted if a class fails it, and the escalation after the last attempt."""

    max_attempts: int
    backoff: str  # one of BACKOFFS
    escalation: Escalation


_DEFAULT_RULES: Final = {
    RetryKind.EVIDENCE: RetryRule(2, "fixed_short", Escalation.ISSUE_DISCOVER),
    RetryKind.TURN: RetryRule(2, "none", Escalation.ISSUE_DISCOVER),
    RetryKind.NEVER: RetryRule(1, "none", Escalation.MARK_BLOCKED),
}
RETRY_KINDS: Final = {
    **{name: failure.retry for name, failure in CLASSES.items()},
    **dict.fromkeys(("work_failed", "verify_failed"), RetryKind.TURN),  # the command of `manglecp harness work` failed
}
_STRICTEST_FIRST: Final = (RetryKind.NEVER, RetryKind.TURN, RetryKind.EVIDENCE)
_NEXT_STEPS: Final = {RetryKind.EVIDENCE: NextStep.SAME_TURN, RetryKind.TURN: NextStep.NEW_TURN}  # NEVER has none


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The next step, and the remaining attempts."""

    next: NextStep
    decided_by: str  # the class whose rule decides
    attempts_left: int
    backoff: str
    escalation: Escalation | None  # None if there is a retry


class RetryPolicy:
    """The default rules of the failure classes, changed by ``document``, a validated ``retry`` document.

    If a class has no attempts left, its rule decides to stop. Otherwise the strictest class decides (upstream: the
    first class by name that has a rule). A class that is never retried has one attempt, which no document can change.
    The backoff is a name only: the caller waits.
    """

    def __init__(self, document: Mapping[str, Any] | None = None) -> None:
        self.rules: Final = {name: _DEFAULT_RULES[kind] for name, kind in RETRY_KINDS.items()}
        for rule in (document or {"rules": ()})["rules"]:
            for name in rule["classes"]:
                if RETRY_KINDS[name] is RetryKind.NEVER and rule["maxAttempts"] > 1:
                    raise ValueError(f"{name} is never retried")
                escalation = Escalation(rule["escalationAction"])
                self.rules[name] = RetryRule(rule["maxAttempts"], rule.get("backoffClass", "none"), escalation)

    def decide(self, failure_classes: Iterable[str], attempt: int) -> RetryDecision:
        """Return the step after attempt number ``attempt`` (from 1) failed with these classes."""
        if attempt < 1:
            raise ValueError(f"attempts are counted from 1, not from {attempt}")
        names = sorted(set(failure_classes), key=lambda name: (_STRICTEST_FIRST.index(RETRY_KINDS[name]), name))
        if not names:
            raise ValueError("no failure class was given")
        attempts_left = {name: self.rules[name].max_attempts - attempt for name in names}
        if exhausted := next((name for name in names if attempts_left[name] <= 0), None):
            return RetryDecision(NextStep.STOP, exhausted, 0, "none", self.rules[exhausted].escalation)
        strictest_class = names[0]
        step = _NEXT_STEPS[RETRY_KINDS[strictest_class]]
        backoff, least_left = self.rules[strictest_class].backoff, min(attempts_left.values())
        return RetryDecision(step, strictest_class, least_left, backoff, escalation=None)
