"""Case 17: a worker that dies after its effect and before its answer. Nothing happens twice, and nobody guesses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost import ActionResult
from manglecp.toolhost.idempotency import MAX_ENTRIES, TTL, AnswerCache
from tests.adversarial._hosted import Hosted, effects, hosting, plugin_in, value
from tests.adversarial._pipe import lease, line, said
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import error, pids_of

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize(
    ("how", "kind"),
    [("exit", "crash"), ("kill", "crash"), ("crash", "crash"), ("hang", "timeout"), ("close", "timeout")],
)
def test_an_effect_without_an_answer_is_not_repeated(tmp_path: Path, how: str, kind: str) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        assert value(await hosted.call("look", text="up")) == "up"
        timeout = 3.0 if kind == "timeout" else None
        result = await hosted.call("note_and", path=str(file), how=how, timeout=timeout)
        found, code = error(result)
        assert code == "outcome_unknown"
        assert found == kind or how == "close", "who closes everything is noticed early or late"
        assert value(await hosted.call("look", text="alive")) == "alive"

    hosting(work, tmp_path, size=2)
    assert effects(file) == [how]


def test_killed_from_outside_in_the_middle_of_a_call(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        for _ in range(5):
            before = len(effects(file))
            call = asyncio.create_task(hosted.call("note_and", path=str(file), how="hang"))
            async with asyncio.timeout(patience(30)):
                while len(effects(file)) == before:
                    await asyncio.sleep(0.01)
            for pid in pids_of(hosted.pool):
                os.kill(pid, signal.SIGKILL)
            assert error(await call) == ("crash", "outcome_unknown")
            assert len(effects(file)) == before + 1

    hosting(work, tmp_path)


def test_what_may_be_repeated_is_with_a_right_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "stored"

    async def work(hosted: Hosted) -> None:
        for number in range(10):
            call = asyncio.create_task(hosted.call("store", path=str(file), text=str(number)))
            await asyncio.sleep(0)
            for pid in pids_of(hosted.pool):
                with suppress(ProcessLookupError):  # killed before, and not yet missed
                    os.kill(pid, signal.SIGKILL)
            result = await call
            for _ in range(2):  # either host may be dead without the pool having noticed it yet
                if isinstance(result, dict):  # it was sent, and that right is spent
                    assert error(result) == ("crash", None)
                    result = await hosted.call("store", path=str(file), text=str(number))
            assert value(result) == str(number)

    hosting(work, tmp_path, size=2)
    assert effects(file) == ["9"]


def test_the_same_key_is_one_effect_and_other_arguments_are_a_conflict(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        first = await hosted.call("pay", key="k", path=str(file), amount=1)
        again = await hosted.call("pay", key="k", path=str(file), amount=1)
        assert isinstance(again, ActionResult)
        assert (value(first), value(again), again.idempotent_hit) == (1, 1, True)
        conflict = await hosted.call("pay", key="k", path=str(file), amount=2)
        assert isinstance(conflict, dict)
        assert conflict["detail"] == "idempotency_conflict"
        assert value(await hosted.call("pay", key="l", path=str(file), amount=3)) == 3

    hosting(work, tmp_path)
    assert effects(file) == ["1", "3"]


@pytest.mark.parametrize("how", ["exit", "kill", "hang"])
def test_who_asks_again_under_the_same_key_does_not_cause_the_effect_again(tmp_path: Path, how: str) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        assert value(await hosted.call("look", text="up")) == "up"
        timeout = 3.0 if how == "hang" else None
        for _ in range(3):
            result = await hosted.call("note_and", key="k", path=str(file), how=how, timeout=timeout)
            assert error(result)[1] == "outcome_unknown"
        other = await hosted.call("note_and", key="k", path=str(file), how="nothing")
        assert isinstance(other, dict)
        assert other["detail"] == "idempotency_conflict"
        assert isinstance(await hosted.call("note_and", key="l", path=str(file), how="nothing"), ActionResult)

    hosting(work, tmp_path, size=2)
    assert effects(file) == [how, "nothing"]


def test_an_effect_whose_answer_was_too_long_is_not_repeated_either(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        text = "x" * 1_100_000
        first = await hosted.call("note", key="k", path=str(file), text=text)
        assert error(first) == ("parse_error", "oversize")
        assert error(await hosted.call("note", key="k", path=str(file), text=text))[1] == "outcome_unknown"

    hosting(work, tmp_path)
    assert len(effects(file)) == 1


def test_many_at_once_with_one_key_are_one_effect_on_however_many_hosts(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        calls = [hosted.call("pay", key="k", path=str(file), amount=1) for _ in range(20)]
        results = await asyncio.gather(*calls)
        assert [value(result) for result in results] == [1] * 20
        assert [isinstance(result, ActionResult) and result.idempotent_hit for result in results].count(False) == 1

    hosting(work, tmp_path, size=3)
    assert effects(file) == ["1"]


def test_a_key_outlives_the_host_that_answered_under_it(tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def work(hosted: Hosted) -> None:
        assert value(await hosted.call("pay", key="k", path=str(file), amount=1)) == 1
        (pid,) = pids_of(hosted.pool)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(patience(30)):
            while pids_of(hosted.pool) in ([pid], []):
                await asyncio.sleep(0.01)
        again = await hosted.call("pay", key="k", path=str(file), amount=1)
        assert isinstance(again, ActionResult)
        assert (value(again), again.idempotent_hit) == (1, True)
        assert value(await hosted.call("pay", key="l", path=str(file), amount=2)) == 2

    hosting(work, tmp_path)
    assert effects(file) == ["1", "2"]


def test_a_refused_call_does_not_hold_its_key(tmp_path: Path) -> None:
    plugin, file = plugin_in(tmp_path), tmp_path / "effects"
    text = json.dumps({"path": str(file), "amount": 1})
    refused = line("pay", text, call_id="c1", idempotency_key="k", _lease_token="lease_a.b")
    good = line("pay", text, call_id="c1", idempotency_key="k", _lease_token=lease("pay", text))
    answers = said(plugin, refused, good)
    assert (answers[0]["error"], answers[1]["status"]) == ("lease_rejected", "OK")
    assert "idempotent_hit" not in answers[1]


def test_the_1025th_key_costs_the_oldest_and_no_other() -> None:
    cache: AnswerCache[dict[str, Any]] = AnswerCache(lambda: 0.0)
    for number in range(MAX_ENTRIES + 1):
        cache.keep(("A", f"k{number}"), {"n": number})
    assert len(cache) == MAX_ENTRIES == 1024
    assert cache.find(("A", "k0")) is None
    assert all(cache.find(("A", f"k{number}")) is not None for number in range(1, MAX_ENTRIES + 1))


def test_a_key_is_known_for_a_minute_however_often_it_is_used() -> None:
    now = 0.0
    cache: AnswerCache[dict[str, Any]] = AnswerCache(lambda: now)
    cache.keep(("A", "k"), {})
    for _ in range(59):
        now += 1.0
        assert cache.find(("A", "k")) is not None
    now = TTL
    assert cache.find(("A", "k")) is None


def test_a_clock_that_is_set_moves_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    cache: AnswerCache[dict[str, Any]] = AnswerCache()
    cache.keep(("A", "k"), {})
    real = time.time()
    for jump in (86_400.0, -86_400.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: real + jump)
        assert cache.find(("A", "k")) is not None
