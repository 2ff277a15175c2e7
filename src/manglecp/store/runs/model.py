"""Runs and steps as they are kept, and what is told to the journal. Immutable; nothing here does anything.

    run     running ──▶ succeeded | failed | cancelled
            running ◀──▶ needs_decision ──▶ failed
    step    started ──▶ done | failed | unknown
            unknown ──▶ done | failed               a person decided
            (nothing) ──▶ done | failed | skipped   what needs no record before it happens

Everything typed ``bytes`` is the caller's: the journal seals it, keeps it, gives it back and deletes it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "ENDS",
    "Decision",
    "NewRun",
    "OwnedRun",
    "Retention",
    "Run",
    "RunState",
    "RunView",
    "Step",
    "StepEnd",
    "StepKind",
    "StepSettled",
    "StepStart",
    "StepState",
    "Values",
    "Verdict",
]

StepKind: TypeAlias = Literal["do", "undo"]

Verdict: TypeAlias = Literal["happened", "did_not", "resume", "abort"]
"""``resume``: no step is in doubt (any more); let the run go on."""


class RunState(StrEnum):
    """Where a run stands. Only one that is running is carried out."""

    RUNNING = "running"
    NEEDS_DECISION = "needs_decision"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDS = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})


class StepState(StrEnum):
    """Where one attempt at a step stands."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    """It was started, and nobody can say whether it happened."""


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What a resume needs beside the steps. Gone when the run has ended."""

    plan: bytes | None = None
    args: bytes | None = None
    slots: bytes | None = None


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """An invocation that is being accepted, and owned by the process that accepts it."""

    run_id: str
    identity: str
    macro_id: str
    pack_digest: str
    request_digest: str
    """Of what the invocation asks for: two with one key must have the same."""
    request_key: str | None = None
    admission: bytes
    """The admission record. It holds digests only, so it is not sealed, and stays."""
    values: Values
    owner: str
    """Names one process in one life: a process that was started again is another owner."""
    claim_ms: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run without its values."""

    run_id: str
    identity: str
    macro_id: str
    pack_digest: str
    request_key: str | None
    request_digest: str
    state: RunState
    code: str | None
    """Why it needs a decision, or why it was ended by one."""
    step: int | None
    """The step that a decision is needed on."""
    kind: StepKind | None
    fence: int
    owner: str | None
    claim_until_ms: int
    takeovers: int
    """How often it changed hands since a step of it was last done."""
    cancel: bool
    revision: int
    """Grows with every change that a watcher might want to see."""
    created_ms: int
    touched_ms: int
    ended_ms: int | None


class StepStart(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to be sent."""

    number: int
    kind: StepKind = "do"
    attempt: int = 1
    call_id: str
    action: str
    tier: int
    repeatable: bool
    """The action is idempotent: if its outcome stays unknown, there may be another attempt."""
    input: bytes | None
    """None if it holds a secret."""
    input_digest: str
    witness: str | None = None
    """Of the turn that permits it."""


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call that was started."""

    number: int
    kind: StepKind = "do"
    attempt: int = 1
    state: Literal[StepState.DONE, StepState.FAILED, StepState.UNKNOWN]
    output: bytes | None = None
    output_digest: str | None = None
    code: str | None = None
    note: bytes | None = None
    """What else the caller wants back: a reason, a duration."""


class StepSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A step that ended without a record of its start: a read, one that was skipped, one that was never sent."""

    number: int
    kind: StepKind = "do"
    attempt: int = 1
    state: Literal[StepState.DONE, StepState.FAILED, StepState.SKIPPED]
    call_id: str | None = None
    action: str
    tier: int
    input: bytes | None = None
    input_digest: str | None = None
    output: bytes | None = None
    output_digest: str | None = None
    code: str | None = None
    note: bytes | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a step. ``input``, ``output`` and ``note`` are None where values are not asked for."""

    number: int
    kind: StepKind
    attempt: int
    state: StepState
    call_id: str | None
    action: str
    tier: int
    repeatable: bool
    input_digest: str | None
    output_digest: str | None
    code: str | None
    witness: str | None
    decided_by: str | None
    """The person who said how it ended, where one had to."""
    started_ms: int
    ended_ms: int | None
    input: bytes | None = None
    output: bytes | None = None
    note: bytes | None = None


class OwnedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with all that its owner needs to go on. After a takeover no step of it is ``started``."""

    run: Run
    admission: bytes
    values: Values
    steps: tuple[Step, ...]
    """In the order in which they were recorded."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run as an operator may see it: no values."""

    run: Run
    admission: bytes
    steps: tuple[Step, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says about a run that cannot go on by itself.

    ``happened`` and ``did_not`` are about a step whose outcome is unknown.
    """

    verdict: Verdict
    step: int | None = None
    kind: StepKind = "do"
    output: bytes | None = None
    """With ``happened``: what the action returned, if that is known."""
    output_digest: str | None = None
    answer: bytes | None = None
    """With ``abort``: the run's answer from now on."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is over is kept, in milliseconds."""

    keyed_answers_ms: int = 24 * 3_600_000
    other_answers_ms: int = 5 * 60_000
    """Of a run without request key: long enough for whoever still waits for it."""
    runs_ms: int = 30 * 24 * 3_600_000
    """With the run its request key is forgotten."""
