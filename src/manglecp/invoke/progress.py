"""The observer of a run (progress, cancellation, hooks for the server), and the events and summary of its response."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from manglecp.base.text import escape_invisible
from manglecp.intent import scrub
from manglecp.invoke.calls import EVENT_STATUS, StepOutcome
from manglecp.wire.messages import UNSET, Event, ProgressPayload

OnProgress: TypeAlias = Callable[[ProgressPayload], None]
_log = logging.getLogger(__name__)


class RunObserver(msgspec.Struct, kw_only=True):
    """Connects a run with its caller and its server."""

    cancelled: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set by the caller, to cancel the run."""
    disconnected: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the caller is gone and cannot repeat the request: cancels the run unless it has had an effect."""
    progress: Callable[[str, int, int], None] = lambda *_: None
    """Called with the action that begins, the number of settled steps, and the number of steps."""
    tool: str | None = None
    """Set by the invoker to the name of the tool, after the checks of the admission."""
    leaving: Callable[[], bool] = lambda: False
    """Set by the invoker: returns whether to release the run to another process; called between steps."""
    point: Callable[[str], None] = lambda _: None
    """Set by the invoker: called with the name of each point where tests simulate a crash."""


def progress_reporter(on_progress: OnProgress | None) -> Callable[[str, int, int], None]:
    """Return a :attr:`RunObserver.progress` that calls ``on_progress``; an empty action name marks the end."""
    if on_progress is None:
        return lambda *_: None
    has_begun = False

    def report(action: str, settled: int, steps: int) -> None:
        nonlocal has_begun
        status: Literal["started", "running", "finalizing"]
        status = "finalizing" if not action else "running" if has_begun else "started"
        has_begun = True
        # Undo steps are settled too, so the count may exceed that of the steps.
        percent = min(round(100 * settled / max(steps, 1)), 100)
        try:
            on_progress(ProgressPayload(status=status, detail=action or None, percent=percent))
        except Exception:  # an error of the caller's function must not fail the run
            _log.exception("progress could not be reported")

    return report


MAX_EVENTS: Final = 20
_MAX_LINE_LENGTH: Final = 400
_MAX_SENTENCES: Final = 3
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=\S)")
_DETAIL_OF_CODE: Final = {
    "timeout": "It took too long",
    "crash": "Its process ended",
    "parse_error": "Its answer could not be read",
    "not_found": "The action is not there",
    "tool_error": "The action reported an error",
    "invalid_pick": "Its input was refused",
    "breaker_open": "It failed too often lately and was not tried",
    "queue_full": "Too many calls were waiting",
    "cancelled": "It was cancelled",
    "oversize": "Its input or its answer was too long",
    "empty_output": "It answered nothing",
    "outcome_unknown": "No answer came, and its effect may have happened",
    "argument_missing": "An argument could not be found in an earlier result or run",
    "invalid_input": "What it would have been given does not fit its schema",
    "bad_output": "Its result does not fit the schema that it declares",
    "gate_refused": "The evidence did not permit it",
    "rules_failed": "The rules about the run failed",
    "lease_refused": "It was not permitted",
    "no_host": "Its process could not be started",
    "secret_lost": "A secret argument is not stored, so the worker that resumed the run did not have it",
    "operator": "An operator decided it",
}


def events_of(outcomes: Sequence[StepOutcome], max_events: int = MAX_EVENTS) -> tuple[Event, ...]:
    """Return one event per outcome, in order, at most ``max_events``.

    If there are more, the last failures have priority, then the first events; the last event counts those left out.
    """
    events = [_event(outcome) for outcome in outcomes]
    if len(events) <= max_events:
        return tuple(events)
    if max_events <= 0:
        return ()
    room = max_events - 1  # without the event that counts the others
    failures = [position for position, event in enumerate(events) if event.status == "failure"]
    last_failures = failures[max(len(failures) - room, 0) :]
    others = [position for position in range(len(events)) if position not in last_failures]
    listed = [events[position] for position in sorted((*last_failures, *others[: room - len(last_failures)]))]
    omitted = len(events) - len(listed)
    return (*listed, Event(action="…", status="skipped", detail=f"{omitted} more events are not listed"))


def event_rows(events: Sequence[Event]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = msgspec.to_builtins(events)
    return rows


def _event(outcome: StepOutcome) -> Event:
    return Event(
        action=f"undo: {outcome.action}" if outcome.kind == "undo" else outcome.action,
        status=EVENT_STATUS[outcome.status],
        duration_ms=UNSET if outcome.status == "skipped" else outcome.duration_ms,
        detail=_detail(outcome) or UNSET,
    )


def _detail(outcome: StepOutcome) -> str | None:
    if outcome.status == "done":
        return f"An operator decided that it happened ({outcome.by})" if outcome.by else None
    if outcome.status == "skipped":
        return clean(outcome.why or "") or None
    if outcome.code == "outcome_unknown" and outcome.status == "failed":
        return "No answer came"  # a read has no effect that may have happened
    return _DETAIL_OF_CODE.get(outcome.code or "", "It failed")


def summary_of(summaries: Sequence[str], outcomes: Sequence[StepOutcome], tool: str) -> str:
    """Return at most three sentences of the summaries that rules derived, else the number of actions."""
    if summaries and (text := clean(" ".join(summaries))):
        return " ".join(_SENTENCE_END.split(text)[:_MAX_SENTENCES])
    done = len([outcome for outcome in outcomes if outcome.kind == "do" and outcome.status == "done"])
    skipped = len([outcome for outcome in outcomes if outcome.status == "skipped"])
    actions = f"{done} action{'' if done == 1 else 's'}"
    also = f" and left out {skipped}" if skipped else ""
    return f"Ran {actions}{also} for {escape_invisible(tool)}."


def clean(text: str) -> str:
    """Return the text as one line of limited length, without credentials and invisible characters."""
    line = escape_invisible(" ".join(scrub(text).split()))
    return line if len(line) <= _MAX_LINE_LENGTH else line[: _MAX_LINE_LENGTH - 1] + "…"
