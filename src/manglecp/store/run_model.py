"""Runs, steps and decisions, as immutable records, and the states of runs and of attempts at steps.

    run     running ──▶ succeeded | failed | cancelled
            running ◀──▶ needs_decision ──▶ failed
    attempt started ──▶ done | failed | unknown
            unknown ──▶ done | failed               a person decided
            (absent) ──▶ done | failed | skipped    steps that need no record before they are sent

``number`` and ``kind`` identify a step; ``request_key`` is the client's idempotency key; ``code`` is the reason of a
failure or of a needed decision. ``bytes`` are opaque to the store. Times are in ms by the database clock.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

StepKind: TypeAlias = Literal["do", "undo"]  # "undo": the compensation of the step with the same number
Verdict: TypeAlias = Literal["happened", "did_not", "resume", "abort"]
"""Whether a step happened; or about the run: continue it (if no step is in doubt), or end it."""


class RunState(StrEnum):
    """The state of a run; only the last three are final."""

    RUNNING = "running"
    NEEDS_DECISION = "needs_decision"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL_STATES = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})


class StepState(StrEnum):
    """The state of one attempt at a step."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"  # started, and the outcome cannot be determined


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs beside the steps to resume a run; deleted when the run ends."""

    plan: bytes | None = None
    args: bytes | None = None
    slots: bytes | None = None  # the state that each call passes to the next


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to insert, owned by the process that admitted the invocation."""

    run_id: str
    identity: str
    macro_id: str
    pack_digest: str
    request_digest: str
    """Digest of the whole invocation, which must be the same in a second invocation with this ``request_key``."""
    request_key: str | None = None
    admission: bytes
    """The admission record. It holds digests only, so it is neither sealed nor deleted when the run ends."""
    values: Values
    owner: str  # unique per process start: a restarted process is another owner
    claim_ms: int  # how long the ownership lasts without a heartbeat


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run without its values."""

    run_id: str
    identity: str
    macro_id: str
    pack_digest: str
    request_key: str | None
    request_digest: str
    state: RunState
    code: str | None  # why the run needs a decision, or why a decision ended it
    step: int | None  # the number of the step that needs a decision; ``kind`` is that of the same step
    kind: StepKind | None
    fence: int  # the fencing token: a takeover and a decision increment it
    owner: str | None
    claim_until_ms: int
    takeovers: int
    """Number of takeovers since a step was last done; a takeover after the owner released the run does not count."""
    cancel: bool  # whether a client requested the cancellation
    revision: int  # grows with every recorded change, so that processes that poll detect changes
    created_ms: int
    touched_ms: int
    ended_ms: int | None


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    kind: StepKind = "do"
    attempt: int = 1


class StepStart(_Attempt, frozen=True, kw_only=True):
    """A call before it is sent."""

    call_id: str
    action: str
    tier: int  # the risk of the action; 0: it has no effects
    repeatable: bool  # whether the action is idempotent: an unknown outcome then allows another attempt
    input: bytes | None  # None if the input holds a secret
    input_digest: str
    witness: str | None = None  # the id of the model turn whose evidence allowed the call


class _Outcome(_Attempt, frozen=True, kw_only=True):
    output: bytes | None = None
    output_digest: str | None = None
    code: str | None = None
    note: bytes | None = None  # further data of the caller: a reason, a duration


class StepEnd(_Outcome, frozen=True, kw_only=True):
    """The outcome of a call that was started."""

    state: Literal[StepState.DONE, StepState.FAILED, StepState.UNKNOWN]


class SettledStep(_Outcome, frozen=True, kw_only=True):
    """A step that has ended without a :class:`StepStart`: a read, a skipped step, or a call that was never sent."""

    state: Literal[StepState.DONE, StepState.FAILED, StepState.SKIPPED]
    call_id: str | None = None
    action: str
    tier: int
    input: bytes | None = None
    input_digest: str | None = None


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
    decided_by: str | None  # the identity of the person who decided whether the step happened
    started_ms: int
    ended_ms: int | None
    input: bytes | None = None
    output: bytes | None = None
    note: bytes | None = None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run without sealed values, for operators."""

    run: Run
    admission: bytes
    steps: tuple[StepRecord, ...]  # in the order in which they were recorded


class OwnedRun(RunView, frozen=True, kw_only=True):
    """A run with everything its owner needs to continue. After a takeover no step is ``started``."""

    values: Values


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A person's decision; ``happened`` and ``did_not`` are about the last attempt at ``step``."""

    verdict: Verdict
    step: int | None = None
    kind: StepKind = "do"
    output: bytes | None = None
    """The output of the action, if the verdict is ``happened`` and the person knows it."""
    output_digest: str | None = None
    answer: bytes | None = None  # with ``abort``: the answer that clients of the run get


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended runs and their answers are kept."""

    keyed_answers_ms: int = 24 * 3_600_000
    other_answers_ms: int = 5 * 60_000
    """The retention of runs without a request key: long enough for a waiting client."""
    runs_ms: int = 30 * 24 * 3_600_000
    """The request key is deleted with its run; a client may then use it for another run."""
