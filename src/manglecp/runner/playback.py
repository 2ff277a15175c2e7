"""Replay of a run from its log.

The loop of the run is executed again with the recorded menus, selections and goals; no policy is started. If the caller
passes an executor, it executes deterministic actions again. Other actions return the recorded result, and so does a
deterministic action that failed because of a deadline, a crash or a circuit breaker. Every event is compared with the
log as a JSON value, except for :data:`_NOT_COMPARED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from manglecp.runner.execution import ActionOutcome, Execute, StepStatus, apply_state_patch, resolve
from manglecp.runner.log import END, BrokenLog, RunRecord, same_json, verify
from manglecp.runner.loop import START, Budget, EndReason, RunRequest, RunResult, run
from manglecp.runner.selection import Menu, Selection
from manglecp.runner.selectors import ControlMode, Situation
from manglecp.toolhost import Slots, apply_state

_NOT_COMPARED: Final = ("duration_ms", "records", "seal", "raised")
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
    log: Path | Iterable[bytes],
    execute: Execute | None = None,
    *,
    key: bytes | None = None,
    head: str | None = None,
    end_required: bool = True,
) -> ReplayResult:
    """Verify the log as :func:`~.log.verify` does, with the same options, then replay it.

    Without ``execute``, all actions return the recorded results, and the replay has no effects. Raises
    :class:`BrokenLog`.
    """
    verified = verify(log, key=key, head=head, end_required=end_required)
    start = verified.records[0]
    if start.event != START:
        raise BrokenLog(1, "the first record is not run_start; a log of the C++ runner cannot be replayed")
    try:
        request, state, budget = _read_start(start.payload, verified.header.request_id)
        recording = _Recording(verified.records, execute)
        result = await run(
            request,
            state,
            recording,
            menu=recording.menu,
            execute=recording.execute,
            fallback=recording.fallback,
            policy=recording.policy if start.payload["has_policy"] else None,
            goal_done=recording.goal_done,
            budget=budget,
        )
    except _ReplayDiverged as diverged:
        return ReplayResult(None, diverged.divergence)
    except _EndOfLog:
        for line, _ in recording.unread:
            raise BrokenLog(line, "the record does not follow from those before it") from None
        return ReplayResult(None)
    except _RecordedException:
        return ReplayResult(recording.result())
    except (KeyError, TypeError, AttributeError, ValueError) as error:
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


class _EndOfLog(Exception):
    """The run continues after the last record of a log without end."""


class _RecordedException(Exception):
    """Replaces the exception that ``menu`` or ``goal_done`` raised in the recorded run."""


class _Recording:
    """The functions of the caller, as recorded, and the sink that compares the events of the replay with the log."""

    def __init__(self, records: Iterable[RunRecord], execute: Execute | None) -> None:
        self._records = tuple(records)
        self._payloads = {(record.step, record.event): record.payload for record in self._records}
        self.unread: Iterator[tuple[int, RunRecord]] = iter(enumerate(self._records, 1))
        self._menus = [  # pairs of step and menu in reverse order, for pop()
            (record.step, Menu.read(record.payload["menu"]))
            for record in reversed(self._records)
            if record.event == "menu_built"
        ]
        self._execute = execute
        self._step = 0
        end = self._records[-1]
        self._has_end = end.event == END
        raised = end.payload.get("raised") if end.payload.get("reason") == EndReason.EXCEPTION else None
        self._raised_by = str(raised).partition(":")[0] if raised is not None else None  # "menu" or "goal_done"
        self._end_step = end.step
        self._state: Slots = {}  # the last state that the loop passed to menu() or goal_done()

    def write(self, event: str, step: int, payload: Mapping[str, Any]) -> None:
        """Raise :class:`_ReplayDiverged` if the event differs from the next record of the log."""
        line, record = next(self.unread, (0, None))
        if record is None:
            raise ValueError("the run continues after the end of the log") if self._has_end else _EndOfLog
        replayed = _comparable(event, step, payload)
        recorded = _comparable(record.event, record.step, record.payload)
        if not same_json(replayed, recorded):
            raise _ReplayDiverged(Divergence(line, step, recorded, replayed))

    def menu(self, state: Slots) -> Menu:
        self._state = state
        if not self._menus:  # in the recorded run, ``menu`` raised, or the log ends here
            raise _RecordedException if self._has_end else _EndOfLog
        self._step, menu = self._menus.pop()
        return menu

    def fallback(self, _: Situation) -> Selection:
        return Selection.read(self._recorded("selector_fallback_raw"))

    def policy(self, _: Situation) -> Selection:
        return Selection.read(self._recorded("selector_policy_raw"))

    async def execute(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> ActionOutcome:
        success = self._payloads.get((self._step, "tool_ok"))
        recorded = self._recorded("tool_error") if success is None else success
        by_action = success is not None or recorded["by_action"]
        if self._execute is not None and recorded["deterministic"] and by_action:
            return await resolve(self._execute(aid, inputs, state))
        if success is None:
            return ActionOutcome(StepStatus(recorded["status"]), recorded["err"], state, by_action)
        return ActionOutcome(StepStatus.OK, success["output"], apply_state_patch(state, success["tx_patch"]))

    def goal_done(self, state: Slots) -> bool:
        self._state = state
        if self._raised_by == "goal_done" and self._step == self._end_step:
            raise _RecordedException
        return (self._step, "goal_done") in self._payloads

    def result(self) -> RunResult:
        """Return the result of a run that ended with an exception: a patch counts if its action succeeded."""
        inputs = patched = dict(self._records[0].payload["inputs"])
        for record in self._records:
            if record.event == "menu_built":
                patched = inputs
            elif record.event == "inputs_patched":
                patched = dict(record.payload["inputs"])
            elif record.event == "tool_ok":
                inputs = patched
        return RunResult(EndReason.EXCEPTION, self._end_step + 1, inputs, self._state)

    def _recorded(self, event: str) -> Mapping[str, Any]:
        if not self._has_end and self._records[-1].step == self._step and (self._step, event) not in self._payloads:
            raise _EndOfLog
        return self._payloads[self._step, event]


def _comparable(event: str, step: int, payload: Mapping[str, Any]) -> dict[str, Any]:
    compared = {name: value for name, value in payload.items() if name not in _NOT_COMPARED}
    return {"event": event, "step": step, "payload": compared}
