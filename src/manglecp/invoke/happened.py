"""What happened in one turn: its calls, what came of them, and who read that.

Calls are numbered as they are recorded, and so are answers: that is the order on the wire. Calls that are recorded
together ran side by side; they share a group and have a branch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from manglecp.invoke import evidence
from manglecp.invoke.call_spec import ADMIT, Frame, RunTerms
from manglecp.invoke.model import Call, Outcome

__all__ = ["Happened", "Happenings", "Reads", "split"]

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reads:
    """Whose results were read, by the numbers of their steps. What nobody read was only observed."""

    steps: frozenset[int] = frozenset()
    """Read by a later step, on the way to a gate where there is one."""
    answer: frozenset[int] = frozenset()
    """Read by the result object or by an extractor."""


@dataclass(slots=True)
class Happened:
    """A call, with what came of it."""

    request: Row
    kind: Literal["admission", "do", "undo"]
    number: int
    """Of its step; of the turn, if it is the admission."""
    action: str
    ref: str
    """What others call its result."""
    result: Row | None = None
    outcome: Outcome | None = None
    retry: str | None = None
    """The attempt that is made instead."""

    @property
    def name(self) -> str:
        """The id of the call."""
        return str(self.request["toolCallId"])

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
        self._stray: list[evidence.Result] = []
        """Results of calls that nobody asked for, or that were answered already."""
        self._ungated: list[str] = []
        self._answers = 0
        self.widest = 1
        """How many calls ran side by side, at most."""

    # --- recording -------------------------------------------------------------------------------------------------

    def admission(self, turn: int) -> Happened:
        """That the run was admitted, with the digest of the record of it as the result."""
        row = evidence.admission_request(self._terms.run, turn, len(self._calls))
        digest = self._terms.admission_digest
        result = evidence.admission_result(row["toolCallId"], digest, self._next())
        return Happened(row, "admission", turn, ADMIT, f"admission:{digest}", result)

    def asked(self, calls: Sequence[Call]) -> list[Happened]:
        """Calls as they would be recorded next."""
        several = len(calls) > 1
        group = "+".join(call.group for call in calls)
        first = len(self._calls)
        return [
            Happened(
                evidence.request_row(call, self._frame, first + place, group, branch=several),
                call.kind,
                call.number,
                call.action.name,
                f"run://{self._terms.run}/{call.group}",
            )
            for place, call in enumerate(calls)
        ]

    def record(self, happened: Sequence[Happened]) -> list[Row]:
        """Keep them; their requests."""
        self._calls |= {one.name: one for one in happened}
        self.widest = max(self.widest, len(happened))
        return [one.request for one in happened]

    def ungated(self, call: Call) -> None:
        """No gate opened for this effect. It is on record, and no turn that holds it is ever closed."""
        self._ungated.append(call.call_id)

    def answer(self, outcomes: Iterable[Outcome]) -> None:
        """Match outcomes to calls. One that belongs to no open call is kept as a stray."""
        for outcome in outcomes:
            if outcome.call is None:
                continue  # it was skipped, or failed before there was a call
            row = evidence.result_row(outcome.call, outcome, self._terms.plugin_digest, self._next())
            happened = self._calls.get(outcome.call.call_id)
            if happened is None or happened.result is not None:
                self._stray.append((row, outcome.action, outcome))
            else:
                happened.result, happened.outcome = row, outcome

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

    @property
    def results(self) -> list[evidence.Result]:
        """One for each call that has one, then the strays."""
        answered = [(one.result, one.action, one.outcome) for one in self.calls if one.result is not None]
        return answered + self._stray

    def uses(self, reads: Reads, inputs: Sequence[Happened] | None) -> list[Row]:
        """What became of every result. ``inputs`` are what a mutation rests on; None if there is no mutation."""
        rest_on = {one.name for one in inputs or ()}
        rows = []
        for one in self.calls:
            if one.result is None:
                continue
            read = one.done and one.number in reads.steps
            gate = one.ref if one.name in rest_on or (read and inputs is not None) else None
            summary = None
            if one.kind == "admission":
                summary = None if gate else one.ref
            elif one.done and (one.number in reads.answer or (read and inputs is None)):
                summary = f"response:{self._terms.run}"
            rows.append(evidence.use_row(one.result, gate=gate, summary=summary, retry=one.retry))
        return rows + [evidence.use_row(row) for row, _, _ in self._stray]

    def decided(self, policy: str | None) -> Row:
        """Decisions of guardrails, and how parallel groups came together."""
        found: Row = {
            "guardrailDecisions": evidence.guardrail_rows(
                policy,
                approval=self._terms.approval,
                ungated=self._ungated,
                misshapen=[one.name for one in self.calls if one.outcome and one.outcome.code == evidence.BAD_OUTPUT],
            )
        }
        branches = [
            {"branchId": one.request["branchId"], "joinClosed": one.result is not None}
            for one in self.calls
            if "branchId" in one.request
        ]
        return found | {"branchJoins": branches} if branches else found


def split(width: int) -> Row:
    """How work is divided: not at all, or side by side."""
    return {"decomposition": {"mode": "split", "fanOut": width}} if width > 1 else {}
