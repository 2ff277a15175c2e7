"""Recovery: runs that another process began or carries out.

A worker claims runs whose owner is gone and resumes them from the journal. Only what is on record counts: a step that
ended is not run again; one that was sent and has no end on record is unknown, and is repeated only if its action is
idempotent, otherwise it waits for an operator. Any number of workers may run: every commit checks the fencing token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.intent import Identity, OfferCodec, Step as ChainStep
from manglecp.invoke.admission import AdmittedRun, History
from manglecp.invoke.calls import Call, Outcome, Status
from manglecp.invoke.errors import left_behind
from manglecp.invoke.gate import Resumption
from manglecp.invoke.journal import Admission, Durable
from manglecp.invoke.plan import Plan
from manglecp.invoke.progress import RunObserver
from manglecp.invoke.results import Answer, decoded
from manglecp.pack import ActionDescription
from manglecp.store import OwnedRun, Run, RunState, Step, StepState, Store, StoreError, pauses
from manglecp.toolhost import Slots, apply_state
from manglecp.wire import WireError

__all__ = ["Recovery", "RemoteRunWatcher", "Worker", "history_of"]


_STATUS: Mapping[StepState, Status] = {
    StepState.DONE: "done",
    StepState.FAILED: "failed",
    StepState.SKIPPED: "skipped",
    StepState.UNKNOWN: "unknown",
}


def history_of(claimed: OwnedRun, plan: Plan, witnesses: Sequence[str]) -> History:
    """``witnesses`` are the ids of the run's turns so far, in their order."""
    last: dict[tuple[str, int], Step] = {}
    attempts: dict[tuple[str, int], int] = {}
    for step in claimed.steps:
        key = (step.kind, step.number)
        last[key] = step
        attempts[key] = max(attempts.get(key, 0), step.attempt)
    outcomes = [_outcome(claimed.run.run_id, step, plan) for step in last.values() if not _to_be_repeated(step)]
    unfinished = [
        call
        for step in last.values()
        if step.state == StepState.UNKNOWN and (call := _call(claimed.run.run_id, step, plan)) is not None
    ]
    latest = witnesses[-1] if witnesses else None
    return History(
        outcomes=tuple(outcomes),
        carried=tuple(one for one in outcomes if _is_new(one, last[one.kind, one.number], latest)),
        unfinished=tuple(unfinished),
        attempts=attempts,
        slots=_slots(claimed.values.slots),
        cancelled=claimed.run.cancel,
        resumption=Resumption(claimed.run.fence, tuple(witnesses)),
    )


def _to_be_repeated(step: Step) -> bool:
    """In doubt, or did not happen, as a person says."""
    return step.state in (StepState.UNKNOWN, StepState.STARTED) or (
        step.state == StepState.FAILED and step.decided_by is not None
    )


def _is_new(outcome: Outcome, step: Step, latest: str | None) -> bool:
    """Is it a row of no turn yet? Either the last turn permitted it, or a person has said since how it ended."""
    return outcome.call is not None and (step.decided_by is not None or (latest is not None and step.witness == latest))


def _outcome(run: str, step: Step, plan: Plan) -> Outcome:
    note: dict[str, Any] = {} if step.note is None else msgspec.json.decode(step.note)
    done = step.state == StepState.DONE
    output = msgspec.json.decode(step.output) if done and step.output is not None else None
    return Outcome(
        call=_call(run, step, plan),
        number=step.number,
        kind=step.kind,
        action=step.action,
        status=_STATUS[step.state],
        output=output,
        output_digest=step.output_digest or (digest_bytes(step.output or b"null") if done else None),
        code=step.code,
        why=note.get("why"),
        duration_ms=note.get("ms", 0),
        happened=note.get("happened", False),
        by=step.decided_by,
    )


def _call(run: str, step: Step, plan: Plan) -> Call | None:
    """None for a step that was never called."""
    if step.call_id is None or step.input_digest is None:
        return None
    of = plan.step(step.number)
    return Call(
        run=run,
        step=of if step.kind == "do" or of.undo is None else of.undo,
        number=step.number,
        kind=step.kind,
        attempt=step.attempt,
        action=plan.actions[step.action],
        input_json="" if step.input is None else step.input.decode(),
        input_digest=step.input_digest,
        sources=_sources(of) if step.kind == "do" else (step.number,),
        secret=step.input is None,
    )


def _sources(step: ChainStep) -> tuple[int, ...]:
    return tuple(sorted({one.step for one in step.arguments if one.step is not None}))


def _slots(kept: bytes | None) -> Slots:
    return {} if kept is None else apply_state(msgspec.json.decode(kept), {})


@dataclass(frozen=True, slots=True)
class Recovery:
    """Restores runs of one pack revision from the journal."""

    store: Store
    codec: OfferCodec
    actions: Mapping[str, ActionDescription]

    def restore(self, claimed: OwnedRun) -> AdmittedRun:
        """Return a run as the journal has it. Blocks on the store."""
        assert claimed.values.plan is not None  # it has not ended
        assert claimed.values.args is not None
        offer = self.codec.read(claimed.values.plan)
        plan = Plan.of(offer.definition, self.actions)
        stored = msgspec.json.decode(claimed.values.args)
        principal = stored["identity"]
        identity = Identity(claimed.run.identity, frozenset(principal["permissions"]), principal["trust"])
        admission = Admission(**msgspec.json.decode(claimed.admission))
        with self.store.read_transaction() as tx:
            turns = self.store.ledger.rows(tx, kind="turn", run=claimed.run.run_id)
            witnesses = [str(entry.body["id"]) for entry in turns]
        return AdmittedRun(
            admission=admission,
            offer=offer,
            plan=plan,
            args={**plan.defaults, **stored["args"]},
            identity=identity,
            now_ns=int(admission.eval_time or time.time_ns()),
            journal=Durable(self.store, admission.run, identity.name, claimed.run.fence),
            history=history_of(claimed, plan, witnesses),
        )


class RemoteRunWatcher:
    """Waits for runs that other processes carry out. It polls: many requests may wait, and threads are few."""

    def __init__(
        self, store: Store, pack_digest: str, recovery: Recovery, park: Callable[[AdmittedRun, str], Answer]
    ) -> None:
        """``park`` gives the response of a run that waits for an operator."""
        self._store = store
        self._pack_digest = pack_digest
        self._recovery = recovery
        self._park = park
        self.closed = False
        """Set when this process leaves: every wait then ends at once."""

    async def find(self, identity: Identity, key: str) -> Run | None:
        """Return the run that this identity requested with this request key."""
        return await self._store.writer.read(lambda tx: self._store.runs.by_key(tx, identity.name, key))

    async def cancel(self, run: Run) -> None:
        """Ask the owner of a run to stop; it reads that at its next step."""
        await self._store.writer.write(lambda tx: self._store.runs.request_cancel(tx, run.run_id, run.identity))

    async def is_unclaimed(self, run: str, seconds: float) -> bool:
        """Wait until a process claims a run; True if none does in this time."""
        until = time.monotonic() + seconds
        for pause in pauses():
            found = await self._run(run)
            if found.state != RunState.RUNNING or found.owner is not None or self.closed:
                break
            if time.monotonic() >= until:
                return True
            await asyncio.sleep(pause)
        return False

    async def wait(self, run: str, observer: RunObserver, *, keyed: bool) -> Answer:
        """Return the response of a run when it has ended, forwarding a cancellation to its owner."""
        cancelled = False
        for pause in pauses():
            if self.closed:
                return left_behind(run, acknowledged=True, keyed=keyed)
            found = await self._run(run)
            if found.state != RunState.RUNNING:
                break
            if observer.cancelled.is_set() and not cancelled:
                cancelled = True
                await self.cancel(found)
            await asyncio.sleep(pause)
        stored = await self._store.writer.read(lambda tx: self._store.runs.answer(tx, run))
        if stored is not None:
            return decoded(stored)
        if found.state == RunState.NEEDS_DECISION and found.pack_digest == self._pack_digest:
            # Every process that claimed it died, so none recorded a response.
            claimed = await self._store.writer.read(lambda tx: self._store.runs.load(tx, run))
            restored = await asyncio.to_thread(self._recovery.restore, claimed)
            return self._park(restored, found.code or "poisoned")
        return WireError("execution_failed", "The run is over, and its answer is kept no longer", {"run_id": run})

    async def _run(self, run: str) -> Run:
        return await self._store.writer.read(lambda tx: self._store.runs.run(tx, run))


class Claimant(Protocol):
    """Claims a run that has no owner, and carries it out."""

    async def take_over(self) -> str | None:
        """Return the id of the run; None if there was none."""


_log = logging.getLogger(__name__)


class Worker:
    """Runs of some packs, a few at a time."""

    def __init__(self, invokers: Sequence[Claimant], *, at_once: int = 4, pause: float = 1.0) -> None:
        """``pause``: seconds between two looks at the journal while there is nothing to do."""
        self._invokers = tuple(invokers)
        self._at_once = at_once
        self._pause = pause
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing more; runs under way end first."""
        self._stopped.set()

    async def run(self) -> None:
        """Until :meth:`stop`."""
        await asyncio.gather(*(self._loop() for _ in range(self._at_once)))

    async def drain(self) -> list[str]:
        """Take over what there is to claim now, until :meth:`stop`; the ids of the runs."""
        taken = []
        while not self._stopped.is_set() and (run := await self._one()) is not None:
            taken.append(run)
        return taken

    async def _loop(self) -> None:
        while not self._stopped.is_set():
            run = None
            try:
                run = await self._one()
            except StoreError as error:
                _log.warning("the journal cannot be read: %s", error)
            except Exception:  # of one run; the others are not to wait for somebody who looks
                _log.exception("a run could not be taken over")
            if run is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), self._pause)

    async def _one(self) -> str | None:
        """The run that was taken over, if there was one."""
        for invoker in self._invokers:
            run = await invoker.take_over()
            if run is not None:
                _log.info("run %s was taken over", run)
                return run
        return None
