"""The journal and ledger records of a run.

A run without effects has one ledger entry, at its end: its admission, digests of each step, its end state. A run with
effects is *durable*: each effect is recorded before it is sent, with the witness of the turn that permits it; its
outcome is recorded before another step uses it. Outcomes of reads are written with the next effect; if the process ends
before, the worker that resumes the run repeats the reads.

The ledger has digests and names only. Values are in the journal, encrypted, and are deleted when the run ends. Values
that rules keep for a later run (``keep``) stay, encrypted too, until the run's retention ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec

from manglecp.base.digest import digest, digest_bytes
from manglecp.harness import Witness
from manglecp.intent import Argument
from manglecp.invoke.calls import ActionCall, StepOutcome
from manglecp.store import (
    Body,
    DecisionRecord,
    EntryKind,
    KeyTaken,
    NewEntry,
    NewRun,
    RunState,
    SettledStep,
    StepEnd,
    StepStart,
    StepState,
    Store,
    Transaction,
)
from manglecp.toolhost import Slots, full_state

EndState: TypeAlias = Literal["succeeded", "failed", "cancelled"]
T = TypeVar("T")
_ONLY_FENCE: Final = 1
"""The fencing token of a run without effects: no other process takes it over."""


async def read_kept(store: Store, identity: str, arguments: Iterable[Argument]) -> dict[str, Any]:
    """Return the values of arguments that earlier runs of the same identity kept, by parameter."""
    values: dict[str, Any] = {}
    for argument in arguments:
        if argument.source == "kept":
            kept_key = {"identity": identity, "run_id": argument.value["run"], "name": argument.value["name"]}
            kept = await store.writer.read(partial(store.runs.kept, **kept_key))
            if kept is not None:
                values[argument.param] = msgspec.json.decode(kept)
    return values


class Admission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of an admitted invocation: names and digests."""

    run: str
    identity: str
    macro_id: str
    tool: str
    pack_digest: str
    policy_digest: str
    """The digest of the policy package at admission."""
    proof_digest: str
    """The digest of all inputs of the evaluation that proved the tool at admission."""
    chain_digest: str
    args_digest: str
    proven_at: str
    """The server's clock at the evaluation of the proof, in nanoseconds since 1970."""
    eval_time: str | None = None
    """The client's ``eval_time``, in nanoseconds since 1970; for the record only."""
    approval: str | None = None
    """The reference to the approval, or to its waiver, if the tool needs one."""
    request_key_digest: str | None = None

    @property
    def digest(self) -> str:
        return digest(self.record())

    def record(self) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.to_builtins(self)
        return body


class Journal:
    """The records of a run with effects that this process owns. Writes raise :class:`Fenced` after a takeover."""

    def __init__(self, store: Store, run: str, identity: str, fence: int) -> None:
        self._store = store
        self._run = run
        self._identity = identity
        self._fence = fence
        self.cancel_requested = False
        """Whether a client had cancelled the run, at any server, when the journal was last written."""
        self.decisions: list[DecisionRecord] = []
        """Decisions about the run that the next write stores, in the same transaction."""
        self.denial: str | None = None
        """The id of the last decision that denied an effect, other than the first effect of the run."""
        self.earlier_run: KeyTaken | None = None
        """A run with the same request key at another server, whose response was stored first and takes precedence."""

    async def record_start(
        self, calls: Sequence[ActionCall], witness: Witness, settled: Sequence[StepOutcome], slots: Slots
    ) -> None:
        """Record that effects are about to be sent, and the outcomes (``settled``) since the last record."""
        starts = [_start_row(call, witness.id) for call in calls]
        settled_rows, slots_json = [_settled_row(outcome) for outcome in settled], _encode_slots(slots)
        runs, run, fence = self._store.runs, self._run, self._fence
        self.cancel_requested |= await self._write(
            lambda tx: runs.record_starts(tx, run, fence, starts, settled=settled_rows, slots=slots_json),
            [("turn", witness.raw_json)],
        )

    async def record_outcomes(self, outcomes: Sequence[StepOutcome], slots: Slots, kept: Mapping[str, Any]) -> None:
        """Record the outcomes of effects, and the values that are kept for a later run, by name."""
        ends, slots_json = [_end_row(outcome) for outcome in outcomes], _encode_slots(slots)
        kept_json = {name: msgspec.json.encode(value) for name, value in kept.items()}
        runs, run, fence = self._store.runs, self._run, self._fence
        self.cancel_requested |= await self._write(
            lambda tx: runs.record_ends(tx, run, fence, ends, slots=slots_json, kept=kept_json),
            [("step", _ledger_entry(outcome)) for outcome in outcomes],
        )

    async def read_kept(self, arguments: Iterable[Argument]) -> dict[str, Any]:
        return await read_kept(self._store, self._identity, arguments)

    async def record_cancellation(self) -> None:
        """Record that a cancelled run is being undone, so that a worker that resumes it does not continue the chain."""
        await self._write(lambda tx: self._store.runs.request_cancel(tx, self._run, self._identity))
        self.cancel_requested = True

    async def record_end(
        self,
        end: EndState,
        witness: Witness | None,
        answer: bytes,
        outcomes: Sequence[StepOutcome] = (),
        *,
        lasting: bool = True,
    ) -> None:
        """Record the end of the run and its response (``answer``).

        ``lasting``: a repeated request with the same key gets this response. Otherwise the key is free again.
        """

        def write(tx: Transaction) -> None:
            self._record_failures(tx, outcomes)
            self._store.runs.end(tx, self._run, self._fence, RunState(end), answer)
            if not lasting:
                self._store.runs.free_key(tx, self._run)

        body = {"state": end, "answer_digest": digest_bytes(answer)}
        await self._write(write, [*_turn_entries(witness), ("end", body)])

    async def record_undecided(self, culprit: StepOutcome, witness: Witness | None, answer: bytes) -> None:
        """Record that the run waits for an operator's decision about ``culprit``, and its present response."""
        code = culprit.code or "unknown"
        step = culprit.number if culprit.status == "unknown" else None  # None unless the outcome has to be decided
        runs, run, fence = self._store.runs, self._run, self._fence
        body = {"state": "needs_decision", "code": code, "step": culprit.number, "kind": culprit.kind}

        def write(tx: Transaction) -> None:
            self._record_failures(tx, [culprit])
            runs.park(tx, run, fence, code, step=step, kind=culprit.kind, answer=answer)

        await self._write(write, [*_turn_entries(witness), ("end", body)])

    def _record_failures(self, tx: Transaction, outcomes: Iterable[StepOutcome]) -> None:
        """Record why calls failed, for operators; not in the ledger, since a traceback may contain values."""
        steps = [step for step in outcomes if step.call is not None and step.trace is not None]
        if steps:
            texts = [f"{step.action} failed in call {step.call and step.call.call_id}\n{step.trace}" for step in steps]
            self._store.runs.record_failures(tx, self._run, "\n\n".join(texts).encode())

    async def _write(self, work: Callable[[Transaction], T], bodies: Sequence[tuple[EntryKind, Body]] = ()) -> T:
        """Call ``work`` and append the ledger entries, in one transaction."""
        entries = [NewEntry(kind, body, self._run, self._identity) for kind, body in bodies]
        return await self._store.writer.write(work, entries, self._take_decisions())

    def _take_decisions(self) -> list[DecisionRecord]:
        """Return the decisions that were not stored yet, for the next transaction."""
        decisions, self.decisions = self.decisions, []
        return decisions


class ReadJournal(Journal):
    """The journal of a run without effects: a single ledger entry at its end."""

    def __init__(self, store: Store, admission: Admission, new_run: NewRun | None) -> None:
        """``new_run`` is the row of a run with a request key, which is stored with its response."""
        super().__init__(store, admission.run, admission.identity, _ONLY_FENCE)
        self._admission = admission
        self._new_run = new_run

    async def record_end(
        self,
        end: EndState,
        witness: Witness | None,
        answer: bytes,
        outcomes: Sequence[StepOutcome] = (),
        *,
        lasting: bool = True,
    ) -> None:
        body: dict[str, Any] = {
            "admission": self._admission.record(),
            "state": end,
            "answer_digest": digest_bytes(answer),
            "steps": [_ledger_entry(outcome) for outcome in outcomes],
        }
        if witness is not None:
            body["witness"] = witness.raw_json
        new_run = self._new_run if lasting else None
        if new_run is None and all(outcome.trace is None for outcome in outcomes):
            await self._store.writer.append([NewEntry("run", body, self._run, self._identity)], self._take_decisions())
            return

        def write(tx: Transaction) -> None:
            self.earlier_run = None  # ``write`` may run again after its batch was rolled back
            self._record_failures(tx, outcomes)
            if new_run is None:
                return
            try:
                self._store.runs.accept(tx, new_run)
            except KeyTaken as taken:
                self.earlier_run = taken
                return
            self._store.runs.end(tx, new_run.run_id, _ONLY_FENCE, RunState(end), answer)

        await self._write(write, [("run", body)])


def _turn_entries(witness: Witness | None) -> list[tuple[EntryKind, Body]]:
    return [] if witness is None else [("turn", witness.raw_json)]


def _encode_slots(slots: Slots) -> bytes | None:
    return msgspec.json.encode(full_state(slots)) if slots else None


def _start_row(call: ActionCall, witness: str) -> StepStart:
    return StepStart(
        number=call.number,
        kind=call.kind,
        attempt=call.attempt,
        call_id=call.call_id,
        action=call.action.name,
        tier=call.action.tier,
        repeatable=call.action.idempotent,
        input=None if call.secret else call.input_json.encode(),
        input_digest=call.input_digest,
        witness=witness,
    )


def _end_row(outcome: StepOutcome) -> StepEnd:
    assert outcome.call is not None  # the outcome of an effect has a call
    return StepEnd(
        number=outcome.number,
        kind=outcome.kind,
        attempt=outcome.call.attempt,
        state=cast(Any, StepState(outcome.status)),
        output=_encode_output(outcome),
        output_digest=outcome.output_digest,
        code=outcome.code,
        note=_encode_note(outcome),
    )


def _settled_row(outcome: StepOutcome) -> SettledStep:
    """Return the row of a step without a recorded start: it is a read, or was not called."""
    call = outcome.call
    return SettledStep(
        number=outcome.number,
        kind=outcome.kind,
        attempt=1 if call is None else call.attempt,
        state=cast(Any, StepState(outcome.status)),
        call_id=None if call is None else call.call_id,
        action=outcome.action,
        tier=0 if call is None else call.action.tier,
        input=None if call is None or call.secret else call.input_json.encode(),
        input_digest=None if call is None else call.input_digest,
        output=_encode_output(outcome),
        output_digest=outcome.output_digest,
        code=outcome.code,
        note=_encode_note(outcome),
    )


def _encode_output(outcome: StepOutcome) -> bytes | None:
    return msgspec.json.encode(outcome.output) if outcome.status == "done" else None


def _encode_note(outcome: StepOutcome) -> bytes:
    """Return the fields of an outcome that a resumed run needs and that have no column."""
    note: dict[str, Any] = {"ms": outcome.duration_ms, "why": outcome.why, "happened": outcome.happened}
    note |= {"cause": outcome.cause, "trace": outcome.trace}
    return msgspec.json.encode({name: value for name, value in note.items() if value})


def _ledger_entry(outcome: StepOutcome) -> dict[str, Any]:
    call = outcome.call
    entry = {
        "step": outcome.number,
        "call": None if call is None else call.call_id,
        "action": outcome.action,
        "input_digest": None if call is None else call.input_digest,
        "status": outcome.status,
        "output_digest": outcome.output_digest,
        "code": outcome.code,
    }
    return {name: value for name, value in entry.items() if value is not None}
