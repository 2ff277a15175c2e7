"""Whoever takes a run over may die as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.store import RunState
from tests.crash.kit import Case, Site, check, crashing

pytestmark = pytest.mark.no_cover


def begun(site: Site, point: str) -> Case:
    case = Case("mixed", point)
    site.victim(case)
    site.status(case.name)
    return case


def inherited(site: Site, case: Case, *points: str) -> None:
    """One heir after the other, each dead at its point."""
    for number, point in enumerate(points):
        name = f"{case.name}.heir{number}"
        site.start(name, "heir", case=case.name, point=point)
        site.status(name)


@pytest.mark.parametrize(
    "points",
    [
        ("claimed", "claimed", "gate:s4", "finished:s4", "claimed", "gate:s6", "finished:s6", "closing"),
        ("started:s4", "answered:s4", "lease_granted:s4", "uncommitted:step:1", "answered:s5", "uncommitted:end:1"),
        pytest.param(("uncommitted:turn:1", "uncommitted:turn:2", "finished:s4"), marks=pytest.mark.soak),
    ],
)
def test_a_run_gets_to_its_end_through_many_hands(tmp_path: Path, points: tuple[str, ...]) -> None:
    with crashing(tmp_path, str(tmp_path / "store")) as site:
        case = begun(site, "finished:s2")
        inherited(site, case, *points)
        site.worker("w")
        answer = site.ask("w", case.name, case.tool)
        site.look(case)
        check(case)
        if "ok" in answer:
            assert (case.effects["s2"], case.effects["s6"]) == (1, 1)
        else:  # somebody was slow while an effect was under way
            assert case.run is not None
            assert case.run.state == RunState.NEEDS_DECISION


def test_a_run_that_kills_whoever_takes_it_is_left_to_a_person(tmp_path: Path) -> None:
    with crashing(tmp_path, str(tmp_path / "store")) as site:
        case = begun(site, "finished:s2")
        inherited(site, case, *["claimed"] * 6)
        site.worker("w")
        answer = site.ask("w", case.name, case.tool)
        site.look(case)
        check(case)
        assert case.run is not None
        assert (case.run.state, case.run.code) == (RunState.NEEDS_DECISION, "poisoned")
        details = answer["details"]
        assert (details["reason"], details["step"], details["code"]) == ("needs_decision", 3, "poisoned")
        assert details["effects"] == [{"step": 2, "action": "pay", "status": "done"}]
