"""The loop of an agent, turn by turn, and its trajectory.

    async with harness.session(policy, "s-17", model_ref="atlas@7") as s:
        turn = s.turn(prompt_digest=digest_text(prompt))
        turn.request({"toolCallId": "c1", "toolName": "repo.grep", "input": {...}})    # Blocked: do not run it
        turn.answer({"toolCallId": "c1", "status": "ok", "payload": found})
        ready = turn.close("end_turn").authorize({"kind": "issue", "action": "issue.update", ...})

A turn that cannot close may get more evidence and close again. Every turn, also a failed one, appends a row to the
trajectory: digests and classes only, hash-chained. The journal and the clock are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from manglecp.base.digest import digest_text
from manglecp.base.hash_chain import GENESIS, row_hash
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import State
from manglecp.harness.judgement import Judgement, findings_upto
from manglecp.harness.obstacles import (
    Lookup,
    Obstacle,
    artifact_rows,
    obstacles_to_compact,
    obstacles_to_continue,
    obstacles_to_hand_over,
    obstacles_to_resume,
    obstacles_to_start,
    protocol_state,
)
from manglecp.harness.policy.package import PolicyPackage
from manglecp.harness.retry import Decision
from manglecp.harness.states import Blocked, CallSpec, JoinClosed, Row
from manglecp.harness.turn import TurnBuilder

# --- trajectory -------------------------------------------------------------------------------------------------------


class Journal(Protocol):
    """The sink of trajectory rows."""

    def append(self, row: Mapping[str, Any], /) -> object:
        """Store the next row. If it raises, the row is not part of the trajectory."""


class Trajectory:
    """The hash-chained rows of one session."""

    def __init__(self, session_id: str, journal: Journal) -> None:
        self.session_id = session_id
        self._journal = journal
        self._last = GENESIS
        self._count = 0

    def ref(self, number: int) -> str:
        """Return the reference of the row with this number."""
        return f"trajectory://{self.session_id}/{number}"

    def append(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Add number and hashes to a row, append it to the journal, and return it."""
        row = {**members, "sessionId": self.session_id, "sequence": self._count, "prevHash": self._last}
        row["rowHash"] = row_hash(row, "rowHash")
        self._journal.append(row)
        self._last = row["rowHash"]
        self._count += 1
        return row


def verify_trajectory(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the problems of the rows of a session; empty if none was changed, dropped, added or moved.

    Rows missing at the end are not detectable: store the last hash elsewhere.
    """
    wrong: list[str] = []
    last = GENESIS
    for number, row in enumerate(rows):
        if row.get("sequence") != number:
            wrong.append(f"row {number}: its sequence is {row.get('sequence')}")
        if row.get("prevHash") != last:
            wrong.append(f"row {number}: it does not follow the row before it")
        if row.get("rowHash") != row_hash(row, "rowHash"):
            wrong.append(f"row {number}: it is not what was written")
        last = str(row.get("rowHash"))
    return wrong


# --- session ----------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The step would block the turn, so it was not taken."""

    def __init__(self, obstacles: Sequence[Obstacle]) -> None:
        super().__init__("; ".join(map(str, obstacles)))
        self.obstacles = tuple(obstacles)


def session(
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
) -> Session:
    """Return a session under a policy package.

    ``model_ref`` may also be given per turn, as ``modelRef`` of its call spec. ``pinned`` is the digest in the pin of
    the package; ``journal`` stores the rows of the trajectory; ``clock`` returns their time as RFC 3339 text.
    """
    terms = policy.terms(pinned=pinned, risk_tier=risk_tier, approval_ref=approval_ref)
    choices = {"model_ref": model_ref, "role": role, "risk_tier": risk_tier}
    return Session(policy, session_id, terms, choices, [] if journal is None else journal, clock)


class Session:
    """Turns under one policy package, created by :func:`session`; a (async) context manager."""

    def __init__(
        self,
        policy: PolicyPackage,
        session_id: str,
        terms: Row,
        choices: Row,
        journal: Journal,
        clock: Callable[[], str] | None,
    ) -> None:
        self.policy = policy
        self.id = session_id
        self.terms = terms
        self.trajectory = Trajectory(session_id, journal)
        self._choices = choices
        self._clock = clock
        self._turn: Turn | None = None
        self._turns = 0

    @property
    def ref(self) -> str:
        """Return the reference of the session."""
        return f"session://{self.id}"

    def __enter__(self) -> Self:
        self._record({"kind": "session.start", "policyDigest": self.policy.digest})
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_turn()
        self._record({"kind": "session.stop", "turns": self._turns, "failed": kind is not None})

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def turn(self, call_spec: Row | None = None, *, prompt_digest: str | None = None, **choices: Any) -> Turn:
        """Return the next turn. Raises :class:`Refused` if the stop policy or the end of the last turn forbids it.

        ``choices`` are those of :meth:`.PolicyPackage.call_spec`: ``action_mode``, ``execution_pattern`` and so on;
        ``call_spec`` adds fields, and cannot replace those that the policy sets.
        """
        self._end_turn()
        number = self._turns + 1
        obstacles = list(obstacles_to_start(self._stop_policy, turn_index=number))
        if self._turn is not None:
            obstacles += self._turn.obstacles_to_go_on
        if obstacles:
            raise Refused(obstacles)
        chosen = {**self._choices, **choices}
        chosen["model_ref"] = chosen["model_ref"] or (call_spec or {}).get("modelRef")
        if chosen["model_ref"] is None:
            raise ValueError("which model is it? Give modelRef with the turn, or model_ref with the session")
        fields = self.policy.call_spec(
            session_id=self.id,
            turn_index=number,
            prompt_digest=digest_text("") if prompt_digest is None else prompt_digest,
            **chosen,
        )
        for name, value in (call_spec or {}).items():
            if fields.setdefault(name, value) != value:
                raise ValueError(f"{name} is fixed by the policy {self.policy.ref}")
        self._turns = number
        self._turn = Turn(self, number, fields)
        return self._turn

    @property
    def _stop_policy(self) -> Mapping[str, Any]:
        return self.policy.contents.get("stop", {})

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.end()

    def _record(self, members: Row) -> None:
        at = {} if self._clock is None else {"at": self._clock()}
        self.trajectory.append({**members, **at})


class Turn:
    """An open turn, created by :meth:`Session.turn`."""

    def __init__(self, session: Session, number: int, call_spec: Row) -> None:
        self.session = session
        self.number = number
        self.call_spec = dict(call_spec)
        self.attempts = 0
        self.closed: JoinClosed | None = None
        self._judgement: Judgement | None = None
        self.obstacles_to_go_on: tuple[Obstacle, ...] = ()
        self._classes: tuple[str, ...] = ()
        self._ended = False
        refs = {"sessionRefs": [session.ref], "trajectoryRefs": [session.trajectory.ref(number)]}
        self._builder = TurnBuilder.open(self.call_spec, session.terms).with_evidence(refs)
        CallSpec.of(self._builder)  # a turn that cannot begin is Blocked at once

    # --- evidence as it happens ------------------------------------------------------------------------------------

    def request(self, *rows: Row) -> None:
        """Record calls of the model. Raises :class:`.Blocked` if one is not permitted; then run none of them.

        Calls and results are ordered as recorded, unless a row has an explicit position.
        """
        self._add_in_order("toolRequests", "ordinal", rows)
        self._refuse(State.TOOL_REQUESTS)

    def answer(self, *rows: Row) -> None:
        """Record results. Raises :class:`.Blocked` if a call left its boundary."""
        self._add_in_order("toolResults", "sequence", rows)
        self._refuse(State.TOOL_RESULTS)

    def use(self, *rows: Row) -> None:
        """Record the uses of results."""
        self.add("toolUse", *rows)

    def add(self, member: str, *rows: Row) -> None:
        """Record rows of other kinds: ``guardrailDecisions``, ``artifacts``, ``contextAccess`` and so on."""
        self._record({member: [dict(row) for row in rows]})

    def _record(self, more: Row) -> None:
        if self._ended:
            raise RuntimeError("the turn is over")
        self._builder = self._builder.with_evidence(more)

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

    # --- handing over, compacting, resuming ------------------------------------------------------------------------

    def hand_over(self, packet: Row, lookup: Lookup) -> None:
        """Hand over with a packet of :func:`.obstacles.packet`. Raises :class:`Refused` if it violates the contract."""
        contract = self.session.policy.contents.get("handoff", {})
        self._heed(
            obstacles_to_hand_over(packet, contract, role=self.call_spec.get("orchestrationRole"), lookup=lookup)
        )
        self._record({"handoff": dict(packet)})
        self.add("artifacts", *artifact_rows(packet, lookup))

    def compact(self, compaction: Row) -> None:
        """Record a compaction. Raises :class:`Refused` if required references would be lost."""
        policy = self.session.policy.contents.get("compaction")
        bound = self.call_spec.get("compactionPolicyDigest")
        requested = [row.tool_call_id for row in self._builder.evidence.tool_requests]
        self._heed(obstacles_to_compact(compaction, policy, policy_digest=bound, requested=requested))
        self._record({"compaction": dict(compaction)})

    def resume(self, continuity: Row, lookup: Lookup) -> None:
        """Record what the turn continues from. Raises :class:`Refused` if that does not exist."""
        self._heed(obstacles_to_resume(continuity, self._builder.member("compaction"), lookup=lookup))
        self._record({"continuity": dict(continuity)})

    # --- the end ---------------------------------------------------------------------------------------------------

    def close(
        self, stop_reason: str, *, iteration: int | None = None, checkpoint_ref: str | None = None, go_on: bool = True
    ) -> JoinClosed:
        """Close the turn. Raises :class:`.Blocked`; then see :meth:`retry`.

        ``go_on`` is the intent of the loop; the stop policy and protocol state policy decide.
        """
        self.attempts += 1
        self.closed = self._judgement = None
        policies = self.session._stop_policy, self.session.policy.contents.get("protocol", {})
        ended: dict[str, Any] = {
            "stop_reason": stop_reason,
            "turn_index": self.number,
            "iteration": iteration,
            "checkpoint_ref": checkpoint_ref,
        }
        self.obstacles_to_go_on = obstacles_to_continue(*policies, **ended)
        state = protocol_state(*policies, **ended)
        state["continuationAllowed"] = state["continuationAllowed"] and go_on
        try:
            self.closed = JoinClosed.of(self._builder.with_evidence({"protocolState": state}))
        except Blocked as blocked:
            self._classes = tuple(sorted({finding.failure.name for finding in blocked.findings}))
            raise
        self._classes = ()
        self._judgement = self.closed.judgement
        return self.closed

    def retry(self) -> Decision:
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
                "ref": self.session.trajectory.ref(self.number),
                "callId": self.call_spec["callId"],
                "attempts": self.attempts,
                "closed": self.closed is not None,
                "failureClasses": list(self._classes),
                **judged,
            }
        )

    def _refuse(self, state: State) -> None:
        found = findings_upto(self._builder.turn, state)
        if found:
            self._classes = tuple(sorted({finding.failure.name for finding in found}))
            raise Blocked(state, found)

    def _heed(self, obstacles: Sequence[Obstacle]) -> None:
        if obstacles:
            raise Refused(obstacles)
