"""The evidence of a server's turn, as it is asked for and as it is closed. It holds digests, ids and codes, never what
was said.

Evidence is made of two things. What kind of turn it is, that is one value, which does not change: :class:`Requested`
for each request, :class:`Closing` for the end. What is this turn's alone are *words*: the ids of runs, and digests.
Nothing else goes into it, so that turns of one kind differ in words only, and the harness may know them by these.

Where a row speaks of something that was shown (renders, queue, views), what was shown is what the client and the
ledger get: there is no model behind a server's turn, and the response takes the place of its context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from manglecp.base.digest import digest_text
from manglecp.harness import digest_v1 as digest
from manglecp.invoke.call_spec import ADMIT, ADMIT_SCHEMA, Frame, Policies
from manglecp.invoke.calls import EVENT_STATUS, Call, Outcome

__all__ = [
    "BAD_OUTPUT",
    "Answered",
    "Closing",
    "ClosingRows",
    "Requested",
    "admission_requested",
    "closing_rows",
    "code_of",
    "digest_of",
    "event_digests",
    "is_retryable",
    "places_told",
    "queue_digest",
    "request_rows",
    "requested",
    "view_digest",
]

Row: TypeAlias = dict[str, Any]
Words: TypeAlias = Sequence[str]

INJECTION_POINT: Final = "invoke_response"
UNKNOWN: Final = "outcome_unknown"
BAD_OUTPUT: Final = "bad_output"

_TRANSIENT: Final = frozenset({"timeout", "crash", UNKNOWN, "breaker_open", "queue_full"})
"""The toolhost's codes of failures that may be over the next time."""
_CODE: Final = re.compile(r"[a-z][a-z0-9_.\-]{0,63}")


# --- requests ------------------------------------------------------------------------------------------------------


class Requested(msgspec.Struct, frozen=True, gc=False):
    """A call as it is asked for. Its words are its run and the digest of its input."""

    name: str
    """Its id, without the run."""
    tool: str
    schema: str
    position: int
    group: str
    """Its own, unless it is a branch of one that several share."""
    branch: str | None = None
    example: str | None = None


@lru_cache(64)
def admission_requested(turn: int, position: int) -> Requested:
    """The call that reads the admission, which every first step rests on."""
    return Requested(f"admit/{turn}", ADMIT, ADMIT_SCHEMA, position, "admit")


def requested(call: Call, frame: Frame, position: int, group: str, *, branch: bool) -> Requested:
    """A call of a step."""
    action = call.action
    own = call.group
    schema, example = frame.schema_of(action), frame.examples.get(action.aid)
    return Requested(f"{own}/{call.attempt}", action.aid, schema, position, group, own if branch else None, example)


def request_rows(asked: Iterable[Requested], words: Words) -> list[Row]:
    """The rows of requests."""
    rows = []
    for place, one in enumerate(asked):
        row: Row = {
            "toolCallId": f"{words[2 * place]}/{one.name}",
            "toolName": one.tool,
            "schemaDigest": one.schema,
            "inputDigest": words[2 * place + 1],
            "schemaValid": True,
            "callerId": "direct",
            "actionIndex": one.position,
            "ordinal": one.position,
            "callGroupId": one.group,
        }
        if one.branch is not None:
            row["branchId"] = one.branch
        if one.example is not None:
            row["exampleDigest"] = one.example
        rows.append(row)
    return rows


# --- the end -------------------------------------------------------------------------------------------------------


class Answered(msgspec.Struct, frozen=True, gc=False):
    """What came of a call, and what became of that. Its words are its run and the digest of its result or message."""

    name: str
    """The id of the call, without the run."""
    group: str | None
    """That of the step; None for the admission."""
    sequence: int
    source: str
    """Who says it."""
    error: str | None
    """A code; None if all went well."""
    retryable: bool
    told: int | str
    """Which of the events tells it, or the digest of what is told instead."""
    gate: bool = False
    """Does a mutation rest on it?"""
    summary: bool = False
    """Is it in the answer?"""
    retry: str | None = None
    """The id of the attempt that is made instead, without the run."""


class Closing(msgspec.Struct, frozen=True, gc=False):
    """How a turn ends. Its words are its run, those of what was answered, the digests of the events, that of the queue
    and that of the view."""

    turn: int
    reason: str
    continuing: bool
    answered: tuple[Answered, ...]
    entries: tuple[int, ...]
    """The events that are in the queue."""
    branches: tuple[tuple[str, bool], ...] = ()
    """Of parallel groups, and whether they came together."""
    fence: int | None = None
    """Of a turn that goes on from what someone else began."""
    approval: str | None = None
    ungated: tuple[str, ...] = ()
    """Effects that no gate has opened for."""
    misshapen: tuple[str, ...] = ()
    """Results that do not fit their schema."""

    @property
    def usual(self) -> bool:
        """May there be more of the kind? Otherwise something stands in it that is one run's alone."""
        return self.fence is None and self.approval is None and not self.ungated and not self.misshapen


class ClosingRows(NamedTuple):
    """The evidence that a turn is closed with, as the harness takes it."""

    results: list[Row]
    uses: list[Row]
    protocol_state: Row
    found: Row
    shown: Row


def closing_rows(closing: Closing, policies: Policies, words: Words) -> ClosingRows:
    """All rows of the end."""
    run = words[0]
    events, queue, view = words[1 + 2 * len(closing.answered) : -2], words[-2], words[-1]
    results, uses, renders = [], [], []
    for place, one in enumerate(closing.answered):
        caller, digested = words[1 + 2 * place : 3 + 2 * place]
        name = f"{caller}/{one.name}"
        results.append(_result_row(one, name, digested))
        uses.append(_use_row(one, name, caller, digested, run))
        renders.append(
            {
                "toolCallId": name,
                "operatorPayloadDigest": digested,
                "reminderRenderDigest": one.told if isinstance(one.told, str) else events[one.told],
                "injectionPoint": INJECTION_POINT,
                "policyDigest": policies.render,
            }
        )
    protocol: Row = {"stopReason": closing.reason, "continuationAllowed": closing.continuing, "turnIndex": closing.turn}
    if closing.continuing and closing.approval is not None:
        protocol["checkpointRef"] = closing.approval
    decided = _guardrail_rows(policies.stage, closing.approval, closing.ungated, closing.misshapen)
    found: Row = {"guardrailDecisions": decided}
    if closing.branches:
        found["branchJoins"] = [{"branchId": branch, "joinClosed": joined} for branch, joined in closing.branches]
    entries = [{"reminderDigest": events[place]} for place in closing.entries]
    shown: Row = {
        "toolRender": renders[::-1],
        "reminderQueue": [
            {"queueId": "events", "reducedDigest": queue, "policyDigest": policies.queue, "entries": entries}
        ],
        "stateViews": [
            {"viewId": "run", "viewDigest": view, "policyDigest": policies.view, "sourceRefs": [f"run://{run}"]}
        ],
        "sessionRefs": [f"run://{run}"],
        "trajectoryRefs": [f"run://{run}/{closing.turn}"],
    }
    if closing.fence is not None:
        shown["continuity"] = {"mode": "descent", "handoffRef": f"journal://{run}/{closing.fence}"}
    return ClosingRows(results, uses, protocol, found, shown)


def _result_row(one: Answered, name: str, digested: str) -> Row:
    """What came back: the digest of the output, or a typed error."""
    row: Row = {
        "toolCallId": name,
        "sequence": one.sequence,
        "provenance": {"kind": "runtime_route", "ref": one.source},
    }
    if one.error is None:
        return row | {"status": "ok", "resultDigest": digested}
    return row | {
        "status": "error",
        "errorCode": one.error,
        "retryable": one.retryable,
        "errorMessageDigest": digested,
    }


def _use_row(one: Answered, name: str, caller: str, digested: str, run: str) -> Row:
    """What became of a result: tried again, read by something that is named, or only looked at."""
    row: Row = {"toolCallId": name}
    if one.error is None:
        row["resultDigest"] = digested
    if one.retry is not None:
        return row | {"disposition": "retry_scheduled", "retryRef": f"{caller}/{one.retry}"}
    if not one.gate and not one.summary:
        return row | {"disposition": "observed_only"}
    admission = f"admission:{digested}"
    row["disposition"] = "consumed"
    if one.gate:
        row["mutationInputRef"] = admission if one.group is None else f"run://{run}/{one.group}"
    if one.summary:
        row["summaryRef"] = admission if one.group is None else f"response:{run}"
    return row


# --- results -------------------------------------------------------------------------------------------------------


def code_of(outcome: Outcome) -> str:
    """A code is a word of a vocabulary. What is none could be text of an action's own, and stays out."""
    if outcome.code is None:
        return UNKNOWN if outcome.status == "unknown" else "failed"
    return outcome.code if _CODE.fullmatch(outcome.code) else "unlisted_code"


def is_retryable(call: Call, outcome: Outcome) -> bool:
    """May another attempt come to something else?"""
    return call.action.idempotent and code_of(outcome) in _TRANSIENT


def digest_of(outcome: Outcome) -> str:
    """Of what came back: the output, or the message of an error."""
    if outcome.status == "done":
        return outcome.output_digest or digest(outcome.output)
    return digest_text(outcome.detail or "")


# --- what is shown -------------------------------------------------------------------------------------------------


def event_digests(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of each event as it is told."""
    return [digest(event if type(event) is dict else dict(event)) for event in events]


def queue_digest(digests: Sequence[str]) -> str:
    """Of the queue of events, given by their digests."""
    return digest([{"reminderDigest": one} for one in digests])


def view_digest(run: str, turn: int, states: Mapping[Any, str]) -> str:
    """Of the state of every step, as decisions of this turn rest on it."""
    steps = {str(name): state for name, state in states.items()}
    return digest({"run": run, "turn": turn, "steps": steps})


@lru_cache(1_024)
def _digest_told(action: str, status: str) -> str:
    """Of what is told where there is no event."""
    return digest({"action": action, "status": status})


def places_told(results: Sequence[tuple[str, Outcome | None]], events: Sequence[Mapping[str, Any]]) -> list[int | str]:
    """Of each result (its action, and what it is of; None for the admission) which event tells it.

    Events are those of the whole run, the last ones those of this turn, so both are gone through from the end. What has
    no event (the admission, or one beyond the cap) is told by its action and how it ended.
    """
    left = len(events)
    found: list[int | str] = []
    for action, outcome in reversed(results):
        status = "success" if outcome is None else EVENT_STATUS[outcome.status]
        told: int | str | None = None
        if outcome is not None:
            names = (action, f"undo: {action}")
            for place in range(left - 1, -1, -1):
                if events[place]["action"] in names and events[place]["status"] == status:
                    told = left = place
                    break
        found.append(_digest_told(action, status) if told is None else told)
    return found[::-1]


# --- guardrails ----------------------------------------------------------------------------------------------------


@lru_cache(64)
def _guardrail_rows(
    policy: str | None, approval: str | None, ungated: tuple[str, ...], misshapen: tuple[str, ...]
) -> list[Row]:
    """What was decided, in the order of the stages. The rows are to be read only: they are the same every time."""
    decided: list[tuple[str, str, str | None]] = [
        ("pre_flight", "proof", None),
        ("pre_flight", "policy", None),
        *(("pre_flight", "gate", call) for call in ungated),
        ("input", "schema", None),
        ("input", "confirmation", None),
        ("output", "result_schema", None),
        *(("output", "result_schema", call) for call in misshapen),
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
