"""The observer of a run, the reports of its actions, and the events and summary of its response.

Actions report progress and log lines, and raise. Progress goes to the caller; lines and failures go to the log
``manglecp.actions``, with the run and the action. Reports come from untrusted processes, which may report without
end: texts are cleaned, and messages and lines are limited in number.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from textwrap import indent
from typing import Any, Final, TypeAlias

import msgspec

from manglecp.base.text import escape_invisible
from manglecp.intent import make_redactor, scrub, scrub_json, unchanged
from manglecp.invoke.calls import EVENT_STATUS, ActionCall, StepOutcome
from manglecp.invoke.plan import Plan
from manglecp.toolhost import OnReport
from manglecp.wire.messages import UNSET, Event, ProgressPayload

OnProgress: TypeAlias = Callable[[ProgressPayload], None]
_log = logging.getLogger(__name__)


def do_nothing() -> None:
    """Ignore a cancellation: the default of :attr:`RunObserver.on_stop`."""


class RunObserver(msgspec.Struct, kw_only=True):
    """Connects a run with its caller and its server."""

    cancelled: bool = False
    """Whether the caller has cancelled the run."""
    disconnected: bool = False
    """Whether the caller is gone and cannot repeat the request: cancels the run unless it has had an effect."""
    on_stop: Callable[[], None] = do_nothing
    """Called after :meth:`cancel` and :meth:`disconnect`; the code that executes or awaits the run sets it."""
    on_progress: OnProgress | None = None
    tool: str | None = None
    """Set by the invoker to the name of the tool, after the checks of the admission."""
    leaving: Callable[[], bool] = lambda: False
    """Set by the invoker: returns whether to release the run to another process; called between steps."""
    point: Callable[[str], object] = len  # len stands for a function that ignores its text
    """Set by the invoker: called with the name of each point where tests simulate a crash."""

    def cancel(self) -> None:
        """Cancel the run: it stops before its next step, and succeeds if there is no further step."""
        self.cancelled = True
        self.on_stop()

    def disconnect(self) -> None:
        self.disconnected = True
        self.on_stop()


_PROGRESS_SECONDS: Final = 0.1  # the least time between two messages about reports of actions
_MAX_LOG_LINES: Final = 1_000  # the log lines of one call; further ones are counted
_MAX_LOGGED_LENGTH: Final = 4_000
_MAX_COUNT: Final = 1e300  # the quotient of larger integers overflows
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_MIN_SECRET_LENGTH: Final = 4
"""A shorter secret also occurs by chance: its redaction everywhere would reveal it."""
_actions_log = logging.getLogger("manglecp.actions")


class RunReports:
    """Receives the reports of the calls of one run. ``redact`` replaces the secrets of the run in a JSON value."""

    def __init__(
        self, run_id: str, steps: int, on_progress: OnProgress | None, redact: Callable[[Any], Any] = unchanged
    ) -> None:
        self._run_id = run_id
        self._steps = max(steps, 1)
        self._on_progress = on_progress
        self._redact = redact
        self._has_begun = False
        self._settled_count = 0
        self._shares: dict[str, float] = {}
        """How much of each call of the current round is done, from 0 to 1, by call id."""
        self._percent = 0
        self._is_pausing = False  # whether the last report was sent less than ``_PROGRESS_SECONDS`` ago
        self._latest: tuple[ActionCall, str] | None = None
        """The call and the text of the latest report of the pause; sent when the pause ends."""
        self._log_lines: dict[str, int] = {}  # the number of log lines, by call id
        self._lost_reports: dict[str, int] = {}
        """By call id: how many reports the host could not send before the reports of the call."""

    def begin(self, call: ActionCall, settled: int) -> OnReport:
        """Report that a call begins, after ``settled`` steps; return the function for the reports of its action."""
        if settled > self._settled_count:
            self._settled_count = settled
            self._shares.clear()
        self._shares[call.call_id] = 0.0
        self._send_step(call, call.action.description.strip().partition("\n")[0])
        return partial(self._receive, call)

    def end(self, call: ActionCall) -> None:
        if self._latest is not None and self._latest[0] is call:
            latest, self._latest = self._latest, None
            self._send_step(*latest)
        self._shares[call.call_id] = 1.0
        if lost := self._lost_reports.pop(call.call_id, 0):
            self._log(call, logging.WARNING, f"{lost:,} lines and progress reports of this or earlier calls were lost")
        unlogged = self._log_lines.pop(call.call_id, 0) - _MAX_LOG_LINES
        if unlogged > 0:
            self._log(call, logging.WARNING, f"{unlogged:,} more lines are not logged")

    def finalize(self) -> None:
        """Report that all steps have ended."""
        self._settled_count, self._latest = self._steps, None
        self._send("finalizing", None)

    def log_failure(self, outcome: StepOutcome) -> StepOutcome:
        """Log a failed call with its traceback; return the outcome with clean texts. Other outcomes are unchanged."""
        if outcome.status not in ("failed", "unknown") or outcome.code == "cancelled":
            return outcome
        detail = self._clean_lines(outcome.detail or outcome.code or "it failed")
        trace = self._clean_lines(outcome.trace or "") or detail
        cause: dict[str, Any] | None = scrub_json(self._redact(outcome.cause))
        if cause is not None:
            cause["message"] = clean(cause["message"], _MAX_LOGGED_LENGTH)
        fields = {"run_id": self._run_id, "action": outcome.action, "failure": detail}
        text = indent(trace, "  ").lstrip()  # no line of the trace can look like a log record
        level = logging.WARNING if cause is None else logging.INFO
        _actions_log.log(level, "%s failed (run %s): %s", outcome.action, self._run_id, text, extra=fields)
        return msgspec.structs.replace(outcome, detail=detail, trace=trace, cause=cause)

    def _clean_lines(self, text: str) -> str:
        return "\n".join(map(escape_invisible, scrub(self._redact(text)).splitlines()))[-_MAX_LOGGED_LENGTH:]

    def _receive(self, call: ActionCall, report: Mapping[str, Any]) -> None:
        message, done, total = report.get("message"), report.get("done"), report.get("total")
        text = message if isinstance(message, str) else ""  # not cleaned yet: most reports are dropped
        if type(lost_count := report.get("lost_before")) is int and 0 < lost_count < _MAX_COUNT:
            self._lost_reports[call.call_id] = self._lost_reports.get(call.call_id, 0) + lost_count
        if report.get("event") == "log":
            lines = self._log_lines[call.call_id] = self._log_lines.get(call.call_id, 0) + 1
            if lines <= _MAX_LOG_LINES:
                self._log(call, _LEVELS.get(str(report.get("level")).lower(), logging.INFO), text)
            return
        if isinstance(done, int | float) and isinstance(total, int | float) and abs(done) < _MAX_COUNT > total > 0:
            self._shares[call.call_id] = min(max(done / total, 0.0), 1.0)
            text = text or f"{done:g} of {total:g}"
        self._latest = call, text
        if not self._is_pausing:
            self._send_latest()

    def _send_latest(self) -> None:
        self._is_pausing = self._latest is not None
        if self._latest is not None:
            asyncio.get_running_loop().call_later(_PROGRESS_SECONDS, self._send_latest)
            latest, self._latest = self._latest, None
            self._send_step(*latest)

    def _send_step(self, call: ActionCall, text: str) -> None:
        if self._on_progress is not None:
            text = clean(self._redact(text))
            self._send("running" if self._has_begun else "started", f"{call.action.name}{': ' if text else ''}{text}")

    def _send(self, status: str, detail: str | None) -> None:
        self._has_begun = True
        if self._on_progress is None:
            return
        # Undo steps are counted as settled, so the count may exceed the number of steps.
        share = min((self._settled_count + sum(self._shares.values())) / self._steps, 1.0)
        self._percent = max(self._percent, round(100 * share))
        try:
            self._on_progress(ProgressPayload(status=status, detail=detail, percent=self._percent))
        except Exception:  # an error of the caller's function must not fail the run
            _log.exception("progress could not be reported")

    def _log(self, call: ActionCall, level: int, text: str) -> None:
        action, text = call.action.name, clean(self._redact(text), _MAX_LOGGED_LENGTH)
        fields = {"run_id": self._run_id, "action": action}
        _actions_log.log(level, "%s: %s (run %s)", action, text, self._run_id, extra=fields)


def run_redactor(plan: Plan, args: Mapping[str, Any], secret_settings: Sequence[str]) -> Callable[[Any], Any]:
    """Return a function that replaces secret settings and arguments in a JSON value, or ``unchanged``."""
    if not secret_settings and not plan.secrets:
        return unchanged
    secret_args = [text for name in plan.secrets for text in _texts(args.get(name))]
    return make_redactor(text for text in (*secret_settings, *secret_args) if len(text) >= _MIN_SECRET_LENGTH)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, and its numbers as texts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


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
    "no_secret": "A secret that it takes has no value",
    "secret_lost": "A secret argument is not stored, so the worker that resumed the run did not have it",
    "operator": "An operator decided it",
}


def events_of(outcomes: Sequence[StepOutcome], max_events: int = MAX_EVENTS) -> tuple[Event, ...]:
    """Return one event per outcome, in order, at most ``max_events``: the last failures, then the first others."""
    events = [_event(outcome) for outcome in outcomes]
    if len(events) <= max_events:
        return tuple(events)
    room = max(max_events, 0)
    failures = [position for position, event in enumerate(events) if event.status == "failure"]
    last_failures = failures[max(len(failures) - room, 0) :]
    others = [position for position in range(len(events)) if position not in last_failures]
    return tuple(events[position] for position in sorted((*last_failures, *others[: room - len(last_failures)])))


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
    if outcome.cause is not None:
        return clean(outcome.cause["message"])
    if outcome.code == "outcome_unknown" and outcome.status == "failed":
        return "No answer came"  # "failed", not "unknown": a read, which has no effect
    return _DETAIL_OF_CODE.get(outcome.code or "", "It failed")


def summary_of(summaries: Sequence[str], outcomes: Sequence[StepOutcome], tool: str) -> str:
    """Return at most three sentences of the summaries that rules derived, else the number of actions."""
    if summaries and (text := clean(" ".join(summaries))):
        return " ".join(_SENTENCE_END.split(text)[:_MAX_SENTENCES])
    done = len([outcome for outcome in outcomes if outcome.kind == "do" and outcome.status == "done"])
    skipped = len([outcome for outcome in outcomes if outcome.status == "skipped"])
    actions = f"{done} action{'' if done == 1 else 's'}"
    skipped_text = f" and left out {skipped}" if skipped else ""
    return f"Ran {actions}{skipped_text} for {escape_invisible(tool)}."


def clean(text: str, max_length: int = _MAX_LINE_LENGTH) -> str:
    """Return the text as one line of limited length, without credentials and invisible characters."""
    line = escape_invisible(" ".join(scrub(text).split()))
    return line if len(line) <= max_length else line[: max_length - 1] + "…"
