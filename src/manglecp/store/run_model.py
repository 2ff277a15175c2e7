"""Runs, steps and decisions, as immutable records.

    run     running ──▶ succeeded | failed | cancelled
            running ◀──▶ needs_decision ──▶ failed
    step    started ──▶ done | failed | unknown
            unknown ──▶ done | failed               a person decided
            (absent) ──▶ done | failed | skipped    steps that need no record before they are sent

Members of type ``bytes`` are opaque to the journal: it seals, stores, returns and deletes them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

StepKind: TypeAlias = Literal["do", "undo"]

Verdict: TypeAlias = Literal["happened", "did_not", "resume", "abort"]
"""``resume``: no step is in doubt; continue the run."""


class RunState(StrEnum):
    """The state of a run; the transitions are listed above."""

    RUNNING = "running"
    NEEDS_DECISION = "needs_decision"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDS = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})


class StepState(StrEnum):
    """The state of one attempt at a step."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    """Started, and the outcome cannot be determined."""


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a resume needs beside the steps; deleted when the run has ended."""

    plan: bytes | None = None
    args: bytes | None = None
    slots: bytes | None = None


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """An invocation at admission, owned by the admitting process."""

    run_id: str
    identity: str
    macro_id: str
    pack_digest: str
    request_digest: str
    """Requests with the same key must have the same digest."""
    request_key: str | None = None
    admission: bytes
    """The admission record. It holds digests only, so it is not sealed, and stays."""
    values: Values
    owner: str
    """Unique per process start: a restarted process is another owner."""
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
    """Why it needs a decision, or was ended by one."""
    step: int | None
    """The step that needs a decision."""
    kind: StepKind | None
    fence: int
    owner: str | None
    claim_until_ms: int
    takeovers: int
    """Ownership changes since a step was last done."""
    cancel: bool
    revision: int
    """Incremented with every change, for watchers."""
    created_ms: int
    touched_ms: int
    ended_ms: int | None


class StepStart(msgspec.Struct, frozen=True, kw_only=True):
    """A call before it is sent."""

    number: int
    kind: StepKind = "do"
    attempt: int = 1
    call_id: str
    action: str
    tier: int
    repeatable: bool
    """The action is idempotent: an unknown outcome allows another attempt."""
    input: bytes | None
    """None if it holds a secret."""
    input_digest: str
    witness: str | None = None


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a call that was started."""

    number: int
    kind: StepKind = "do"
    attempt: int = 1
    state: Literal[StepState.DONE, StepState.FAILED, StepState.UNKNOWN]
    output: bytes | None = None
    output_digest: str | None = None
    code: str | None = None
    note: bytes | None = None
    """Opaque further data of the caller: a reason, a duration."""


class SettledStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step without a start record: a read, a skipped step, or one that was never sent."""

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


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a step; a :class:`RunView` omits ``input``, ``output`` and ``note``."""

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
    """The identity that decided its outcome."""
    started_ms: int
    ended_ms: int | None
    input: bytes | None = None
    output: bytes | None = None
    note: bytes | None = None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run without values, for operators."""

    run: Run
    admission: bytes
    steps: tuple[StepRecord, ...]
    """In the order of recording."""


class OwnedRun(RunView, frozen=True, kw_only=True):
    """A run with everything its owner needs to continue. After a takeover no step is ``started``."""

    values: Values


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A person's decision; ``happened`` and ``did_not`` are about a step whose outcome is unknown."""

    verdict: Verdict
    step: int | None = None
    kind: StepKind = "do"
    output: bytes | None = None
    """With ``happened``: the output of the action, if known."""
    output_digest: str | None = None
    answer: bytes | None = None
    """With ``abort``: the answer of the run."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended runs and their answers are kept."""

    keyed_answers_ms: int = 24 * 3_600_000
    other_answers_ms: int = 5 * 60_000
    """For runs without request key: long enough for a waiting client."""
    runs_ms: int = 30 * 24 * 3_600_000
    """The request key is deleted with the run."""
