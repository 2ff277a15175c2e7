"""Progress: in order, within bounds, never necessary, and never the end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from manglecp.invoke.progress import RunReports
from manglecp.wire.messages import ProgressPayload
from tests.intent.packs import action
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import Fails, shop


def fail(_: dict[str, Any]) -> Any:
    raise Fails


def told(seen: list[ProgressPayload]) -> list[tuple[str, str | None, float | None]]:
    return [(one.status, one.detail, one.percent) for one in seen]


@pytest.mark.req("PROG-02", "PROG-03", "PROG-06", "INVK-18")
async def test_progress_follows_the_steps() -> None:
    """What is told on the way is where the run is, and nothing of what it found."""
    seen: list[ProgressPayload] = []
    async with shop(chain(steps("look", "look", "write", "look")), {"look": lambda _: {"n": "a secret"}}) as s:
        await s.invoke("t", {"n": 1}, progress=seen.append)
    assert told(seen) == [
        ("started", "look: Does look.", 0),
        ("running", "look: Does look.", 25),
        ("running", "write: Does write.", 50),
        ("running", "look: Does look.", 75),
        ("finalizing", None, 100),
    ]


@pytest.mark.req("PROG-01")
async def test_the_end_of_a_burst_is_told_and_what_was_lost_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[ProgressPayload] = []
    reports = RunReports("r-1", 2, seen.append)
    call: Any = SimpleNamespace(call_id="c", action=action("look"))
    other: Any = SimpleNamespace(call_id="d", action=action("write"))
    receive = reports.begin(call, 0)
    for done in range(1, 6):
        receive({"event": "progress", "done": done, "total": 10})
    receive({"event": "log", "message": "a", "lost_before": 7})
    receive({"event": "progress", "done": 9, "total": 10, "lost_before": 1_000})
    for odd in (True, -1, 10**400, "5", None, [1], 0.5):
        receive({"event": "log", "message": "b", "lost_before": odd})
    reports.end(call)
    reports.begin(other, 1)
    reports.end(other)
    assert told(seen) == [
        ("started", "look: Does look.", 0),
        ("running", "look: 1 of 10", 5),
        ("running", "look: 9 of 10", 45),
        ("running", "write: Does write.", 50),
    ]
    lost = [one.getMessage() for one in caplog.records if "lost" in one.getMessage()]
    assert lost == ["look: 1,007 lines and progress reports of this or earlier calls were lost (run r-1)"]


@pytest.mark.req("PROG-01")
async def test_nobody_has_to_listen() -> None:
    def broken(_: ProgressPayload) -> None:
        raise ConnectionError

    async with shop(chain(steps("look", "write"))) as s:
        quiet = await s.invoke("t", {"n": 1})
        assert (await s.invoke("t", {"n": 1}, progress=broken)).result == quiet.result


@pytest.mark.req("PROG-03", "PROG-06", "PROG-08")
async def test_undoing_goes_no_further_than_everything() -> None:
    seen: list[ProgressPayload] = []
    undoing = [f'undo_step("t", {n}, "erase"). undo_in("t", {n}, "n", "n").' for n in (1, 2)]
    async with shop(chain(steps("write", "write", "look"), *undoing, 'reversible("t").'), {"look": fail}) as s:
        await s.refused("t", {"n": 1}, progress=seen.append)
        ended = len(seen)
        await asyncio.sleep(0)
    percents = [one.percent for one in seen]
    actions = [one.detail.partition(":")[0] if one.detail else None for one in seen]
    assert actions == ["write", "write", "look", "erase", "erase", None]
    assert percents == sorted(percents, key=lambda one: one or 0)
    assert percents[-1] == 100
    assert [one.status for one in seen] == ["started", *["running"] * 4, "finalizing"]
    assert len(seen) == ended


async def test_a_request_that_is_refused_tells_no_progress() -> None:
    seen: list[ProgressPayload] = []
    async with shop(chain(steps("write"), 'needs_confirmation("t").')) as s:
        await s.refused("t", {"n": 1}, progress=seen.append)
        await s.refused("t", {"n": "?"}, progress=seen.append)
    assert seen == []
