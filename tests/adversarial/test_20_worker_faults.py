"""Case 20: workers that crash, hang, breed, leak or do not listen. Their group dies, their neighbours do not notice."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from manglecp.toolhost import ActionResult
from manglecp.toolhost.dispatch.breakers import Breakers
from tests.adversarial._hosted import Hosted, effects, hosting, value
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import error, members, pids_of, running

pytestmark = pytest.mark.no_cover


async def nobody_of(pids: list[int]) -> None:
    async with asyncio.timeout(patience(30)):
        while any(running(pid) for pid in pids):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["hang", "deaf"])
def test_a_worker_past_its_deadline_is_ended_whether_it_listens_or_not(tmp_path: Path, how: str) -> None:
    async def work(hosted: Hosted) -> None:
        assert value(await hosted.call("look", text="up")) == "up"
        (pid,) = pids_of(hosted.pool)
        start = time.monotonic()
        result = await hosted.call("note_and", path=str(tmp_path / "effects"), how=how, timeout=1.0)
        assert error(result) == ("timeout", "outcome_unknown")
        assert time.monotonic() - start < 30, "it would have hung for a minute"
        assert members(pid) == [], "whoever hears of the loss can be sure that nothing more happens"
        assert value(await hosted.call("look", text="next")) == "next"

    hosting(work, tmp_path)


def test_the_children_of_a_worker_die_with_it(tmp_path: Path) -> None:
    file = tmp_path / "children"

    async def work(hosted: Hosted) -> None:
        assert value(await hosted.call("look", text="up")) == "up"
        result = await hosted.call("breed", path=str(file), count=3, timeout=5.0)
        assert error(result) == ("timeout", "outcome_unknown")
        *children, done = effects(file)
        assert (done, len(children)) == ("done", 3)
        await nobody_of([int(pid) for pid in children])

    hosting(work, tmp_path)


def test_the_children_of_a_worker_die_with_their_cancelled_call(tmp_path: Path) -> None:
    file = tmp_path / "children"

    async def work(hosted: Hosted) -> None:
        call = hosted.prepare("breed", path=str(file), count=20)
        task = asyncio.create_task(hosted.pool.call(call))
        async with asyncio.timeout(patience(30)):
            while "done" not in effects(file):
                await asyncio.sleep(0.01)
        assert hosted.pool.cancel(call.call_id)
        assert error(await task) == ("exception", "outcome_unknown")
        await nobody_of([int(pid) for pid in effects(file)[:-1]])

    hosting(work, tmp_path)


@pytest.mark.parametrize("what", ["memory", "stack"])
def test_what_is_used_up_is_the_failure_of_its_action(tmp_path: Path, what: str) -> None:
    async def work(hosted: Hosted) -> None:
        assert value(await hosted.call("look", text="up")) == "up"
        before = pids_of(hosted.pool)
        result = await hosted.call("exhaust", what=what)
        assert error(result) == ("tool_error", None)
        assert value(await hosted.call("look", text="next")) == "next"
        assert pids_of(hosted.pool) == before, "an exception is no reason to die"

    hosting(work, tmp_path)


def test_descriptors_that_an_action_leaks_do_not_stop_the_host(tmp_path: Path) -> None:
    async def work(hosted: Hosted) -> None:
        for _ in range(2):
            assert error(await hosted.call("exhaust", what="descriptors"))[0] == "tool_error"
            assert value(await hosted.call("look", text="next")) == "next"

    hosting(work, tmp_path)


def test_one_broken_action_does_not_bar_the_others(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        for _ in range(3):
            assert error(await hosted.call("note_and", path=str(file), how="kill")) == ("crash", "outcome_unknown")
        assert error(await hosted.call("note_and", path=str(file), how="kill")) == ("tool_error", "breaker_open")
        assert value(await hosted.call("note", path=str(file), text="sibling")) == "sibling"
        assert value(await hosted.call("look", text="sibling")) == "sibling"

    hosting(work, tmp_path, breakers=Breakers(lambda: 0.0, threshold=3))
    assert effects(file) == ["kill"] * 3 + ["sibling"]


def test_calls_on_other_hosts_go_on_while_one_dies(tmp_path: Path) -> None:
    async def work(hosted: Hosted) -> None:
        file = str(tmp_path / "effects")
        dying = [asyncio.create_task(hosted.call("note_and", path=file, how="kill")) for _ in range(4)]
        living = [asyncio.create_task(hosted.call("note", path=file, text="good")) for _ in range(20)]
        assert [error(result)[1] for result in await asyncio.gather(*dying)] == ["outcome_unknown"] * 4
        assert all(isinstance(result, ActionResult) for result in await asyncio.gather(*living))

    hosting(work, tmp_path, size=2)
    assert sorted(effects(tmp_path / "effects")) == ["good"] * 20 + ["kill"] * 4


def _one_host_per_call(tmp_path: Path, count: int) -> None:
    async def work(hosted: Hosted) -> None:
        for number in range(count):
            assert value(await hosted.call("look", text=str(number))) == str(number)

    hosting(work, tmp_path, size=2, calls_per_host=1)


def test_hosts_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    _one_host_per_call(tmp_path, 20)


@pytest.mark.soak
def test_a_thousand_hosts_leave_nothing(tmp_path: Path) -> None:
    _one_host_per_call(tmp_path, 1_000)
