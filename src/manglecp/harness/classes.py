"""The states of a turn, the 42 failure classes that block them, and findings.

    CallSpec -> ToolRequests -> ToolResults -> ToolUse -> JoinClosed -> MutationReady

Each failure class blocks a state: while a finding has this class, the turn cannot reach that state or a later one. A
turn is **closed** if no finding blocks JoinClosed or an earlier state; it may **mutate** if it has no finding at all,
and a mutation intent. :mod:`.checks` derive findings from evidence; a claim of the runtime can add a finding, never
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
    trigger: str  # what raises it, for the reference
    remedy: str

    @property
    def blocks_join(self) -> bool:
        """Whether the class blocks JoinClosed, not only a mutation."""
        return self.blocks <= TurnState.JOIN_CLOSED

    def at(self, where: str, message: str) -> Finding:
        return Finding(self, where, message)


# Abbreviations, so that each class of the table has one line for its name, state and retry.
_CS, _RQ, _RS, _JC, _MR = (
    TurnState.CALL_SPEC,
    TurnState.TOOL_REQUESTS,
    TurnState.TOOL_RESULTS,
    TurnState.JOIN_CLOSED,
    TurnState.MUTATION_READY,
)
_E, _T, _N = RetryKind.EVIDENCE, RetryKind.TURN, RetryKind.NEVER

# fmt: off
SCHEMA: Final = FailClass(
    "tool.schema_invalid", _RQ, _T,
    "a call, a result or a use row is not of the shape that the policy, the mode or the row's own kind demands",
    "repair the row: arguments that fit the pinned schema, a typed error envelope, an output digest, a reason",
)
DISALLOWED: Final = FailClass(
    "tool.unknown_or_disallowed", _RQ, _N,
    "a tool was called that is not on the allow-list, not in the catalogue, not the one demanded, or was blocked",
    "call a listed tool, or have the tool policy changed and pinned",
)
MISMATCH: Final = FailClass(
    "tool.discovery_mismatch", _RQ, _E,
    "a tool search, the catalogue or the loading policy is not the one that the call spec is bound to",
    "repeat the search over the pinned catalogue and record its digests",
)
UNRESOLVED: Final = FailClass(
    "tool.discovery_unresolved", _RQ, _T,
    "a deferred tool was called that no recorded search found",
    "search for the tool first and call it under the name that the search resolved",
)
EXAMPLES: Final = FailClass(
    "tool.example_digest_mismatch", _RQ, _N,
    "the examples shown with a tool are not those that the call spec pins",
    "restore the pinned examples, or pin the new ones",
)
CALLER: Final = FailClass(
    "tool.caller_not_allowed", _RQ, _N,
    "the caller of a tool is not in its list of callers, or that list is not the pinned one",
    "call it from where it may be called, or have the list changed and pinned",
)
RESULT_MISSING: Final = FailClass(
    "tool.result_missing", _JC, _E,
    "a requested call has no terminal result",
    "wait for the result, or record the call as an error with a typed envelope",
)
ORPHAN: Final = FailClass(
    "tool.result_orphan", _JC, _E,
    "a terminal result belongs to a call that was not requested",
    "record the request it belongs to, or drop the row from the evidence at its source",
)
INCOMPLETE: Final = FailClass(
    "tool.join_incomplete", _JC, _E,
    "requests, results and uses do not match one another, or a branch is still open",
    "repair what the other findings name; close every branch",
)
USE_MISSING: Final = FailClass(
    "tool.use_missing", _JC, _E,
    "a terminal result has no use row",
    "record the use of the result: consumed, observed_only, discarded_with_reason or retry_scheduled",
)
UNKNOWN_RESULT: Final = FailClass(
    "tool.use_unknown_result", _JC, _T,
    "a use row cites a digest that the result does not have, or a result that is not terminal",
    "cite the digest of the recorded result, after it is terminal",
)
NO_RESULT: Final = FailClass(
    "tool.use_without_result", _JC, _T,
    "a use row names a call that never had a result",
    "drop the use row, or record the result that it cites",
)
PARALLEL: Final = FailClass(
    "tool.parallel_policy_violation", _RQ, _T,
    "there are more or other branches than the parallel policy admits",
    "spread the calls over several turns, or have the policy changed and pinned",
)
EDGE: Final = FailClass(
    "tool.programmatic_caller_edge_invalid", _RS, _E,
    "a call made by a program has no valid edge to the program that made it",
    "record the caller edge: the code_execution call as parent, this call as child",
)
TRUNCATION: Final = FailClass(
    "tool.response_truncation_policy_violation", _RS, _E,
    "a payload is over the budget, or was cut without metadata or otherwise than the policy requires",
    "cut the payload as the policy requires, and record sizes, marker and strategy",
)
STOP: Final = FailClass(
    "protocol.stop_reason_unhandled", _JC, _T,
    "the stop reason is not handled or forbids a continuation, or a turn budget or checkpoint is due",
    "handle the reason in the protocol state policy, stop, or record the checkpoint",
)
ORDER: Final = FailClass(
    "protocol.parallel_transport_order_invalid", _JC, _E,
    "calls and outputs were not transported in the order, or in the number, that the transport policy fixes",
    "send the results in the order of their calls and record positions on both sides",
)
BOUNDARY: Final = FailClass(
    "runtime.shell_boundary_violation", _RS, _N,
    "a shell row lacks its boundary evidence or left its boundary, or a file was edited by means not allowed",
    "run in the sandbox, in a working directory inside the roots, and edit by an allowed surface",
)
COMPACTION: Final = FailClass(
    "runtime.compaction_state_invalid", _JC, _E,
    "context was compacted without a policy or under another one, or a required reference was lost",
    "compact under the pinned policy and carry every required reference and every open call",
)
QUEUE: Final = FailClass(
    "context.queue_policy_violation", _JC, _E,
    "reminders were queued, reduced, batched, filtered or rendered otherwise than the pinned policies require",
    "rebuild the queue, the views and the renders under the pinned policies",
)
INJECTION: Final = FailClass(
    "context.injection_point_missing", _JC, _E,
    "a result was never rendered for the model, a state view is absent, or an injection point is not allowed",
    "render every terminal result at an allowed injection point and record a state view",
)
SCOPE: Final = FailClass(
    "context.scope_violation", _RS, _N,
    "a role read or wrote outside of its scope, or the scope is not the pinned one",
    "stay within the prefixes of the role, or hand the work to the role that owns them",
)
DECOMPOSITION: Final = FailClass(
    "coordination.decomposition_policy_violation", _RQ, _T,
    "the work was split, looped or fanned out in a way that the decomposition policy does not admit",
    "choose an admitted pattern and width; give autonomous patterns their measured trigger",
)
UNKNOWN_CLAIM_ID: Final = FailClass(
    "governance.claim_id_invalid", _CS, _N,
    "the governance profile claims an identity that is not known",
    "claim profile.doctrine_inf_governance.v0, or nothing",
)
UNPINNED: Final = FailClass(
    "governance.policy_package_unpinned", _CS, _N,
    "the run claims governance without a pinned policy package",
    "pin the package: reference, expected digest and bound digest",
)
PACKAGE: Final = FailClass(
    "governance.policy_package_mismatch", _CS, _N,
    "the package in force is not the one that was pinned",
    "load the pinned package, or promote and pin the new one",
)
STAGE_MISSING: Final = FailClass(
    "governance.guardrail_stage_missing", _JC, _N,
    "a required guardrail stage has no decision",
    "run the guardrails of every required stage and record their decisions",
)
STAGE_ORDER: Final = FailClass(
    "governance.guardrail_stage_order_invalid", _JC, _N,
    "guardrail decisions are not in the order pre_flight, input, output",
    "run the stages in their order",
)
EVAL: Final = FailClass(
    "governance.eval_gate_unmet", _MR, _N,
    "the evaluation did not pass, or a measured value is under its floor",
    "improve the policy until every thresholded metric reaches its floor",
)
LINEAGE: Final = FailClass(
    "governance.eval_lineage_missing", _MR, _N,
    "the evaluation cannot be traced to its data set, grader, thresholds or benchmark",
    "record the three lineage references, of the benchmark that the call spec names",
)
RED_TEAM: Final = FailClass(
    "governance.redteam_gate_unmet", _MR, _N,
    "the adversarial regression did not run in full, or had too many failures",
    "run every required plugin and strategy with enough probes and attach the report",
)
RETRY: Final = FailClass(
    "governance.self_evolution_retry_missing", _MR, _N,
    "an automated policy change has no bound on its attempts",
    "declare the number of attempts, at least one",
)
ESCALATION: Final = FailClass(
    "governance.self_evolution_escalation_missing", _MR, _N,
    "an automated policy change has no owner to escalate to",
    "name the owner",
)
ROLLBACK: Final = FailClass(
    "governance.self_evolution_rollback_missing", _MR, _N,
    "an automated policy change has no version to roll back to",
    "name the version",
)
TRACE: Final = FailClass(
    "governance.trace_mode_violation", _CS, _N,
    "traces go, or may go, where the observability mode forbids",
    "choose an admitted mode, name its processor, and export nothing while tracing is disabled",
)
RISK: Final = FailClass(
    "governance.risk_tier_profile_missing", _CS, _N,
    "the risk tier is unknown, has no control profile, or lacks the human approval it demands",
    "bind the control profile of the tier and record the approval",
)
ARTIFACT: Final = FailClass(
    "handoff.required_artifact_missing", _JC, _E,
    "an artifact or packet field that the contract requires is missing",
    "produce the artifact, record its digest, and carry its reference in the packet",
)
TARGET: Final = FailClass(
    "handoff.target_not_allowed", _JC, _N,
    "the target of the handoff is not admitted by the contract, or the contract is another one",
    "hand over to an admitted target of the acting role",
)
RETURN: Final = FailClass(
    "handoff.return_path_missing", _JC, _E,
    "the contract requires a return path, and the packet has none",
    "put the return path into the packet",
)
POLICY: Final = FailClass(
    "mutation.policy_digest_mismatch", _MR, _N,
    "the mutation policy in force is not the one that the turn was made under",
    "make the turn again under the active policy",
)
CLAIM: Final = FailClass(
    "mutation.capability_claim_missing", _MR, _N,
    "the intent does not claim a capability that the action needs",
    "claim the base capability and the one of the action, if the instruction grants them",
)
EVIDENCE: Final = FailClass(
    "mutation.use_evidence_missing", _MR, _E,
    "the mutation depends on an input that no consumed result, instruction, session or trajectory carries",
    "trace every input to a consumed result with provenance and link the turn to its session or trajectory",
)
# fmt: on

CLASSES: Final = {value.name: value for value in [*globals().values()] if isinstance(value, FailClass)}


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why a turn cannot advance."""

    failure: FailClass
    where: str  # the offending row: ``toolUse/g1``, ``protocolState``, ``governanceProfile/evalGate``
    message: str
    call_id: str = ""  # this and the next one identify the turn; sort_findings() sets them
    join_digest: str | None = None

    @property
    def law(self) -> str:
        """The violated section of the specification; it has one section per state."""
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
        hashed = base64.b32hexencode(hashlib.sha256(canonical(key)).digest())
        return f"w1_{hashed.decode().rstrip('=').lower()}"

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
    """The total number of attempts of a class, and the escalation after the last one."""

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
    **dict.fromkeys(("work_failed", "verify_failed"), RetryKind.TURN),  # a command of a worker failed
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

    A class without attempts left decides to stop; otherwise the strictest class decides (upstream: the first one by
    name that has a rule). A class that is never retried has one attempt, which no document can change. The backoff is a
    label; the caller waits.
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
        exhausted = [name for name in names if attempts_left[name] <= 0]
        if exhausted:
            return RetryDecision(NextStep.STOP, exhausted[0], 0, "none", self.rules[exhausted[0]].escalation)
        strictest = names[0]
        step = _NEXT_STEPS[RETRY_KINDS[strictest]]
        backoff, least_left = self.rules[strictest].backoff, min(attempts_left.values())
        return RetryDecision(step, strictest, least_left, backoff, escalation=None)
