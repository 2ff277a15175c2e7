"""The loop of an agent, turn by turn, and its trajectory.

    with harness.AgentSession(policy, "s-17", model_ref="atlas@7") as s:
        turn = s.turn(prompt_digest=digest_text(prompt))
        turn.request({"toolCallId": "c1", "toolName": "repo.grep", "input": {...}})    # TurnBlocked: do not run it
        turn.answer({"toolCallId": "c1", "status": "ok", "payload": found})
        ready = turn.close("end_turn").authorize({"kind": "issue", "action": "issue.update", ...})

If a turn cannot close, the caller may add evidence and close it again. Every turn, also a failed one, appends a row to
the trajectory, a hash chain: digests and failure classes only. The caller passes the journal and the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

from manglecp.base.digest import digest_text
from manglecp.base.hash_chain import GENESIS, row_hash
from manglecp.base.text import trim
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.checks import Check, execution, mutation
from manglecp.harness.classes import Finding, RetryDecision, TurnState
from manglecp.harness.judgement import Judgement, find_blocking
from manglecp.harness.policy.package import PolicyPackage
from manglecp.harness.states import CallSpec, JoinClosed, JsonObject, TurnBlocked
from manglecp.harness.turn import TurnBuilder

Lookup: TypeAlias = Callable[[str], str | None]
"""Returns the digest of the artifact with this reference; None if it does not exist."""


class StepRefused(Exception):
    """The step would block the turn, so it was not recorded; ``findings`` has the reasons."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("; ".join(f"{finding.failure.name}: {finding.message}" for finding in findings))
        self.findings = tuple(findings)


def handoff_packet(
    target: str,
    *,
    artifact_refs: Iterable[str] = (),
    return_path_ref: str | None = None,
    intent: str | None = None,
    constraints: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the evidence row of a handoff, with its digest."""
    row: dict[str, Any] = {"target": trim(target), "requiredArtifactRefs": sorted({trim(ref) for ref in artifact_refs})}
    if return_path_ref is not None:
        row["returnPathRef"] = trim(return_path_ref)
    if intent is not None:
        row["intent"] = trim(intent)
    if trimmed := [trim(constraint) for constraint in constraints]:
        row["constraints"] = trimmed
    return {**row, "packetDigest": digest(row)}


class Journal(Protocol):
    """Stores the rows of a trajectory; a list is one."""

    def append(self, row: Mapping[str, Any], /) -> object:
        """Store the next row. If it raises, the row is not part of the trajectory."""


def verify_trajectory(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the problems of the rows of a session; empty if none was changed, dropped, added or moved.

    Rows that are missing at the end cannot be detected: store the last hash elsewhere.
    """
    problems: list[str] = []
    previous_hash = GENESIS
    for number, row in enumerate(rows):
        if row.get("sequence") != number:
            problems.append(f"row {number}: its sequence is {row.get('sequence')}")
        if row.get("prevHash") != previous_hash:
            problems.append(f"row {number}: its prevHash is not the hash of the row before it")
        if row.get("rowHash") != row_hash(row, "rowHash"):
            problems.append(f"row {number}: its hash does not match its contents")
        previous_hash = str(row.get("rowHash"))
    return problems


class AgentSession:
    """Turns under one policy package; a context manager."""

    def __init__(
        self,
        policy: PolicyPackage,
        session_id: str,
        *,
        model_ref: str | None = None,
        journal: Journal | None = None,
        pinned: str | None = None,
        role: str | None = None,
        risk_tier: str | None = None,
        approval_ref: str | None = None,
        clock: Callable[[], str] | None = None,
    ) -> None:
        """``model_ref`` may be missing if each turn has a ``modelRef`` in its call spec.

        ``pinned`` is the digest in the pin of the package; ``journal`` stores the rows of the trajectory; ``clock``
        returns their time as RFC 3339 text.
        """
        self.policy = policy
        self.id = session_id
        self.terms = policy.terms(pinned=pinned, risk_tier=risk_tier, approval_ref=approval_ref)
        self._journal: Journal = [] if journal is None else journal
        self._row_count = 0
        self._last_hash = GENESIS
        self._choices = {"model_ref": model_ref, "role": role, "risk_tier": risk_tier}
        self._clock = clock
        self._last_turn: OpenTurn | None = None
        self._turn_count = 0

    @property
    def ref(self) -> str:
        return f"session://{self.id}"

    def trajectory_ref(self, turn: int) -> str:
        return f"trajectory://{self.id}/{turn}"

    def __enter__(self) -> Self:
        self._record({"kind": "session.start", "policyDigest": self.policy.digest})
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._end_turn()
        self._record({"kind": "session.stop", "turns": self._turn_count, "failed": error_type is not None})

    def turn(
        self, call_spec: JsonObject | None = None, *, prompt_digest: str | None = None, **choices: Any
    ) -> OpenTurn:
        """End the last turn and return the next one.

        ``choices`` are parameters of :meth:`.PolicyPackage.call_spec`: ``action_mode``, ``execution_pattern`` and so
        on; ``call_spec`` adds fields, and cannot replace those that the policy sets. Raises :class:`StepRefused` if the
        stop policy or the end of the last turn forbids another turn.
        """
        self._end_turn()
        number = self._turn_count + 1
        if self._last_turn is not None and self._last_turn.obstacles:
            raise StepRefused(self._last_turn.obstacles)
        chosen = {**self._choices, **choices}
        chosen["model_ref"] = chosen["model_ref"] or (call_spec or {}).get("modelRef")
        if chosen["model_ref"] is None:
            raise ValueError("the model is missing: pass modelRef with the turn, or model_ref with the session")
        fields = self.policy.call_spec(
            session_id=self.id,
            turn_index=number,
            prompt_digest=digest_text("") if prompt_digest is None else prompt_digest,
            **chosen,
        )
        for name, value in (call_spec or {}).items():
            if fields.setdefault(name, value) != value:
                raise ValueError(f"{name} is fixed by the policy {self.policy.ref}")
        turn = OpenTurn(self, number, fields)
        self._turn_count, self._last_turn = number, turn
        return turn

    def _end_turn(self) -> None:
        if self._last_turn is not None:
            self._last_turn.end()

    def _record(self, members: JsonObject) -> None:
        """Append a row to the journal."""
        at = {} if self._clock is None else {"at": self._clock()}
        row = {**members, **at, "sessionId": self.id, "sequence": self._row_count, "prevHash": self._last_hash}
        row["rowHash"] = row_hash(row, "rowHash")
        self._journal.append(row)
        self._last_hash = row["rowHash"]
        self._row_count += 1


class OpenTurn:
    """An open turn, created by :meth:`AgentSession.turn`."""

    def __init__(self, session: AgentSession, number: int, call_spec: JsonObject) -> None:
        self.session = session
        self.number = number
        self.call_spec = dict(call_spec)
        self.attempts = 0  # to close the turn
        self.closed: JoinClosed | None = None
        self._judgement: Judgement | None = None  # of ``closed``, which has none after authorize() has spent it
        self.obstacles: tuple[Finding, ...] = ()  # findings that forbid another turn after this one
        self._failure_classes: tuple[str, ...] = ()  # of the last step that was blocked
        self._ended = False
        refs = {"sessionRefs": [session.ref], "trajectoryRefs": [session.trajectory_ref(number)]}
        self._builder = TurnBuilder.open(self.call_spec, session.terms).with_evidence(refs)
        CallSpec.of(self._builder)  # raises TurnBlocked for a turn that cannot begin
        # Raises StepRefused if the stop policy forbids a turn with this number; the protocol state is not recorded.
        self._extend({"protocolState": {"stopReason": "end_turn", "turnIndex": number}}, execution.check_stop_policy)

    def request(self, *rows: JsonObject) -> None:
        """Record calls of the model. Raises :class:`.TurnBlocked` if one is not permitted; then run none of them.

        Calls and results get positions in the order of recording, unless a row has an ``ordinal`` or ``sequence``.
        """
        self._add_in_order("toolRequests", "ordinal", rows)
        self._raise_if_blocked(TurnState.TOOL_REQUESTS)

    def answer(self, *rows: JsonObject) -> None:
        """Record results. Raises :class:`.TurnBlocked` if a call left its boundary."""
        self._add_in_order("toolResults", "sequence", rows)
        self._raise_if_blocked(TurnState.TOOL_RESULTS)

    def use(self, *rows: JsonObject) -> None:
        self.add("toolUse", *rows)

    def add(self, member: str, *rows: JsonObject) -> None:
        """Record rows of other kinds: ``guardrailDecisions``, ``artifacts``, ``contextAccess`` and so on."""
        self._record({member: [dict(row) for row in rows]})

    def _record(self, evidence: JsonObject, *checks: Check) -> None:
        """Add evidence. Raises :class:`StepRefused` if one of the checks has a finding; then nothing is added."""
        if self._ended:
            raise RuntimeError("the turn has ended")
        self._builder = self._extend(evidence, *checks)

    def _extend(self, evidence: JsonObject, *checks: Check) -> TurnBuilder:
        builder = self._builder.with_evidence(evidence)
        if findings := _run_checks(builder, *checks):
            raise StepRefused(findings)
        return builder

    def _add_in_order(self, member: str, position: str, rows: Sequence[JsonObject]) -> None:
        start = len(self._builder.member(member) or ())
        self.add(member, *({position: number, **row} for number, row in enumerate(rows, start)))

    def render(self, tool_call_id: str, shown: Any, reminder: str, injection_point: str = "tool_response") -> None:
        """Record how a result was shown: ``shown`` to the operator, ``reminder`` to the model."""
        self.add(
            "toolRender",
            {
                "toolCallId": tool_call_id,
                "operatorPayloadDigest": digest(shown),
                "reminderRenderDigest": digest_text(reminder),
                "injectionPoint": injection_point,
                "policyDigest": self.call_spec["toolRenderProtocolDigest"],
            },
        )

    def queue(self, queue_id: str, reminders: Sequence[str]) -> None:
        """Record the reminders that the model read, after they were reduced."""
        entries = [{"reminderDigest": digest_text(reminder)} for reminder in reminders]
        self.add(
            "reminderQueue",
            {
                "queueId": queue_id,
                "reducedDigest": digest(entries),
                "policyDigest": self.call_spec["reminderQueuePolicyDigest"],
                "entries": entries,
            },
        )

    def view(self, view_id: str, content: Any, source_refs: Sequence[str] = ()) -> None:
        """Record a view of the state on which decisions were based."""
        self.add(
            "stateViews",
            {
                "viewId": view_id,
                "viewDigest": digest(content),
                "policyDigest": self.call_spec["stateViewPolicyDigest"],
                "sourceRefs": list(source_refs),
            },
        )

    def hand_over(self, packet: JsonObject, lookup: Lookup) -> None:
        """Hand over with a :func:`handoff_packet`. Raises :class:`StepRefused` if it violates the contract."""
        rows = _look_up_artifacts(packet["requiredArtifactRefs"], lookup)
        self._record({"handoff": dict(packet), "artifacts": rows}, mutation.check_packet)

    def compact(self, compaction: JsonObject) -> None:
        """Record a compaction. Raises :class:`StepRefused` if required references would be lost."""
        self._record({"compaction": dict(compaction)}, execution.check_compaction)

    def resume(self, continuity: JsonObject, lookup: Lookup) -> None:
        """Record the origin of the turn (a ``continuity`` row). Raises :class:`StepRefused` if it does not exist."""
        rows = _look_up_artifacts(continuity.get("artifactRefs", ()), lookup)
        self._record(
            {"continuity": dict(continuity), "artifacts": rows}, execution.check_compaction, mutation.check_descent
        )

    def close(
        self, stop_reason: str, *, iteration: int | None = None, checkpoint_ref: str | None = None, go_on: bool = True
    ) -> JoinClosed:
        """Close the turn. Raises :class:`.TurnBlocked`; then see :meth:`retry`.

        ``go_on`` is whether the caller wants another turn; the stop policy and the protocol state policy may forbid it.
        """
        self.attempts += 1
        self.closed = self._judgement = None
        state = {"stopReason": stop_reason, "turnIndex": self.number}
        state |= {} if iteration is None else {"iteration": iteration}
        state |= {} if checkpoint_ref is None else {"checkpointRef": checkpoint_ref}
        continuing = self._builder.with_evidence({"protocolState": {**state, "continuationAllowed": True}})
        self.obstacles = _run_checks(continuing, execution.check_stop_reason, execution.check_stop_policy)
        stopping = self._builder.with_evidence({"protocolState": {**state, "continuationAllowed": False}})
        try:
            self.closed = JoinClosed.of(continuing if go_on and not self.obstacles else stopping)
        except TurnBlocked as blocked:
            self._failure_classes = _class_names(blocked.findings)
            raise
        self._failure_classes = ()
        self._judgement = self.closed.judgement
        return self.closed

    def retry(self) -> RetryDecision:
        """Return the decision after the last failed attempt to close."""
        return self.session.policy.retry.decide(self._failure_classes, self.attempts)

    def end(self) -> None:
        """Append the row of the turn to the trajectory. No evidence is accepted afterwards."""
        if self._ended:
            return
        self._ended = True
        verdict = {}
        if self._judgement is not None:
            verdict = {"witnessId": self._judgement.witness_id, "digests": dict(self._judgement.digests)}
        self.session._record(
            {
                "kind": "turn",
                "turn": self.number,
                "ref": self.session.trajectory_ref(self.number),
                "callId": self.call_spec["callId"],
                "attempts": self.attempts,
                "closed": self.closed is not None,
                "failureClasses": list(self._failure_classes),
                **verdict,
            }
        )

    def _raise_if_blocked(self, state: TurnState) -> None:
        if findings := find_blocking(self._builder.turn, state):
            self._failure_classes = _class_names(findings)
            raise TurnBlocked(state, findings)


def _class_names(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(sorted({finding.failure.name for finding in findings}))


def _run_checks(builder: TurnBuilder, *checks: Check) -> tuple[Finding, ...]:
    return tuple(finding for check in checks for finding in check(builder.turn))


def _look_up_artifacts(refs: Iterable[str], lookup: Lookup) -> list[dict[str, Any]]:
    """Return the ``artifacts`` rows of these references, with the current digests."""
    digests = {ref: lookup(ref) for ref in refs}
    return [{"ref": ref, "exists": digest is not None, "digest": digest} for ref, digest in digests.items()]
