"""Recovery of runs that another process began, and operators' decisions about them.

A worker takes over runs whose ownership expired or was released, and resumes them from the journal. A step with a
recorded outcome is not run again. The outcome of a step that was sent and has no record is unknown: the step is
repeated if its action is idempotent, otherwise an operator decides. Any number of workers may run, because every commit
checks the fencing token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.intent import Domain, Identity, OfferCodec, ProofInputs
from manglecp.invoke.admission import AdmittedRun, History
from manglecp.invoke.approval import Approvers
from manglecp.invoke.calls import ActionCall, Status, StepOutcome
from manglecp.invoke.errors import shutdown_error
from manglecp.invoke.gate import Resumption
from manglecp.invoke.journal import Admission, Journal
from manglecp.invoke.plan import Plan
from manglecp.invoke.preview import ApprovalSubject
from manglecp.invoke.progress import RunObserver
from manglecp.invoke.run_driver import RunResponse, decode_response, encode_response
from manglecp.store import (
    Decision,
    Invalid,
    NoRun,
    NotOpen,
    OwnedRun,
    Run,
    RunState,
    RunView,
    StepKind,
    StepRecord,
    StepState,
    Store,
    Transaction,
    Verdict,
    pauses,
)
from manglecp.toolhost import apply_state
from manglecp.wire import WireError


def restore_history(owned: OwnedRun, plan: Plan, witnesses: Sequence[str]) -> History:
    """Return the history of a run from its journal. ``witnesses`` are the ids of its turns, in order."""
    run_id, slots = owned.run.run_id, owned.values.slots
    last_attempts: dict[tuple[str, int], StepRecord] = {}
    attempts: dict[tuple[str, int], int] = {}
    for step in owned.steps:
        key = (step.kind, step.number)
        last_attempts[key] = step
        attempts[key] = max(attempts.get(key, 0), step.attempt)
    outcomes = [_restore_outcome(run_id, step, plan) for step in last_attempts.values() if not _lacks_outcome(step)]
    calls = [_restore_call(run_id, step, plan) for step in last_attempts.values() if step.state == StepState.UNKNOWN]
    last_witness = witnesses[-1] if witnesses else None
    return History(
        outcomes=tuple(outcomes),
        carried=tuple(
            outcome
            for outcome in outcomes
            if _is_not_in_turns(outcome, last_attempts[outcome.kind, outcome.number], last_witness)
        ),
        unfinished=tuple(call for call in calls if call is not None),
        attempts=attempts,
        slots={} if slots is None else apply_state(msgspec.json.decode(slots), {}),
        cancelled=owned.run.cancel,
        resumption=Resumption(owned.run.fence, tuple(witnesses)),
    )


def _lacks_outcome(step: StepRecord) -> bool:
    """Return whether the history has no outcome of the step: it is unknown, or an operator decided that it failed."""
    is_decided_failure = step.state == StepState.FAILED and step.decided_by is not None
    return is_decided_failure or step.state in (StepState.UNKNOWN, StepState.STARTED)


def _is_not_in_turns(outcome: StepOutcome, step: StepRecord, last_witness: str | None) -> bool:
    """Return whether no closed turn has the outcome: the last one authorised the call, or an operator decided later."""
    is_of_last_turn = last_witness is not None and step.witness == last_witness
    return outcome.call is not None and (step.decided_by is not None or is_of_last_turn)


def _restore_outcome(run: str, step: StepRecord, plan: Plan) -> StepOutcome:
    note: dict[str, Any] = {} if step.note is None else msgspec.json.decode(step.note)
    is_done = step.state == StepState.DONE
    output = msgspec.json.decode(step.output) if is_done and step.output is not None else None
    return StepOutcome(
        call=_restore_call(run, step, plan),
        number=step.number,
        kind=step.kind,
        action=step.action,
        status=cast(Status, step.state.value),
        output=output,
        output_digest=step.output_digest or (digest_bytes(step.output or b"null") if is_done else None),
        code=step.code,
        why=note.get("why"),
        cause=note.get("cause"),
        trace=note.get("trace"),
        duration_ms=note.get("ms", 0),
        happened=note.get("happened", False),
        by=step.decided_by,
    )


def _restore_call(run: str, step: StepRecord, plan: Plan) -> ActionCall | None:
    if step.call_id is None or step.input_digest is None:  # the step was not called
        return None
    chain_step = plan.step(step.number)  # for an undo, the step that it undoes
    sources = tuple(sorted({argument.step for argument in chain_step.arguments if argument.step is not None}))
    return ActionCall(
        run=run,
        step=chain_step if step.kind == "do" or chain_step.undo is None else chain_step.undo,
        number=step.number,
        kind=step.kind,
        attempt=step.attempt,
        action=plan.actions[step.action],
        input_json="" if step.input is None else step.input.decode(),
        input_digest=step.input_digest,
        sources=sources if step.kind == "do" else (step.number,),
        secret=step.input is None,
    )


class StoredArguments(msgspec.Struct, frozen=True):
    """The arguments, principal, proof inputs and approval of an admitted run, as stored for its recovery."""

    args: dict[str, Any]
    """The arguments, without defaults and secrets."""
    identity: Identity
    """The principal, with its rights at admission."""
    inputs: ProofInputs
    subject: ApprovalSubject | None = None
    approvers: Approvers | None = None


_decoder: Final = msgspec.json.Decoder(StoredArguments)


class Recovery:
    """Finds, awaits and restores runs of other processes. A wait polls the store, and holds no connection to it."""

    def __init__(
        self, store: Store, domain: Domain, codec: OfferCodec, park: Callable[[AdmittedRun, str], RunResponse]
    ) -> None:
        """``park`` returns the response of a run that waits for a decision, from the run and the reason."""
        self._store = store
        self._pack_digest = domain.digest
        self._actions = domain.pack.actions
        self._codec = codec
        self._park = park
        self.closed = False
        """Set when this process shuts down, which ends all waits."""

    def restore(self, owned: OwnedRun) -> AdmittedRun:
        """Return a run in the state of its journal. Blocks."""
        assert owned.values.plan is not None  # a run that has not ended has a plan
        assert owned.values.args is not None
        plan = Plan.of(self._codec.read(owned.values.plan), self._actions)
        arguments = _decoder.decode(owned.values.args)
        admission = Admission(**msgspec.json.decode(owned.admission))
        with self._store.read_transaction() as tx:
            turns = self._store.ledger.rows(tx, kind="turn", run=owned.run.run_id)
            witnesses = [str(entry.body["id"]) for entry in turns]
        return AdmittedRun(
            admission=admission,
            plan=plan,
            args={**plan.defaults, **arguments.args},
            identity=arguments.identity,
            inputs=arguments.inputs,
            subject=arguments.subject,
            approvers=arguments.approvers,
            journal=Journal(self._store, admission.run, arguments.identity.name, owned.run.fence),
            history=restore_history(owned, plan, witnesses),
        )

    async def find(self, identity: Identity, key: str) -> Run | None:
        return await self._store.writer.read(lambda tx: self._store.runs.by_key(tx, identity.name, key))

    async def cancel(self, run: Run) -> None:
        """Request the cancellation of a run; its owner reads the request when it next writes the journal."""
        await self._store.writer.write(lambda tx: self._store.runs.request_cancel(tx, run.run_id, run.identity))

    async def stays_unclaimed(self, run: str, seconds: float) -> bool:
        """Return whether the run has no new owner within ``seconds``.

        Returns False as soon as another process owns the run, the run stops, or this process shuts down.
        """
        deadline = time.monotonic() + seconds
        for pause in pauses():
            stored_run = await self._run(run)
            if stored_run.state != RunState.RUNNING or stored_run.owner is not None or self.closed:
                break
            if time.monotonic() >= deadline:
                return True
            await asyncio.sleep(pause)
        return False

    async def wait(self, run: str, observer: RunObserver, *, keyed: bool) -> RunResponse:
        """Return the response of a run when it has ended or waits for a decision; forward a cancellation to its owner.

        ``keyed`` is whether the request has a key: then the client may repeat the request if this process shuts down.
        """
        is_forwarded = False
        for pause in pauses():
            if self.closed:
                return shutdown_error(run, has_effects=True, keyed=keyed)
            stored_run = await self._run(run)
            if stored_run.state != RunState.RUNNING:
                break
            if observer.cancelled and not is_forwarded:
                is_forwarded = True
                await self.cancel(stored_run)
            await asyncio.sleep(pause)
        stored_answer = await self._store.writer.read(lambda tx: self._store.runs.answer(tx, run))
        if stored_answer is not None:
            return decode_response(stored_answer)
        if stored_run.state == RunState.NEEDS_DECISION and stored_run.pack_digest == self._pack_digest:
            # Each owner of the run ended before it could record a response.
            owned = await self._store.writer.read(lambda tx: self._store.runs.load(tx, run))
            restored = await asyncio.to_thread(self.restore, owned)
            return self._park(restored, stored_run.code or "poisoned")
        return WireError("execution_failed", "The run has ended, and its answer is no longer stored", {"run_id": run})

    async def _run(self, run: str) -> Run:
        return await self._store.writer.read(lambda tx: self._store.runs.run(tx, run))


# --- decisions -----------------------------------------------------------------------------------------------------


def decide(
    store: Store, run_id: str, verdict: Verdict, by: str, *, step: int | None = None, output: bytes | None = None
) -> RunState:
    """Store a decision of the operator named ``by``, and return the new state of the run.

    ``step`` is the number of the step that the decision is about. ``output``, with the verdict ``happened``, is the
    JSON that the action returned, if the operator has it. Raises :class:`manglecp.store.errors.ChangeRefused` if the
    run does not wait for such a decision.
    """
    if not by:
        raise Invalid("by", "a decision needs the name of its operator")
    with store.write_transaction() as tx:
        view = store.runs.show(tx, run_id)
        if view is None:
            raise NoRun(run_id)
        decision = Decision(
            verdict=verdict,
            step=step,
            kind=_find_kind(view, step),
            output=output,
            output_digest=None if output is None else digest_bytes(output),
            answer=_aborted_response(store, tx, run_id) if verdict == "abort" else None,
        )
        state = store.runs.decide(tx, run_id, decision, by)
        body: dict[str, Any] = {"verdict": verdict, "state": state.value}
        if step is not None:
            body |= {"step": step, "kind": decision.kind}
        if decision.output_digest is not None:
            body["output_digest"] = decision.output_digest
        store.ledger.append(tx, "decision", body, run=run_id, identity=by)
    return state


def find_undecided_step(view: RunView) -> int | None:
    """Return the number of the first step with an unknown outcome that must not be repeated."""
    unknown = (step.number for step in view.steps if step.state == StepState.UNKNOWN and not step.repeatable)
    return next(unknown, None)


def _find_kind(view: RunView, number: int | None) -> StepKind:
    """Return whether the step or its undo has the unknown outcome. Raises :class:`NotOpen`."""
    if number is None:  # a decision about the run, not about a step
        return "do"
    kinds: list[StepKind] = [
        step.kind for step in view.steps if step.number == number and step.state == StepState.UNKNOWN
    ]
    if not kinds:
        raise NotOpen(f"the outcome of step {number} of run {view.run.run_id} is not unknown")
    return kinds[-1]


def _aborted_response(store: Store, tx: Transaction, run_id: str) -> bytes:
    """Return the response of an aborted run: the details of its last response, with the reason ``aborted``."""
    details: dict[str, Any] = {"run_id": run_id}
    stored_answer = store.runs.answer(tx, run_id)
    if stored_answer is not None and isinstance(previous := decode_response(stored_answer), WireError):
        details |= dict(previous.details or {})
    details["reason"] = "aborted"
    return encode_response(WireError("execution_failed", "The run was ended by a decision", details))
