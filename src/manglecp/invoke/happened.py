"""What happened in one turn: its calls, what came of them, and who read that.

Calls are numbered as they are recorded, and so are answers: that is the order on the wire. Calls that are recorded
together ran side by side; they share a group and have a branch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from manglecp.harness import digest_v1 as digest
from manglecp.invoke import evidence
from manglecp.invoke.call_spec import ADMIT, Frame, RunTerms
from manglecp.invoke.calls import Call, Outcome
from manglecp.invoke.evidence import Answered, Closing, Requested

__all__ = ["Happened", "Happenings", "Reads"]

Events: TypeAlias = Sequence[Mapping[str, Any]]
States: TypeAlias = Mapping[Any, str]

_ADMITTED: Final = "invoke/admission"
"""Who says that the run was admitted."""


class Reads(NamedTuple):
    """Whose results were read, by the numbers of their steps. What nobody read was only observed."""

    steps: frozenset[int] = frozenset()
    """Read by a later step, on the way to a gate where there is one."""
    answer: frozenset[int] = frozenset()
    """Read by the result object or by an extractor."""


@dataclass(slots=True, eq=False)
class Happened:
    """A call, with what came of it."""

    request: Requested
    run: str
    """That of the call, with the next one the words of its request."""
    input_digest: str
    kind: Literal["admission", "do", "undo"]
    number: int
    """Of its step; of the turn, if it is the admission."""
    action: str
    ref: str
    """What others call its result."""
    answer: int | None = None
    """The how many-th it was; None if there is none."""
    outcome: Outcome | None = None
    """What came of it; None for the admission."""
    retry: str | None = None
    """The attempt that is made instead, as the name of a request."""

    @property
    def name(self) -> str:
        """The id of the call."""
        return f"{self.run}/{self.request.name}"

    @property
    def done(self) -> bool:
        """Was it a step, and did it succeed?"""
        return self.kind == "do" and self.outcome is not None and self.outcome.status == "done"

    @property
    def failed(self) -> bool:
        """Was it a step that failed, or ended nobody knows how, and that is not tried again?"""
        return (
            self.kind == "do"
            and self.retry is None
            and self.outcome is not None
            and self.outcome.status in ("failed", "unknown")
        )


class Happenings:
    """The calls of one turn, in the order in which they were recorded."""

    def __init__(self, terms: RunTerms, frame: Frame) -> None:
        self._terms = terms
        self._frame = frame
        self._calls: dict[str, Happened] = {}
        self._stray: list[tuple[Call, Outcome, int]] = []
        """Results of calls that nobody asked for, or that were answered already; and the how many-th they were."""
        self._ungated: list[str] = []
        self._answers = 0
        self.widest = 1
        """How many calls ran side by side, at most."""

    # --- recording -------------------------------------------------------------------------------------------------

    def admission(self, turn: int) -> Happened:
        """That the run was admitted, with the digest of the record of it as the result."""
        run = self._terms.run
        request = evidence.admission_requested(turn, len(self._calls))
        asked = digest({"run": run, "turn": turn})
        ref = f"admission:{self._terms.admission_digest}"
        return Happened(request, run, asked, "admission", turn, ADMIT, ref, self._next())

    def asked(self, calls: Sequence[Call]) -> list[Happened]:
        """Calls as they would be recorded next."""
        several = len(calls) > 1
        group = "+".join([call.group for call in calls])
        first = len(self._calls)
        return [
            Happened(
                evidence.requested(call, self._frame, first + place, group, branch=several),
                call.run,
                call.input_digest,
                call.kind,
                call.number,
                call.action.name,
                f"run://{self._terms.run}/{call.group}",
            )
            for place, call in enumerate(calls)
        ]

    def record(self, happened: Sequence[Happened]) -> None:
        """Keep them."""
        for one in happened:
            self._calls[one.name] = one
        self.widest = max(self.widest, len(happened))

    def ungated(self, call: Call) -> None:
        """No gate opened for this effect. It is on record, and no turn that holds it is ever closed."""
        self._ungated.append(call.call_id)

    def answer(self, outcomes: Iterable[Outcome]) -> None:
        """Match outcomes to calls. One that belongs to no open call is kept as a stray."""
        for outcome in outcomes:
            call = outcome.call
            if call is None:
                continue  # it was skipped, or failed before there was a call
            happened = self._calls.get(call.call_id)
            if happened is None or happened.answer is not None:
                self._stray.append((call, outcome, self._next()))
            else:
                happened.answer, happened.outcome = self._next(), outcome

    def _next(self) -> int:
        self._answers += 1
        return self._answers - 1

    # --- asking ----------------------------------------------------------------------------------------------------

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def __getitem__(self, call_id: str) -> Happened:
        return self._calls[call_id]

    @property
    def calls(self) -> Iterable[Happened]:
        """In the order of their requests."""
        return self._calls.values()

    def closing(
        self,
        turn: int,
        reason: str,
        reads: Reads,
        events: Events,
        states: States,
        *,
        inputs: Sequence[Happened] | None = None,
        fence: int | None = None,
    ) -> tuple[Closing, list[str]]:
        """How the turn ends, and the words of it. ``inputs`` are what a mutation rests on; None if there is none."""
        run, admitted = self._terms.run, self._terms.admission_digest
        answered = [one for one in self._calls.values() if one.answer is not None]
        results = [(one.action, one.outcome) for one in answered]
        if self._stray:
            results += [(outcome.action, outcome) for _, outcome, _ in self._stray]
        told = evidence.places_told(results, events)
        words, rows, misshapen = [run], [], []
        for one, place in zip(answered, told, strict=False):
            gate = inputs is not None and one in inputs
            if one.outcome is None:  # the admission
                words += (one.run, admitted)
                rows.append(
                    Answered(one.request.name, None, one.answer or 0, _ADMITTED, None, False, place, gate, not gate)
                )
                continue
            summary = False
            if one.done:
                read = one.number in reads.steps
                gate = gate or (read and inputs is not None)
                summary = one.number in reads.answer or (read and inputs is None)
            elif one.outcome.code == evidence.BAD_OUTPUT:
                misshapen.append(one.name)
            words += (one.run, evidence.digest_of(one.outcome))
            rows.append(self._answered(one.outcome, one.answer or 0, place, gate, summary, one.retry))
        for (call, outcome, number), place in zip(self._stray, told[len(rows) :], strict=True):
            words += (call.run, evidence.digest_of(outcome))
            rows.append(self._answered(outcome, number, place))
        digests = evidence.event_digests(events)
        queued = [*dict.fromkeys(digests)] if self._frame.policies.dedup else digests
        words += digests
        words += (evidence.queue_digest(queued), evidence.view_digest(run, turn, states))
        return Closing(
            turn,
            reason,
            inputs is not None,
            tuple(rows),
            tuple(map(digests.index, queued)) if len(queued) < len(digests) else tuple(range(len(digests))),
            self._joins() if self.widest > 1 else (),
            fence,
            self._terms.approval,
            tuple(self._ungated),
            tuple(misshapen),
        ), words

    def _joins(self) -> tuple[tuple[str, bool], ...]:
        asked = [(one.request.branch, one.answer is not None) for one in self.calls]
        return tuple((branch, joined) for branch, joined in asked if branch is not None)

    def _answered(
        self,
        outcome: Outcome,
        number: int,
        told: int | str,
        gate: bool = False,
        summary: bool = False,
        retry: str | None = None,
    ) -> Answered:
        call = outcome.call
        assert call is not None  # only what was called is answered
        by = self._terms.chain.host if outcome.by is None else f"operator/{outcome.by}"
        error = None if outcome.status == "done" else evidence.code_of(outcome)
        retryable = error is not None and evidence.is_retryable(call, outcome)
        group = call.group
        return Answered(f"{group}/{call.attempt}", group, number, by, error, retryable, told, gate, summary, retry)
