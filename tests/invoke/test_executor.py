"""The table of states: what it permits, and that the calls of a round end together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from manglecp.invoke.executor import TRANSITIONS, ExecutorEvent, ExecutorState, RunExecutor

FINAL = {ExecutorState.ENDED, ExecutorState.RELEASED}


def test_every_state_but_the_final_ones_has_transitions() -> None:
    assert set(TRANSITIONS) == set(ExecutorState) - FINAL
    assert {event for events in TRANSITIONS.values() for event in events} == set(ExecutorEvent)


def test_every_state_is_reached_and_reaches_an_end() -> None:
    reached, work = {ExecutorState.OPENING}, [ExecutorState.OPENING]
    while work:
        for target in TRANSITIONS.get(work.pop(), {}).values():
            if target not in reached:
                reached.add(target)
                work.append(target)
    assert reached == set(ExecutorState)
    for state, events in TRANSITIONS.items():
        assert events[ExecutorEvent.UNDECIDED] is ExecutorState.ENDED, state


def test_an_effect_is_under_way_only_behind_the_gate() -> None:
    before = {
        (state, event)
        for state, events in TRANSITIONS.items()
        for event, to in events.items()
        if to is ExecutorState.ACTING
    }
    assert before == {(ExecutorState.AUTHORIZING, ExecutorEvent.AUTHORIZED)}


def test_a_run_is_released_only_between_rounds() -> None:
    before = {state for state, events in TRANSITIONS.items() if ExecutorState.RELEASED in events.values()}
    assert before == {ExecutorState.SELECTING}


async def test_all_parallel_calls_end_before_an_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An effect must not go on after its run was released."""
    ended = []

    async def dispatch_one(_: RunExecutor, call: Any, _permit: Any) -> Any:
        if call == "fails":
            raise OSError("the journal cannot be written")
        await asyncio.sleep(0.01)
        ended.append(call)

    monkeypatch.setattr(RunExecutor, "_dispatch_one", dispatch_one)
    with pytest.raises(OSError, match="journal"):
        await object.__new__(RunExecutor)._dispatch(["fails", "slow"], None)  # type: ignore[arg-type, list-item]
    assert ended == ["slow"]
