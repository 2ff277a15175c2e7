"""The rows of a server's turn, one function for each kind. They hold digests, ids and codes, never what was said.

Where a row speaks of something that was shown (renders, queue, views), what was shown is what the client and the
ledger get: there is no model behind a server's turn, and the response takes the place of its context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from manglecp.harness.canonical import digest, digest_made, digest_text
from manglecp.invoke.call_spec import ADMIT, ADMIT_SCHEMA, Frame
from manglecp.invoke.model import EVENT_STATUS, Call, Outcome

__all__ = [
    "BAD_OUTPUT",
    "Result",
    "admission_request",
    "admission_result",
    "event_digests",
    "guardrail_rows",
    "queue_row",
    "render_rows",
    "request_row",
    "result_row",
    "use_row",
    "view_row",
]

Row: TypeAlias = dict[str, Any]
Result: TypeAlias = tuple[Row, str, Outcome | None]
"""A result, the action that it is of, and what it is the row of; None for the admission."""

INJECTION_POINT: Final = "invoke_response"
UNKNOWN: Final = "outcome_unknown"
BAD_OUTPUT: Final = "bad_output"

_TRANSIENT: Final = frozenset({"timeout", "crash", UNKNOWN, "breaker_open", "queue_full"})
"""The toolhost's codes of failures that may be over the next time."""
_CODE: Final = re.compile(r"[a-z][a-z0-9_.\-]{0,63}")


# --- requests ------------------------------------------------------------------------------------------------------


def admission_request(run: str, turn: int, position: int) -> Row:
    """The call that reads the admission, which every first step rests on."""
    return {
        "toolCallId": f"{run}/admit/{turn}",
        "toolName": ADMIT,
        "schemaDigest": ADMIT_SCHEMA,
        "inputDigest": digest_made({"run": run, "turn": turn}),
        "schemaValid": True,
        "callerId": "direct",
        "actionIndex": position,
        "ordinal": position,
        "callGroupId": "admit",
    }


def request_row(call: Call, frame: Frame, position: int, group: str, *, branch: bool) -> Row:
    """A call as it is asked for. ``group`` is its own unless it is a branch of one that several share."""
    aid = call.action.aid
    row = {
        "toolCallId": call.call_id,
        "toolName": aid,
        "schemaDigest": frame.schema_of(call.action),
        "inputDigest": call.input_digest,
        "schemaValid": True,
        "callerId": "direct",
        "actionIndex": position,
        "ordinal": position,
        "callGroupId": group,
    }
    if branch:
        row["branchId"] = call.group
    if aid in frame.examples:
        row["exampleDigest"] = frame.examples[aid]
    return row


# --- results -------------------------------------------------------------------------------------------------------


def admission_result(call_id: str, admission_digest: str, sequence: int) -> Row:
    """That the admission was found, by its digest."""
    return {
        "toolCallId": call_id,
        "status": "ok",
        "resultDigest": admission_digest,
        "sequence": sequence,
        "provenance": {"kind": "runtime_route", "ref": "invoke/admission"},
    }


def result_row(call: Call, outcome: Outcome, plugin_digest: str, sequence: int) -> Row:
    """What came back: the digest of the output, or a typed error."""
    by = f"toolhost/{plugin_digest}" if outcome.by is None else f"operator/{outcome.by}"
    row: Row = {
        "toolCallId": call.call_id,
        "sequence": sequence,
        "provenance": {"kind": "runtime_route", "ref": by},
    }
    if outcome.status == "done":
        return row | {"status": "ok", "resultDigest": outcome.output_digest or digest(outcome.output)}
    return row | {
        "status": "error",
        "errorCode": code_of(outcome),
        "retryable": is_retryable(call, outcome),
        "errorMessageDigest": digest_text(outcome.detail or ""),
    }


def code_of(outcome: Outcome) -> str:
    """A code is a word of a vocabulary. What is none could be text of an action's own, and stays out."""
    if outcome.code is None:
        return UNKNOWN if outcome.status == "unknown" else "failed"
    return outcome.code if _CODE.fullmatch(outcome.code) else "unlisted_code"


def is_retryable(call: Call, outcome: Outcome) -> bool:
    return call.action.idempotent and code_of(outcome) in _TRANSIENT


# --- uses ----------------------------------------------------------------------------------------------------------


def use_row(
    result: Mapping[str, Any], *, gate: str | None = None, summary: str | None = None, retry: str | None = None
) -> Row:
    """What became of a result: tried again, read by something that is named, or only looked at."""
    row: Row = {"toolCallId": result["toolCallId"]}
    if "resultDigest" in result:
        row["resultDigest"] = result["resultDigest"]
    if retry is not None:
        return row | {"disposition": "retry_scheduled", "retryRef": retry}
    if gate is None and summary is None:
        return row | {"disposition": "observed_only"}
    row["disposition"] = "consumed"
    if gate is not None:
        row["mutationInputRef"] = gate
    if summary is not None:
        row["summaryRef"] = summary
    return row


# --- what is shown -------------------------------------------------------------------------------------------------


def event_digests(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of each event as it is told."""
    return [digest_made(dict(event)) for event in events]


@lru_cache(1_024)
def _digest_of(action: str, status: str) -> str:
    """Of what is told where there is no event."""
    return digest_made({"action": action, "status": status})


def render_rows(
    results: Sequence[Result], events: Sequence[Mapping[str, Any]], digests: Sequence[str], policy: str
) -> list[Row]:
    """Of each result the operator finds the digest in the ledger, and the client is told its event.

    Events are those of the whole run, the last ones those of this turn, so both are gone through from the end. What has
    no event (the admission, or one beyond the cap) is told by its action and how it ended. ``digests`` are those of the
    events.
    """
    left = len(events)
    rows = []
    for result, action, outcome in reversed(results):
        status = "success" if outcome is None else EVENT_STATUS[outcome.status]
        names = (action, f"undo: {action}")
        told: str | None = None
        for place in range(left - 1, -1, -1) if outcome is not None else ():
            if events[place]["action"] in names and events[place]["status"] == status:
                told, left = digests[place], place
                break
        rows.append(
            {
                "toolCallId": result["toolCallId"],
                "operatorPayloadDigest": result.get("resultDigest") or result["errorMessageDigest"],
                "reminderRenderDigest": told or _digest_of(action, status),
                "injectionPoint": INJECTION_POINT,
                "policyDigest": policy,
            }
        )
    return rows


def queue_row(digests: Sequence[str], policy: str, *, dedup: bool) -> Row:
    """The digests of the events so far, already capped; each once where the policy wants it."""
    entries = [{"reminderDigest": one} for one in (dict.fromkeys(digests) if dedup else digests)]
    return {"queueId": "events", "reducedDigest": digest_made(entries), "policyDigest": policy, "entries": entries}


def view_row(run: str, turn: int, states: Mapping[Any, str], policy: str) -> Row:
    """The state of every step, as decisions of this turn rest on it."""
    steps = {str(name): state for name, state in states.items()}
    return {
        "viewId": "run",
        "viewDigest": digest_made({"run": run, "turn": turn, "steps": steps}),
        "policyDigest": policy,
        "sourceRefs": [f"run://{run}"],
    }


# --- guardrails ----------------------------------------------------------------------------------------------------


def guardrail_rows(
    policy: str | None, *, approval: str | None, ungated: Iterable[str], misshapen: Iterable[str]
) -> list[Row]:
    """What was decided, in the order of the stages.

    ``ungated`` are effects that no gate has opened for, ``misshapen`` results that do not fit their schema. The rows
    are to be read only: where nothing is wrong they are the same every time.
    """
    return _guardrail_rows(policy, approval, tuple(ungated), tuple(misshapen))


@lru_cache(64)
def _guardrail_rows(
    policy: str | None, approval: str | None, ungated: tuple[str, ...], misshapen: tuple[str, ...]
) -> list[Row]:
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
