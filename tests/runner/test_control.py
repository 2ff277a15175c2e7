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
    Selector,
    Situation,
    parse_selection,
)
from manglecp.runner.selectors import choose
from tests.runner.playing import COUNT, MENU, ROLL, play

OUTSIDE = "<PICK><SID0099><END>"


def asked(name: str, said: str, log: list[str]) -> Selector:
    def select(_: Situation) -> Selection:
        log.append(name)
        if said == "raise":
            raise RuntimeError(said)
        return parse_selection(said)

    return select


@pytest.mark.parametrize(
    ("mode", "policy", "who", "chosen"),
    [
        ("FALLBACK_ONLY", ROLL, ["fallback"], COUNT),
        ("SHADOW_POLICY", ROLL, ["policy", "fallback"], COUNT),
        ("SHADOW_POLICY", "raise", ["policy", "fallback"], COUNT),
        ("BLENDED", ROLL, ["policy"], ROLL),
        ("BLENDED", "junk", ["policy", "fallback"], COUNT),
        ("BLENDED", OUTSIDE, ["policy", "fallback"], COUNT),
        ("BLENDED", "raise", ["policy", "fallback"], COUNT),
        ("POLICY_ONLY", ROLL, ["policy"], ROLL),
        ("POLICY_ONLY", "junk", ["policy"], None),
        ("POLICY_ONLY", OUTSIDE, ["policy"], None),
        ("POLICY_ONLY", "raise", ["policy"], None),
    ],
)
def test_who_is_asked_and_who_decides(mode: str, policy: str, who: list[str], chosen: str | None) -> None:
    log: list[str] = []
    situation = Situation("g", "s", ControlMode(mode), {}, MENU)
    choice = asyncio.run(choose(situation, asked("fallback", COUNT, log), asked("policy", policy, log)))
    assert log == who
    assert (choice.chosen.raw if choice.chosen.kind.value == "PICK" else None) == chosen
    assert (choice.source == "policy") == (chosen != COUNT)


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


def test_a_run_by_policy_only_without_a_policy_never_falls_back() -> None:
    played = play(RunRequest("g", control_mode=ControlMode.POLICY_ONLY), COUNT)
    assert played.result.reason is EndReason.MAX_INVALID
    assert "selector_fallback_raw" not in played.events()


def test_a_policy_is_told_what_it_needs() -> None:
    members = Situation("g", "s", ControlMode.BLENDED, {"a": 1}, MENU, "req-1").members()
    assert set(members) == {"goal_digest", "state_digest", "control_mode", "inputs", "menu", "request_id"}
    assert members["menu"][0]["aid"] == "AID.COUNT.v1"
    assert "request_id" not in Situation("g", "s", ControlMode.BLENDED, {}, MENU).members()
