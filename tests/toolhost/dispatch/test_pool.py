"""The pool: one result per call, whatever becomes of the hosts."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from manglecp.toolhost.dispatch.breakers import Breakers
from manglecp.toolhost.dispatch.launch import HostCommand, PoolLimits, SettingError
from manglecp.toolhost.dispatch.messages import ActionResult, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.leases import LeaseBook, input_digest
from manglecp.toolhost.state import Artifact
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import (
    QUICK,
    call,
    command,
    error,
    healthy_hosts,
    nothing_left,
    pids_of,
    running,
    seen,
)


def in_pool(
    work: Callable[[Pool], Awaitable[None]],
    *,
    size: int = 1,
    limits: PoolLimits = QUICK,
    host: HostCommand | None = None,
    breakers: Breakers | None = None,
    on_outage: Callable[[str | None], None] = lambda _: None,
) -> None:
    async def main() -> None:
        async with Pool(
            host or command(), size=size, timeout=10, limits=limits, breakers=breakers, on_outage=on_outage
        ) as pool:
            await work(pool)

    with nothing_left():
        asyncio.run(main())


async def healthy(pool: Pool, count: int) -> None:
    async with asyncio.timeout(patience(10)):
        while healthy_hosts(pool) < count:
            await asyncio.sleep(0.01)


@pytest.mark.req("IPC-13", "IPC-19")
def test_calls_are_spread_over_warm_hosts_and_carry_their_whole_state() -> None:
    async def work(pool: Pool) -> None:
        await healthy(pool, 2)
        calls = [call(tier=1, fault="slow", seconds=0.05) for _ in range(4)]
        results = [seen(result) for result in await asyncio.gather(*map(pool.call, calls))]
        assert {result["pid"] for result in results} == set(pids_of(pool))
        assert [result["request"]["call_id"] for result in results] == [each.call_id for each in calls]
        assert all(result["request"]["ds_state"] == {"slots": {}} for result in results)

    in_pool(work, size=2)


def test_nothing_of_one_run_is_found_by_another_in_the_same_host() -> None:
    async def work(pool: Pool) -> None:
        slots: dict[int, Artifact] = {}
        for count in (1, 2, 3):
            mine = await pool.call(HostCall(aid="AID.COUNT.v1", tier=0, slots=slots))
            assert isinstance(mine, ActionResult)
            slots = mine.slots
            assert slots[0].content_json == str(count)
            other = seen(await pool.call(HostCall(aid="AID.ECHO.v1", tier=0)))
            assert other["request"]["ds_state"] == {"slots": {}}

    in_pool(work)


@pytest.mark.req("IPC-28", "IPC-29", "IPC-30", "IPC-33")
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("crash", ("crash", "outcome_unknown")),
        ("hang", ("timeout", "outcome_unknown")),
        ("noise", ("parse_error", "outcome_unknown")),
        ("leave", ("parse_error", "outcome_unknown")),
        ("oversize", ("parse_error", "oversize")),
        ("unknown", ("not_found", None)),
    ],
)
def test_an_action_that_must_not_be_repeated_is_not(
    fault: str, expected: tuple[str, str | None], tmp_path: Path
) -> None:
    effects = tmp_path / "effects"

    async def work(pool: Pool) -> None:
        timeout = 0.5 if fault == "hang" else 10
        await healthy(pool, 1)
        assert error(await pool.call(call(tier=1, fault=fault, effect=str(effects), timeout=timeout))) == expected
        assert isinstance(await pool.call(call(tier=1)), ActionResult)

    in_pool(work)
    assert len(effects.read_text().split()) == 1


def test_an_idempotent_action_is_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    effects = tmp_path / "effects"

    async def work(pool: Pool) -> None:
        result = await pool.call(call(idempotent=True, fault="crash", effect=str(effects)))
        assert error(result) == ("crash", None)
        result = await pool.call(call(idempotent=True, fault="empty"))
        assert error(result) == ("parse_error", "empty_output")

    in_pool(work)
    assert len(effects.read_text().split()) == 3


def test_the_right_to_an_effect_is_good_for_sending_it_once(tmp_path: Path) -> None:
    effects = tmp_path / "effects"

    async def work(pool: Pool) -> None:
        result = await pool.call(call(tier=1, idempotent=True, fault="crash", effect=str(effects)))
        assert error(result) == ("crash", None), "it may be tried again, by who gets another right"

    in_pool(work)
    assert len(effects.read_text().split()) == 1


def test_a_call_behind_one_that_ends_the_host_goes_to_another() -> None:
    async def work(pool: Pool) -> None:
        await healthy(pool, 1)
        bad = asyncio.create_task(pool.call(call(fault="crash")))
        good = asyncio.create_task(pool.call(call()))
        assert error(await bad) == ("crash", "outcome_unknown")
        assert isinstance(await good, ActionResult)

    in_pool(work, breakers=Breakers(lambda: 0.0, threshold=1))


@pytest.mark.parametrize("tier", [0, 1])
def test_a_host_works_on_one_call_at_a_time_and_the_queue_keeps_the_order(tier: int) -> None:
    ended: list[int] = []

    async def work(pool: Pool) -> None:
        await healthy(pool, 1)

        async def one(number: int) -> None:
            assert isinstance(await pool.call(call(tier=tier, fault="slow", seconds=0.01)), ActionResult)
            ended.append(number)

        tasks = [asyncio.create_task(one(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert len(pool._queue._waiters) == 4
        await asyncio.gather(*tasks)

    in_pool(work)
    assert ended == [0, 1, 2, 3, 4]


def test_the_line_is_bounded_and_waiting_in_it_ends_with_the_deadline() -> None:
    async def work(pool: Pool) -> None:
        await healthy(pool, 1)
        busy = asyncio.create_task(pool.call(call(tier=1, fault="slow", seconds=1)))
        await asyncio.sleep(0.02)
        waiting = [asyncio.create_task(pool.call(call(tier=1, timeout=0.4))) for _ in range(2)]
        await asyncio.sleep(0.01)
        assert error(await pool.call(call())) == ("exception", "queue_full")
        assert [error(result) for result in await asyncio.gather(*waiting)] == [("timeout", None)] * 2
        assert isinstance(await pool.call(call()), ActionResult)
        assert isinstance(await busy, ActionResult)

    in_pool(work, limits=QUICK._replace(queued=2))


def test_a_call_can_be_given_up_while_it_waits_and_while_it_runs() -> None:
    async def work(pool: Pool) -> None:
        await healthy(pool, 1)
        for idempotent, code in ((True, "cancelled"), (False, "outcome_unknown")):
            running_call = call(tier=1, fault="hang", idempotent=idempotent)
            waiting_call = call(tier=1)
            tasks = [asyncio.create_task(pool.call(each)) for each in (running_call, waiting_call)]
            await asyncio.sleep(0.05)
            assert pool.cancel(waiting_call.call_id)
            assert error(await tasks[1]) == ("exception", "cancelled")
            assert pool.cancel(running_call.call_id)
            assert not pool.cancel(running_call.call_id)
            assert error(await tasks[0]) == ("exception", code)
            assert isinstance(await pool.call(call()), ActionResult)
        assert not pool.cancel("nobody")

    in_pool(work)


def test_a_cancelled_caller_leaves_the_line_and_the_host() -> None:
    async def work(pool: Pool) -> None:
        await healthy(pool, 1)
        tasks = [asyncio.create_task(pool.call(call(tier=1, fault="hang"))) for _ in range(3)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        assert [type(result) for result in await asyncio.gather(*tasks, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 3
        assert isinstance(await pool.call(call()), ActionResult)

    in_pool(work)


def test_two_calls_of_one_name_do_not_run_at_once() -> None:
    async def work(pool: Pool) -> None:
        twice = call(tier=1)
        first = asyncio.create_task(pool.call(twice))
        await asyncio.sleep(0)
        assert error(await pool.call(twice)) == ("exception", None)
        assert isinstance(await first, ActionResult)

    in_pool(work)


def test_an_open_breaker_answers_without_calling_the_host(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    now = 0.0

    async def work(pool: Pool) -> None:
        nonlocal now
        for _ in range(2):
            assert error(await pool.call(call("AID.BAD.v1", fault="crash", effect=str(effects))))[0] == "crash"
        refused = await pool.call(call("AID.BAD.v1", effect=str(effects)))
        assert error(refused) == ("tool_error", "breaker_open")
        assert isinstance(refused, dict)
        assert refused["status"] == "BREAKER_TRIP"
        assert isinstance(await pool.call(call("AID.GOOD.v1")), ActionResult)
        now = 30.0
        probes = [asyncio.create_task(pool.call(call("AID.BAD.v1", fault="slow", seconds=0.05))) for _ in range(3)]
        results = await asyncio.gather(*probes)
        assert [isinstance(result, ActionResult) for result in results] == [True, False, False]
        assert isinstance(await pool.call(call("AID.BAD.v1")), ActionResult)

    in_pool(work, breakers=Breakers(lambda: now, threshold=2))
    assert len(effects.read_text().split()) == 2


def test_a_host_is_replaced_after_so_many_calls_and_when_it_has_grown() -> None:
    async def by_calls(pool: Pool) -> None:
        await healthy(pool, 1)
        pids = [seen(await pool.call(call(tier=1)))["pid"] for _ in range(2)]
        async with asyncio.timeout(patience(10)):
            while len(set(pids)) < 3:
                pids.append(seen(await pool.call(call(tier=1)))["pid"])
        assert all(pids.count(pid) >= 3 for pid in list(dict.fromkeys(pids))[:2])

    async def by_growth(pool: Pool) -> None:
        first = seen(await pool.call(call()))["pid"]
        async with asyncio.timeout(5):
            while seen(await pool.call(call()))["pid"] == first:
                await asyncio.sleep(0.02)

    in_pool(by_calls, limits=QUICK._replace(calls_per_host=3, health_interval=60))
    in_pool(by_growth, limits=QUICK._replace(growth=-1))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_host_that_dies_or_stops_while_idle_is_replaced(number: signal.Signals) -> None:
    async def work(pool: Pool) -> None:
        await healthy(pool, 2)
        before = pids_of(pool)
        os.kill(before[0], number)
        async with asyncio.timeout(patience(10)):
            while before[0] in pids_of(pool) or healthy_hosts(pool) < 2:
                await asyncio.sleep(0.01)
        assert not running(before[0])
        assert before[1] in pids_of(pool)

    in_pool(work, size=2)


@pytest.mark.req("IPC-31")
def test_a_missing_program_is_not_found() -> None:
    async def work(pool: Pool) -> None:
        for _ in range(2):
            result = await pool.call(call())
            assert error(result) == ("not_found", "no_host")
            assert isinstance(result, dict)
            assert "/no/such/host" in result["detail"]

    in_pool(work, host=HostCommand(argv=("/no/such/host",), environ={}), size=2)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_host_that_never_comes_up_is_a_crash_with_its_own_words(idempotent: bool) -> None:
    async def work(pool: Pool) -> None:
        result = await pool.call(call(tier=1, idempotent=idempotent))
        assert error(result) == ("crash", "no_host")
        assert isinstance(result, dict)
        assert "exited with code 3: no such plugin" in result["detail"]
        assert "sent" not in result

    in_pool(work, host=command(FAULT_TEXT="no such plugin"))


def test_a_failed_start_and_no_time_for_another_is_no_host() -> None:
    slow_to_return = PoolLimits(backoff=60.0, max_backoff=60.0)

    async def work(pool: Pool) -> None:
        assert error(await pool.call(call(timeout=2.0))) == ("crash", "no_host")

    in_pool(work, host=command(FAULT_TEXT="no such plugin"), limits=slow_to_return)


@pytest.mark.parametrize(("idempotent", "code"), [(True, None), (False, "outcome_unknown")])
def test_a_request_that_was_sent_and_not_answered_says_so(idempotent: bool, code: str | None) -> None:
    async def work(pool: Pool) -> None:
        result = await pool.call(call(tier=1, idempotent=idempotent, fault="crash"))
        assert error(result) == ("crash", code)
        assert isinstance(result, dict)
        assert result["sent"] is True

    in_pool(work)


def test_an_outage_is_reported_once_and_its_end(tmp_path: Path) -> None:
    reported: list[str | None] = []
    program = tmp_path / "host"

    async def work(pool: Pool) -> None:
        assert error(await pool.call(call())) == ("not_found", "no_host")
        assert [reason is None for reason in reported] == [False]
        program.symlink_to(sys.executable)
        await healthy(pool, 1)
        assert [reason is None for reason in reported] == [False, True]
        assert isinstance(await pool.call(call()), ActionResult)

    argv = (str(program), *command().argv[1:])
    in_pool(work, host=replace(command(), argv=argv), on_outage=reported.append)
    assert len(reported) == 2


@pytest.mark.req("IPC-32")
def test_what_cannot_be_sent_is_said_and_not_raised() -> None:
    async def work(pool: Pool) -> None:
        assert error(await pool.call(HostCall(aid="A", tier=0, input_json="\ud800"))) == ("exception", None)
        assert error(await pool.call(HostCall(aid="A", tier=0, input_json="x" * 10_485_760))) == (
            "exception",
            "oversize",
        )

    in_pool(work)


def test_a_closed_pool_refuses() -> None:
    async def work() -> None:
        async with Pool(command(), size=1, limits=QUICK) as pool:
            await healthy(pool, 1)
            busy = asyncio.create_task(pool.call(call(tier=1, fault="hang")))
            waiting = asyncio.create_task(pool.call(call(tier=1)))
            await asyncio.sleep(0.05)
        assert error(await busy) == ("crash", "outcome_unknown")
        assert error(await waiting) == ("exception", None)
        assert error(await pool.call(call())) == ("exception", None)

    with nothing_left():
        asyncio.run(work())


def test_a_pool_that_is_closed_while_it_replaces_a_host_waits_for_its_end() -> None:
    async def work(pool: Pool) -> None:
        for _ in range(3):
            await pool.call(call(tier=1))

    for _ in range(5):
        in_pool(work, size=3, limits=QUICK._replace(calls_per_host=1))


def test_a_bad_environment_is_named_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setenv("MACHINA_TOOLHOST_TIMEOUT", "soon")
        with pytest.raises(SettingError, match="MACHINA_TOOLHOST_TIMEOUT"):
            Pool(command())

    asyncio.run(work())


def test_every_call_carries_a_lease_for_this_very_call_and_host() -> None:
    granted: list[str] = []

    async def work() -> None:
        plain = command()
        host = HostCommand(argv=plain.argv, environ=plain.environ, lease_key_option="--key")
        async with Pool(host, size=1, limits=QUICK, audit=lambda event, _: granted.append(event)) as pool:
            for tier in (0, 2):
                mine = call(tier=tier, text="x")
                request = seen(await pool.call(mine))["request"]
                key = pool._queue.slots[0].host
                assert key is not None
                assert key.lease_key is not None
                book = LeaseBook(key.lease_key)
                digest = input_digest(mine.input_json)
                assert book.check(request["_lease_token"], mine.aid, digest, mine.call_id, tier) is None

    with nothing_left():
        asyncio.run(work())
    assert granted == ["lease_granted"] * 2


def test_a_foreign_host_is_asked_for_its_leases() -> None:
    program = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["aid"] == "_lease.issue":
        reply = {"ok": True, "token_id": "lease_" + request["tool_aid"], "tier": request["tier"]}
    else:
        reply = {"ok": True, "status": "OK", "output_json": json.dumps(request), "ds_state": {}}
    print(json.dumps(reply), flush=True)
"""

    async def work(pool: Pool) -> None:
        result = await pool.call(call(tier=2))
        assert isinstance(result, ActionResult)
        assert json.loads(result.output_json)["_lease_token"] == "lease_AID.ECHO.v1"
        result = await pool.call(call(tier=0))
        assert isinstance(result, ActionResult)
        assert "_lease_token" not in json.loads(result.output_json)

    in_pool(work, host=HostCommand(argv=(sys.executable, "-I", "-c", program), environ={}, issues_leases=True))


def test_a_call_whose_host_is_lost_before_anything_was_sent_is_given_to_another(tmp_path: Path) -> None:
    program = """
import json, os, sys
from pathlib import Path
mark, effects = map(Path, sys.argv[1:])
for line in sys.stdin:
    request = json.loads(line)
    if request["aid"] == "_lease.issue":
        if not mark.exists():
            mark.touch()
            os._exit(1)
        reply = {"ok": True, "token_id": "lease_x", "tier": request["tier"]}
    else:
        if request["aid"] != "_health":
            effects.open("a").write("x")
        reply = {"ok": True, "status": "OK", "output_json": "{}", "ds_state": {}}
    print(json.dumps(reply), flush=True)
"""
    mark, effects = tmp_path / "mark", tmp_path / "effects"

    async def work(pool: Pool) -> None:
        assert isinstance(await pool.call(call(tier=2, idempotent=False)), ActionResult)

    argv = (sys.executable, "-I", "-c", program, str(mark), str(effects))
    in_pool(work, host=HostCommand(argv=argv, environ={}, issues_leases=True))
    assert mark.exists()
    assert effects.read_text() == "x"
