"""A small world to run in: three actions, scripted selectors, a log in memory."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from manglecp.runner import (
    ActionOutcome,
    Budget,
    Menu,
    MenuAction,
    ReplayResult,
    RunHeader,
    RunLog,
    RunRequest,
    RunResult,
    Selection,
    Selector,
    Situation,
    StepStatus,
    parse_selection,
    replay,
    run,
    verify,
)
from manglecp.toolhost.state import Artifact, Slots

MENU = Menu.of(
    [
        MenuAction("AID.COUNT.v1", "Count", deterministic=True),
        MenuAction("AID.FAIL.v1", "Fail", deterministic=True),
        MenuAction("AID.ROLL.v1", "Roll"),
    ]
)
COUNT, FAIL, ROLL = (f"<PICK><{entry.sid}><END>" for entry in MENU.entries)
NOOP = "<NOOP><END>"


def saying(*texts: str) -> Selector:
    """A selector that says these one after the other, and the last one for ever."""
    said = list(texts)

    def select(_: Situation) -> Selection:
        return parse_selection(said.pop(0) if len(said) > 1 else said[0])

    return select


@dataclass
class World:
    """Runs the three actions. ``AID.ROLL.v1`` gives another number every time, over all worlds."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    status: StepStatus = StepStatus.TOOL_ERROR

    def __call__(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> ActionOutcome:
        self.calls.append((aid, dict(inputs)))
        if aid == "AID.FAIL.v1":
            state[5] = Artifact("spoiled")
            inputs["spoiled"] = True
            return ActionOutcome(self.status, {"error": "as asked"}, state)
        if aid == "AID.ROLL.v1":
            _rolled.append(len(_rolled))
            state[1] = Artifact("number", "roll", str(len(_rolled)), 1)
            return ActionOutcome(StepStatus.OK, {"rolled": len(_rolled)}, state)
        number = int(state[0].content_json) + 1 if 0 in state else 1
        # Keys out of order: a comparison of texts would fail.
        state[0] = Artifact("number", "count", str(number), 1)
        return ActionOutcome(StepStatus.OK, {"z": 1e30, "number": number, "inputs": inputs}, state)


_rolled: list[int] = []


@dataclass
class Played:
    result: RunResult
    lines: list[bytes]
    head: str

    def events(self) -> list[str]:
        return [record.event for record in verify(self.lines).records]

    def payloads(self, event: str) -> list[Mapping[str, Any]]:
        return [record.payload for record in verify(self.lines).records if record.event == event]


def play(
    request: RunRequest | None = None,
    *texts: str,
    execute: Any = None,
    policy: Selector | None = None,
    goal_done: Callable[[Slots], bool] = lambda _: False,
    budget: Budget | None = None,
    key: bytes | None = None,
    menu: Callable[[Slots], Menu] = lambda _: MENU,
) -> Played:
    stream = _Kept()
    log = RunLog(stream, RunHeader("ab" * 16, "req-1"), key=key, clock=lambda: datetime(2026, 1, 2, 3, 4, 5, 6, UTC))
    with log:
        result = asyncio.run(
            run(
                request or RunRequest("goal.test.v1", {"q": 1}),
                {},
                log,
                menu=menu,
                execute=execute or World(),
                selector=policy or saying(*texts or (NOOP,)),
                goal_done=goal_done,
                budget=budget,
            )
        )
    return Played(result, list(io.BytesIO(stream.kept)), log.head)


def played_again(log: Any, *, key: bytes | None = None) -> ReplayResult:
    return asyncio.run(replay(log, key=key))


class _Kept(io.BytesIO):
    """Keeps what was written after it was closed."""

    kept = b""

    def close(self) -> None:
        self.kept = self.getvalue()
        super().close()
