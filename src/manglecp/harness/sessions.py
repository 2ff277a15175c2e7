"""The loop of an agent, turn by turn, and its trajectory.

    with harness.AgentSession(policy, "s-17", model_ref="atlas@7") as s:
        turn = s.turn(prompt_digest=digest_text(prompt))
        turn.request({"toolCallId": "c1", "toolName": "repo.grep", "input": {...}})    # TurnBlocked: do not run it
        turn.answer({"toolCallId": "c1", "status": "ok", "payload": found})
        ready = turn.close("end_turn").authorize({"kind": "issue", "action": "issue.update", ...})

A turn that cannot close may get more evidence and close again. Every turn, also a failed one, appends a row to the
trajectory: digests and classes only, hash-chained. The journal and the clock are passed in.
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
from manglecp.harness.states import CallSpec, JoinClosed, Row, TurnBlocked
from manglecp.harness.turn import TurnBuilder

Lookup: TypeAlias = Callable[[str], str | None]
"""Returns the digest of the artifact under a reference; None if it does not exist."""


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
    """Return the row of a handoff, with its digest."""
    row: dict[str, Any] = {"target": trim(target), "requiredArtifactRefs": sorted({trim(ref) for ref in artifact_refs})}
    if return_path_ref is not None:
        row["returnPathRef"] = trim(return_path_ref)
    if intent is not None:
        row["intent"] = trim(intent)
    if trimmed := [trim(constraint) for constraint in constraints]:
        row["constraints"] = trimmed
    return {**row, "packetDigest": digest(row)}


class Journal(Protocol):
    """The sink of trajectory rows."""

    def append(self, row: Mapping[str, Any], /) -> object:
        """Store the next row. If it raises, the row is not part of the trajectory."""


def verify_trajectory(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the problems of the rows of a session; empty if none was changed, dropped, added or moved.

    Rows missing at the end are not detectable: store the last hash elsewhere.
    """
    problems: list[str] = []
    last = GENESIS
    for number, row in enumerate(rows):
        if row.get("sequence") != number:
            problems.append(f"row {number}: its sequence is {row.get('sequence')}")
        if row.get("prevHash") != last:
            problems.append(f"row {number}: its prevHash is not the hash of the row before it")
        if row.get("rowHash") != row_hash(row, "rowHash"):
            problems.append(f"row {number}: its hash does not match its contents")
        last = str(row.get("rowHash"))
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
        """``model_ref`` may also be given per turn, as ``modelRef`` of its call spec.

        ``pinned`` is the digest in the pin of the package; ``journal`` stores the rows of the trajectory; ``clock``
        returns their time as RFC 3339 text.
        """
        self.policy = policy
        self.id = session_id
        self.terms = policy.terms(pinned=pinned, risk_tier=risk_tier, approval_ref=approval_ref)
        self._journal: Journal = [] if journal is None else journal
        self._rows = 0
        self._last_hash = GENESIS
        self._choices = {"model_ref": model_ref, "role": role, "risk_tier": risk_tier}
        self._clock = clock
        self._turn: OpenTurn | None = None
        self._turns = 0

    @property
    def ref(self) -> str:
        return f"session://{self.id}"

    def trajectory_ref(self, turn: int) -> str:
        return f"trajectory://{self.id}/{turn}"

    def __enter__(self) -> Self:
        self._record({"kind": "session.start", "policyDigest": self.policy.digest})
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_turn()
        self._record({"kind": "session.stop", "turns": self._turns, "failed": kind is not None})

    def turn(self, call_spec: Row | None = None, *, prompt_digest: str | None = None, **choices: Any) -> OpenTurn:
        """Return the next turn. Raises :class:`StepRefused` if the stop policy or the end of the last turn forbids it.

        ``choices`` are those of :meth:`.PolicyPackage.call_spec`: ``action_mode``, ``execution_pattern`` and so on;
        ``call_spec`` adds fields, and cannot replace those that the policy sets.
        """
        self._end_turn()
        number = self._turns + 1
        if self._turn is not None and self._turn.obstacles:
            raise StepRefused(self._turn.obstacles)
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
        self._turns, self._turn = number, turn
        return turn

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.end()

    def _record(self, members: Row) -> None:
        at = {} if self._clock is None else {"at": self._clock()}
        row = {**members, **at, "sessionId": self.id, "sequence": self._rows, "prevHash": self._last_hash}
        row["rowHash"] = row_hash(row, "rowHash")
        self._journal.append(row)
        self._last_hash = row["rowHash"]
        self._rows += 1


class OpenTurn:
    """An open turn, created by :meth:`AgentSession.turn`."""

    def __init__(self, session: AgentSession, number: int, call_spec: Row) -> None:
        self.session = session
        self.number = number
        self.call_spec = dict(call_spec)
        self.attempts = 0
        self.closed: JoinClosed | None = None
        self._judgement: Judgement | None = None  # kept, because authorising a mutation spends the closed state
        self.obstacles: tuple[Finding, ...] = ()
        """Findings that forbid another turn after this one."""
        self._classes: tuple[str, ...] = ()
        self._ended = False
        refs = {"sessionRefs": [session.ref], "trajectoryRefs": [session.trajectory_ref(number)]}
        self._builder = TurnBuilder.open(self.call_spec, session.terms).with_evidence(refs)
        CallSpec.of(self._builder)  # raises TurnBlocked for a turn that cannot begin
        self._accept({"protocolState": {"stopReason": "end_turn", "turnIndex": number}}, execution.check_stop_policy)

    def request(self, *rows: Row) -> None:
        """Record calls of the model. Raises :class:`.TurnBlocked` if one is not permitted; then run none of them.

        Calls and results are ordered as recorded, unless a row has an explicit position.
        """
        self._add_in_order("toolRequests", "ordinal", rows)
        self._refuse(TurnState.TOOL_REQUESTS)

    def answer(self, *rows: Row) -> None:
        """Record results. Raises :class:`.TurnBlocked` if a call left its boundary."""
        self._add_in_order("toolResults", "sequence", rows)
        self._refuse(TurnState.TOOL_RESULTS)

    def use(self, *rows: Row) -> None:
        self.add("toolUse", *rows)

    def add(self, member: str, *rows: Row) -> None:
        """Record rows of other kinds: ``guardrailDecisions``, ``artifacts``, ``contextAccess`` and so on."""
        self._record({member: [dict(row) for row in rows]})

    def _record(self, more: Row, *checks: Check) -> None:
        """Add evidence. Raises :class:`StepRefused` if one of the checks finds something."""
        if self._ended:
            raise RuntimeError("the turn has ended")
        self._builder = self._accept(more, *checks)

    def _accept(self, more: Row, *checks: Check) -> TurnBuilder:
        builder = self._builder.with_evidence(more)
        if findings := _run_checks(builder, *checks):
            raise StepRefused(findings)
        return builder

    def _add_in_order(self, member: str, position: str, rows: Sequence[Row]) -> None:
        known = len(self._builder.member(member) or ())
        self.add(member, *({position: known + number, **row} for number, row in enumerate(rows)))

    def render(self, tool_call_id: str, shown: Any, reminder: str, injection_point: str = "tool_response") -> None:
        """Record how a result was shown to the operator and to the model."""
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
        """Record the injected reminders, after reduction."""
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
        """Record a view of the state that decisions were based on."""
        self.add(
            "stateViews",
            {
                "viewId": view_id,
                "viewDigest": digest(content),
                "policyDigest": self.call_spec["stateViewPolicyDigest"],
                "sourceRefs": list(source_refs),
            },
        )

    def hand_over(self, packet: Row, lookup: Lookup) -> None:
        """Hand over with a :func:`handoff_packet`. Raises :class:`StepRefused` if it violates the contract."""
        rows = _artifact_rows(packet["requiredArtifactRefs"], lookup)
        self._record({"handoff": dict(packet), "artifacts": rows}, mutation.check_packet)

    def compact(self, compaction: Row) -> None:
        """Record a compaction. Raises :class:`StepRefused` if required references would be lost."""
        self._record({"compaction": dict(compaction)}, execution.check_compaction)

    def resume(self, continuity: Row, lookup: Lookup) -> None:
        """Record the origin of the turn. Raises :class:`StepRefused` if it does not exist."""
        rows = _artifact_rows(continuity.get("artifactRefs", ()), lookup)
        self._record(
            {"continuity": dict(continuity), "artifacts": rows}, execution.check_compaction, mutation.check_descent
        )

    def close(
        self, stop_reason: str, *, iteration: int | None = None, checkpoint_ref: str | None = None, go_on: bool = True
    ) -> JoinClosed:
        """Close the turn. Raises :class:`.TurnBlocked`; then see :meth:`retry`.

        ``go_on`` is the intent of the loop; the stop policy and protocol state policy decide.
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
            self._classes = tuple(sorted({finding.failure.name for finding in blocked.findings}))
            raise
        self._classes = ()
        self._judgement = self.closed.judgement
        return self.closed

    def retry(self) -> RetryDecision:
        """Return the decision after the last failed attempt to close."""
        return self.session.policy.retry.decide(self._classes, self.attempts)

    def end(self) -> None:
        """Append the row of the turn to the trajectory. No evidence is accepted afterwards."""
        if self._ended:
            return
        self._ended = True
        judged = {}
        if self._judgement is not None:
            judged = {"witnessId": self._judgement.witness_id, "digests": dict(self._judgement.digests)}
        self.session._record(
            {
                "kind": "turn",
                "turn": self.number,
                "ref": self.session.trajectory_ref(self.number),
                "callId": self.call_spec["callId"],
                "attempts": self.attempts,
                "closed": self.closed is not None,
                "failureClasses": list(self._classes),
                **judged,
            }
        )

    def _refuse(self, state: TurnState) -> None:
        if findings := find_blocking(self._builder.turn, state):
            self._classes = tuple(sorted({finding.failure.name for finding in findings}))
            raise TurnBlocked(state, findings)


def _run_checks(builder: TurnBuilder, *checks: Check) -> tuple[Finding, ...]:
    return tuple(finding for check in checks for finding in check(builder.turn))


def _artifact_rows(refs: Iterable[str], lookup: Lookup) -> list[dict[str, Any]]:
    """Return the ``artifacts`` rows of these references, with the current digests."""
    digests = {ref: lookup(ref) for ref in refs}
    return [{"ref": ref, "exists": digest is not None, "digest": digest} for ref, digest in digests.items()]
