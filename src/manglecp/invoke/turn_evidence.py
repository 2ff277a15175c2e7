"""The evidence of one turn of a run: its calls, what came of them, and what was used. Digests, ids and codes only.

Calls are numbered as they are recorded, and so are answers. Calls that are recorded together ran in parallel: they
share a group and have a branch each.

Where a row is about something that was shown (renders, queue, views), it is what the client and the ledger get: there
is no model behind a server's turn, and the response takes the place of its context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from manglecp.base.digest import digest_text
from manglecp.harness import digest_v1 as digest
from manglecp.invoke.call_spec import ADMIT, ADMIT_SCHEMA, RunTerms
from manglecp.invoke.calls import EVENT_STATUS, Call, Outcome

__all__ = ["Closing", "Events", "Reads", "States", "TurnCall", "TurnEvidence"]

Row: TypeAlias = dict[str, Any]
Events: TypeAlias = Sequence[Mapping[str, Any]]
States: TypeAlias = Mapping[Any, str]

_ADMISSION: Final = "invoke/admission"
"""The source of the admission's result."""
_INJECTION_POINT: Final = "invoke_response"
_UNKNOWN: Final = "outcome_unknown"
_BAD_OUTPUT: Final = "bad_output"
_TRANSIENT: Final = frozenset({"timeout", "crash", _UNKNOWN, "breaker_open", "queue_full"})
"""The toolhost's codes of failures that may be over the next time."""
_CODE: Final = re.compile(r"[a-z][a-z0-9_.\-]{0,63}")


class Reads(NamedTuple):
    """The steps whose results were used. Other results were only observed."""

    steps: frozenset[int] = frozenset()
    """Used by a later step, on the way to a gate where there is one."""
    answer: frozenset[int] = frozenset()
    """Used by the result object or by an extractor."""


@dataclass(slots=True, eq=False)
class TurnCall:
    """A call of the turn, with what came of it."""

    name: str
    """The id of the call."""
    row: Row
    """Its request."""
    kind: Literal["admission", "do", "undo"]
    number: int
    """Of its step; of the turn, if it is the admission."""
    action: str
    ref: str
    """The name of its result."""
    call: Call | None = None
    """None for the admission."""
    answer: int | None = None
    """The position of its answer among those of the turn; None if there is none."""
    outcome: Outcome | None = None
    """None for the admission, and while there is no answer."""
    retry: str | None = None
    """The id of the attempt that is made instead."""

    @property
    def is_done(self) -> bool:
        """Is it a step that succeeded?"""
        return self.kind == "do" and self.outcome is not None and self.outcome.status == "done"

    @property
    def has_failed(self) -> bool:
        """Is it a step that failed, or whose outcome is unknown, and that is not retried?"""
        return (
            self.kind == "do"
            and self.retry is None
            and self.outcome is not None
            and self.outcome.status in ("failed", "unknown")
        )


class Closing(NamedTuple):
    """The evidence that closes a turn, in the order in which the harness takes it."""

    results: list[Row]
    uses: list[Row]
    protocol_state: Row
    found: Row
    shown: Row


class TurnEvidence:
    """The calls of one turn, in the order in which they were recorded."""

    def __init__(self, terms: RunTerms) -> None:
        self._terms = terms
        self._frame = terms.chain.frame
        self._calls: dict[str, TurnCall] = {}
        self._stray: list[TurnCall] = []
        """Results of calls that were not requested, or that were answered already."""
        self._ungated: list[str] = []
        self._answers = 0
        self.widest = 1
        """The most calls that ran in parallel."""

    # --- recording -------------------------------------------------------------------------------------------------

    def admission(self, turn: int) -> TurnCall:
        """The call that reads the admission record, whose digest is its result. Every first step rests on it."""
        run, position = self._terms.run, len(self._calls)
        name = f"{run}/admit/{turn}"
        row = _request_row(name, ADMIT, ADMIT_SCHEMA, digest({"run": run, "turn": turn}), position, "admit")
        ref = f"admission:{self._terms.admission_digest}"
        return TurnCall(name, row, "admission", turn, ADMIT, ref, answer=self._next())

    def requested(self, calls: Sequence[Call]) -> list[TurnCall]:
        """Calls as they would be recorded next."""
        group = "+".join([call.group for call in calls])
        found = [self._turn_call(call, len(self._calls) + place, group) for place, call in enumerate(calls)]
        if len(calls) > 1:
            for one, call in zip(found, calls, strict=True):
                one.row["branchId"] = call.group
        return found

    def _turn_call(self, call: Call, position: int, group: str) -> TurnCall:
        action, frame = call.action, self._frame
        row = _request_row(call.call_id, action.aid, frame.schema_of(action), call.input_digest, position, group)
        if (example := frame.examples.get(action.aid)) is not None:
            row["exampleDigest"] = example
        ref = f"run://{self._terms.run}/{call.group}"
        return TurnCall(call.call_id, row, call.kind, call.number, action.name, ref, call)

    def record(self, calls: Sequence[TurnCall]) -> None:
        """Keep them."""
        for one in calls:
            self._calls[one.name] = one
        self.widest = max(self.widest, len(calls))

    def record_ungated(self, call: Call) -> None:
        """No gate opened for this effect. It is on record, and no turn that holds it is ever closed."""
        self._ungated.append(call.call_id)

    def answer(self, outcomes: Iterable[Outcome]) -> None:
        """Match outcomes to calls. One that belongs to no open call is kept as a stray."""
        for outcome in outcomes:
            call = outcome.call
            if call is None:
                continue  # it was skipped, or failed before there was a call
            found = self._calls.get(call.call_id)
            if found is None or found.answer is not None:
                found = self._turn_call(call, 0, "")
                self._stray.append(found)
            found.answer, found.outcome = self._next(), outcome

    def _next(self) -> int:
        self._answers += 1
        return self._answers - 1

    # --- reading ---------------------------------------------------------------------------------------------------

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def __getitem__(self, call_id: str) -> TurnCall:
        return self._calls[call_id]

    @property
    def calls(self) -> Iterable[TurnCall]:
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
        inputs: Sequence[TurnCall] | None = None,
        fence: int | None = None,
    ) -> Closing:
        """The rows of the end. ``inputs`` are what a mutation rests on; None if there is none."""
        run, policies, approval = self._terms.run, self._frame.policies, self._terms.approval
        answered = [*(one for one in self._calls.values() if one.answer is not None), *self._stray]
        event_digests = [digest(dict(event)) for event in events]
        results, uses, renders = [], [], []
        for one, rendered in zip(answered, _rendered(answered, events, event_digests), strict=True):
            result = self._terms.admission_digest if one.outcome is None else _digest_of(one.outcome)
            results.append(self._result_row(one, result))
            uses.append(self._use_row(one, result, reads, inputs))
            renders.append(
                {
                    "toolCallId": one.name,
                    "operatorPayloadDigest": result,
                    "reminderRenderDigest": rendered,
                    "injectionPoint": _INJECTION_POINT,
                    "policyDigest": policies.render,
                }
            )
        queued = [*dict.fromkeys(event_digests)] if policies.dedup else event_digests
        entries = [{"reminderDigest": one} for one in queued]
        steps = {str(name): state for name, state in states.items()}
        view = digest({"run": run, "turn": turn, "steps": steps})
        shown: Row = {
            "toolRender": renders,
            "reminderQueue": [
                {
                    "queueId": "events",
                    "reducedDigest": digest(entries),
                    "policyDigest": policies.queue,
                    "entries": entries,
                }
            ],
            "stateViews": [
                {"viewId": "run", "viewDigest": view, "policyDigest": policies.view, "sourceRefs": [f"run://{run}"]}
            ],
            "sessionRefs": [f"run://{run}"],
            "trajectoryRefs": [f"run://{run}/{turn}"],
        }
        if fence is not None:
            shown["continuity"] = {"mode": "descent", "handoffRef": f"journal://{run}/{fence}"}
        protocol: Row = {"stopReason": reason, "continuationAllowed": inputs is not None, "turnIndex": turn}
        if inputs is not None and approval is not None:
            protocol["checkpointRef"] = approval
        return Closing(results, uses, protocol, self._found(), shown)

    def _found(self) -> Row:
        """Guardrail decisions, and which branches of parallel groups were joined."""
        bad = [
            one.name
            for one in self.calls
            if one.outcome is not None and not one.is_done and one.outcome.code == _BAD_OUTPUT
        ]
        found: Row = {"guardrailDecisions": self._guardrail_rows(bad)}
        if self.widest > 1:
            found["branchJoins"] = [
                {"branchId": one.row["branchId"], "joinClosed": one.answer is not None}
                for one in self.calls
                if "branchId" in one.row
            ]
        return found

    def _result_row(self, one: TurnCall, result: str) -> Row:
        """The digest of the output, or a typed error."""
        outcome = one.outcome
        if outcome is None:
            source = _ADMISSION
        else:
            source = self._terms.chain.host if outcome.by is None else f"operator/{outcome.by}"
        row: Row = {
            "toolCallId": one.name,
            "sequence": one.answer,
            "provenance": {"kind": "runtime_route", "ref": source},
        }
        if outcome is None or outcome.status == "done":
            return row | {"status": "ok", "resultDigest": result}
        code = _code_of(outcome)
        retryable = one.call is not None and one.call.action.idempotent and code in _TRANSIENT
        return row | {"status": "error", "errorCode": code, "retryable": retryable, "errorMessageDigest": result}

    def _use_row(self, one: TurnCall, result: str, reads: Reads, inputs: Sequence[TurnCall] | None) -> Row:
        """Retried, used by something that is named, or only observed."""
        row: Row = {"toolCallId": one.name}
        if one.outcome is None or one.outcome.status == "done":
            row["resultDigest"] = result
        if one.retry is not None:
            return row | {"disposition": "retry_scheduled", "retryRef": one.retry}
        for_gate = inputs is not None and one in inputs
        for_answer = one.outcome is None and not for_gate
        if one.is_done and one not in self._stray:
            is_read = one.number in reads.steps
            for_gate = for_gate or (is_read and inputs is not None)
            for_answer = one.number in reads.answer or (is_read and inputs is None)
        if not for_gate and not for_answer:
            return row | {"disposition": "observed_only"}
        row["disposition"] = "consumed"
        if for_gate:
            row["mutationInputRef"] = one.ref
        if for_answer:
            row["summaryRef"] = one.ref if one.kind == "admission" else f"response:{self._terms.run}"
        return row

    def _guardrail_rows(self, bad_results: Sequence[str]) -> list[Row]:
        """What was decided, in the order of the stages."""
        policy, approval = self._frame.policies.stage, self._terms.approval
        decided: list[tuple[str, str, str | None]] = [
            ("pre_flight", "proof", None),
            ("pre_flight", "policy", None),
            *(("pre_flight", "gate", call) for call in self._ungated),
            ("input", "schema", None),
            ("input", "confirmation", None),
            ("output", "result_schema", None),
            *(("output", "result_schema", call) for call in bad_results),
            ("output", "redaction", None),
        ]
        rows = []
        for sequence, (stage, guardrail, blocked) in enumerate(decided):
            row: Row = {
                "stage": stage,
                "sequence": sequence,
                "guardrailId": guardrail,
                "triggered": blocked is not None,
                "outcome": "pass" if blocked is None else "block",
            }
            if policy is not None:
                row["policyDigest"] = policy
            if blocked is not None:
                row["toolCallId"] = blocked
            if guardrail == "confirmation" and approval is not None:
                row["thresholdRef"] = approval
            rows.append(row)
        return rows


def _request_row(name: str, tool: str, schema: str, input_digest: str, position: int, group: str) -> Row:
    return {
        "toolCallId": name,
        "toolName": tool,
        "schemaDigest": schema,
        "inputDigest": input_digest,
        "schemaValid": True,
        "callerId": "direct",
        "actionIndex": position,
        "ordinal": position,
        "callGroupId": group,
    }


def _code_of(outcome: Outcome) -> str:
    """The code of an error. Text that is none could be the action's own words, and stays out."""
    if outcome.code is None:
        return _UNKNOWN if outcome.status == "unknown" else "failed"
    return outcome.code if _CODE.fullmatch(outcome.code) else "unlisted_code"


def _digest_of(outcome: Outcome) -> str:
    """Of the output, or of the message of an error."""
    if outcome.status == "done":
        return outcome.output_digest or digest(outcome.output)
    return digest_text(outcome.detail or "")


def _rendered(answered: Sequence[TurnCall], events: Events, digests: Sequence[str]) -> list[str]:
    """For each result the digest of the event that renders it.

    Events are those of the whole run, the last ones those of this turn, so both are gone through from the end. A result
    without an event (the admission, or one beyond the cap) is rendered by its action and status.
    """
    left = len(events)
    found: list[str] = []
    for one in reversed(answered):
        status = "success" if one.outcome is None else EVENT_STATUS[one.outcome.status]
        rendered: str | None = None
        if one.outcome is not None:
            names = (one.action, f"undo: {one.action}")
            for place in range(left - 1, -1, -1):
                if events[place]["action"] in names and events[place]["status"] == status:
                    rendered, left = digests[place], place
                    break
        found.append(rendered or digest({"action": one.action, "status": status}))
    return found[::-1]
