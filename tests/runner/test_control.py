from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.runner import (
    ControlMode,
    EndReason,
    RunRequest,
    Selection,
    SelectionKind,
    Situation,
    parse_selection,
)
from manglecp.runner.selectors import select
from tests.runner.playing import MENU, NOOP, ROLL, play

OUTSIDE = "<PICK><SID0099><END>"


@pytest.mark.parametrize("said", ["junk", OUTSIDE, "raise"])
def test_a_wrong_selection_is_invalid(said: str) -> None:
    def selector(_: Situation) -> Selection:
        if said == "raise":
            raise RuntimeError(said)
        return parse_selection(said)

    selection = asyncio.run(select(selector, Situation("g", "s", ControlMode.POLICY_ONLY, {}, MENU)))
    assert selection.kind is SelectionKind.INVALID


@pytest.mark.parametrize(("mode", "source"), [("POLICY_ONLY", "policy"), ("FALLBACK_ONLY", "fallback")])
def test_the_log_says_what_selects(mode: str, source: str) -> None:
    played = play(RunRequest("g", control_mode=ControlMode(mode)), ROLL, NOOP)
    assert [said["source"] for said in played.payloads("selector_chosen")] == [source, source]
    assert played.payloads(f"selector_{source}_raw")[0]["raw"] == ROLL


@pytest.mark.parametrize(
    "answer",
    [
        lambda: None,
        lambda: "<NOOP><END>",
        lambda: Selection(SelectionKind.PICK, "\ud800", "SID0001"),
        lambda: Selection(SelectionKind.PICK, "", "SID0001", {}),  # type: ignore[arg-type]
    ],
)
def test_what_a_selector_answers_ends_no_run(answer: Callable[[], Any]) -> None:
    played = play(RunRequest("g", control_mode=ControlMode.POLICY_ONLY), policy=lambda _: answer())
    assert played.result.reason is EndReason.MAX_INVALID


def test_a_policy_is_told_what_it_needs() -> None:
    members = Situation("g", "s", ControlMode.POLICY_ONLY, {"a": 1}, MENU, "req-1").members()
    assert set(members) == {"goal_digest", "state_digest", "control_mode", "inputs", "menu", "ds_state", "request_id"}
    assert members["menu"][0]["aid"] == "AID.COUNT.v1"
    assert "request_id" not in Situation("g", "s", ControlMode.POLICY_ONLY, {}, MENU).members()
