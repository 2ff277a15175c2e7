"""A coordinator is killed at every named point, and another process goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from manglecp.store import RunState
from tests.crash.coordinator import CLAIM_MS
from tests.crash.kit import Case, Site, clean, crash_all, crashing, inside, points, show_times, take_over_times
from tests.crash.pack import CHAINS, ONCE, UNDONE

pytestmark = pytest.mark.no_cover


def in_doubt(tool: str, point: str) -> bool | None:
    """Does nobody know whether an effect that must not be repeated happened? None: that depends on who was quicker."""
    moment, _, label = point.partition(":")
    if moment == "uncommitted" and label.startswith("step:"):
        moment, label = "answered", CHAINS[tool][int(label.removeprefix("step:")) - 1]
        if tool == "side" and label in ("s2", "s3"):
            return None
    if moment in ("answered", "finished") and tool == "side" and label in ("s2", "s3"):
        return True if (moment, label) == ("answered", "s2") else None
    if moment == "lease_granted" and (tool, label) == ("side", "s3"):
        return None
    if moment == "started" and tool == "side" and label == "s3":
        return True  # both of the group were started
    return moment in ("started", "lease_granted", "answered") and label in ONCE[tool]


def expected(case: Case) -> bool:
    """Did the run end as it must, where its process died where it was told to?"""
    assert case.run is not None
    doubt = in_doubt(case.tool, case.point)
    end = RunState.FAILED if case.tool in UNDONE else RunState.SUCCEEDED
    return doubt is None or case.run.state == (RunState.NEEDS_DECISION if doubt else end)


def crash_at(site: Site, cases: list[Case], *workers: str) -> list[Case]:
    """Crash there, again where the machine was too slow to get there under one claim, and look at the ends."""
    done: list[Case] = []
    left = cases
    for _ in range(4):
        tried = crash_all(site, left, *workers)
        done += [case for case in tried if clean(case)]
        left = [Case(case.tool, case.point, case.who) for case in tried if not clean(case)]
        if not left:
            break
    for case in done:
        assert expected(case), str(case)
    assert len(left) <= len(cases) // 10, f"not reached: {[case.point for case in left]}"
    return done


def quick_enough(what: str, times: list[int]) -> None:
    """Two periods are enough; that all of them were that quick cannot be asked of a machine that others use."""
    show_times(what, times)
    assert sorted(times)[len(times) // 4] <= 2 * CLAIM_MS


def test_some_points_of_every_chain(tmp_path: Path) -> None:
    with crashing(tmp_path, str(tmp_path / "store"), "w") as site:
        done = crash_at(site, seeded(11, 16, "coordinator"), "w")
        quick_enough("sample", take_over_times(site, done))


@pytest.mark.soak
@pytest.mark.parametrize("tool", list(CHAINS))
def test_every_point_once(tmp_path: Path, tool: str) -> None:
    with crashing(tmp_path, str(tmp_path / "store"), "w") as site:
        done = crash_at(site, [Case(tool, point) for point in points(tool)], "w")
        quick_enough(tool, take_over_times(site, done))


def seeded(seed: int, count: int, *victims: str) -> list[Case]:
    """Some of all points, always the same for a seed."""
    chance = random.Random(seed)
    every = [(tool, point, who) for tool in CHAINS for who in victims for point in _of(tool, who)]
    return [Case(*one) for one in chance.sample(every, min(count, len(every)))]


def _of(tool: str, who: str) -> list[str]:
    return points(tool) if who == "coordinator" else inside(tool)


def test_two_coordinators_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    """Both look for what was left behind, and both are asked for the answer. One of them acts."""
    with crashing(tmp_path, postgres_url, "one", "two") as site:
        done = crash_at(site, seeded(7, 8, "coordinator"), "one", "two")
        for case in done:
            claims = site.said("claims", case.name)
            assert len({one["fence"] for one in claims}) == len({(one["fence"], one["owner"]) for one in claims})
        quick_enough("postgresql", take_over_times(site, done))


def test_hosts_die_inside_their_actions(tmp_path: Path) -> None:
    """Before the effect and after it; the coordinator lives on and knows no better than anybody else."""
    cases = [Case("mixed", point, "host") for point in inside("mixed")]
    cases += [Case("mixed", point, "both") for point in inside("mixed")]
    with crashing(tmp_path, str(tmp_path / "store"), "w") as site:
        for case in crash_all(site, cases, "w"):
            assert case.run is not None
            label = case.point.partition(":")[2]
            if clean(case):
                doubt = label in ONCE["mixed"]
                assert case.run.state == (RunState.NEEDS_DECISION if doubt else RunState.SUCCEEDED), str(case)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_everybody_dies_everywhere(tmp_path: Path, kind: str, seed: int, request: pytest.FixtureRequest) -> None:
    """Every point and every victim, in another order and so in another company each time."""
    store = str(tmp_path / "store") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with crashing(tmp_path, store, "one", "two") as site:
        done = crash_at(site, seeded(seed, 10_000, "coordinator"), "one", "two")
        crash_all(site, seeded(seed, 10_000, "host", "both"), "one", "two")
        quick_enough(f"{kind} {seed}", take_over_times(site, done))
