"""Replay of a run from its log.

The loop of the run is executed again with the recorded menus, selections, outcomes and goals; no policy and no action
is started. Every event is compared with the log as a JSON value, without the members in :data:`_NOT_COMPARED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from manglecp.runner.execution import ActionOutcome, StepStatus, apply_state_patch
from manglecp.runner.log import END, BrokenLog, RunRecord, canonical, verify
from manglecp.runner.loop import START, Budget, RunRequest, RunResult, run
from manglecp.runner.selection import Menu, Selection
from manglecp.runner.selectors import ControlMode, Situation
from manglecp.toolhost import Slots, apply_state

_NOT_COMPARED: Final = ("duration_ms", "records", "seal")
"""Members of a payload that a replay does not reproduce."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first record that differs. ``line`` counts from 1, ``step`` from 0."""

    line: int
    step: int
    recorded: Mapping[str, Any]
    replayed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """``result`` is the result of the run if all records were the same; otherwise None, and ``divergence`` is set.

    Both are None if all records were the same, and the log has no end.
    """

    result: RunResult | None
    divergence: Divergence | None = None


async def replay(
    log: Path | Iterable[bytes], *, key: bytes | None = None, head: str | None = None, end_required: bool = True
) -> ReplayResult:
    """Verify the log with the options of :func:`~.log.verify`, then replay it. Raises :class:`BrokenLog`."""
    verified_log = verify(log, key=key, head=head, end_required=end_required)
    start = verified_log.records[0]
    if start.event != START:
        raise BrokenLog(1, "the first record is not run_start; a log of the C++ runner cannot be replayed")
    try:
        request, state, budget = _read_start(start.payload, verified_log.header.request_id)
        recording = _Recording(verified_log.records)
        result = await run(
            request,
            state,
            recording,
            menu=recording.menu,
            execute=recording.execute,
            selector=recording.select,
            goal_done=recording.goal_done,
            budget=budget,
        )
    except _ReplayDiverged as diverged:
        return ReplayResult(None, diverged.divergence)
    except _EndOfLog:
        for line, _ in recording.unread_records:
            raise BrokenLog(line, "the record does not follow from those before it") from None
        return ReplayResult(None)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BrokenLog(1, f"not the log of a run: {type(error).__name__} {error}") from None
    return ReplayResult(result)


def _read_start(payload: Mapping[str, Any], request_id: str | None) -> tuple[RunRequest, Slots, Budget]:
    request = RunRequest(
        payload["goal_id"], payload["inputs"], control_mode=ControlMode(payload["control_mode"]), request_id=request_id
    )
    return request, apply_state(payload["state"], {}), Budget(**payload["budget"])


class _ReplayDiverged(Exception):
    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence)
        self.divergence = divergence


class _EndOfLog(BaseException):  # a BaseException: the loop turns every Exception into an outcome
    """The run continues after the last record of a log without end."""


class _Recording:
    """Functions that return what the caller's functions returned, and a sink that compares the events with the log."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._records = tuple(records)
        self._payloads = {(record.step, record.event): record.payload for record in self._records}
        self.unread_records: Iterator[tuple[int, RunRecord]] = iter(enumerate(self._records, 1))
        self._step = -1
        self._has_end = self._records[-1].event == END

    def write(self, event: str, step: int, payload: Mapping[str, Any]) -> None:
        """Raise :class:`_ReplayDiverged` if the event differs from the next record of the log."""
        line, record = next(self.unread_records, (0, None))
        if record is None:
            raise ValueError("the run continues after the end of the log") if self._has_end else _EndOfLog
        replayed = _compared_members(event, step, payload)
        recorded = _compared_members(record.event, record.step, record.payload)
        if canonical(replayed) != canonical(recorded):  # as JSON, because in Python 1 == True
            raise _ReplayDiverged(Divergence(line, step, recorded, replayed))

    def menu(self, _: Slots) -> Menu:
        self._step += 1
        return Menu.read(self._recorded_payload("menu_built")["menu"])

    def select(self, _: Situation) -> Selection:
        step_events = (event for step, event in self._payloads if step == self._step)
        raw_event = next((event for event in step_events if event.startswith("selector_")), "selector_chosen")
        return Selection.read(self._recorded_payload(raw_event))

    def execute(self, _aid: str, _inputs: dict[str, Any], state: Slots, /) -> ActionOutcome:
        success = self._payloads.get((self._step, "tool_ok"))
        recorded = self._recorded_payload("tool_error") if success is None else success
        turn = recorded.get("turn", "")
        if success is None:
            return ActionOutcome(StepStatus(recorded["status"]), recorded["err"], state, turn)
        return ActionOutcome(StepStatus.OK, success["output"], apply_state_patch(state, success["tx_patch"]), turn=turn)

    def goal_done(self, _: Slots) -> bool:
        return (self._step, "goal_done") in self._payloads

    def _recorded_payload(self, event: str) -> Mapping[str, Any]:
        if not self._has_end and self._records[-1].step <= self._step and (self._step, event) not in self._payloads:
            raise _EndOfLog
        return self._payloads[self._step, event]


def _compared_members(event: str, step: int, payload: Mapping[str, Any]) -> dict[str, Any]:
    compared_payload = {name: value for name, value in payload.items() if name not in _NOT_COMPARED}
    return {"event": event, "step": step, "payload": compared_payload}
