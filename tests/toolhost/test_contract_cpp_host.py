"""Our dispatch with a host that behaves like the C++ one, its faults included."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from manglecp.toolhost.dispatch.catalogue import Catalogue, read_catalogue
from manglecp.toolhost.dispatch.dispatcher import prepare_call
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall, interpret_answer
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.leases import Audit
from manglecp.toolhost.state import Artifact
from tests.toolhost.dispatch.hosts import QUICK, error, nothing_left
from tests.toolhost.peers import cpp_host
from tests.toolhost.rights import authorised, requested, right_to

ARGV = (sys.executable, "-I", "-S", cpp_host.__file__)
ECHO, KEEP, WRITE = "AID.TEST.ECHO.v1", "AID.TEST.KEEP.v1", "AID.FILE.WRITE.v1"


def catalogue() -> Catalogue:
    listing = subprocess.run([*ARGV, "--list", sys.executable], capture_output=True, check=True).stdout
    return read_catalogue(listing)


def with_host(
    work: Callable[[Pool, Catalogue], Awaitable[None]],
    *,
    leases: bool = False,
    audit: Audit | None = None,
    **environ: str,
) -> None:
    host = HostCommand(
        argv=(*ARGV, "--serve", sys.executable),
        environ=HostCommand.inherited(os.environ) | environ,
        issues_leases=leases,
    )
    actions = catalogue()

    async def main() -> None:
        async with Pool(host, size=1, timeout=20, limits=QUICK, audit=audit) as pool:
            await work(pool, actions)

    with nothing_left():
        asyncio.run(main())


def prepared(actions: Catalogue, aid: str, inputs: dict[str, Any] | None = None, **more: Any) -> HostCall:
    call = prepare_call(actions, aid, inputs=inputs or {}, **more)
    assert isinstance(call, HostCall)
    return authorised(call)


def answered(result: ActionResult | DispatchError) -> ActionResult:
    assert isinstance(result, ActionResult), result
    return result


def test_a_listing_that_says_little_is_read_with_care() -> None:
    actions = catalogue()
    assert set(actions) == set(cpp_host.TOOLS)
    tiers = {aid: actions[aid].tier for aid in actions}
    assert (tiers[ECHO], tiers[WRITE]) == (0, 1)
    assert not any(action.idempotent for action in actions.values())


@pytest.mark.req("IPC-17", "IPC-18", "IPC-19")
def test_answers_without_names_are_paired_by_their_order() -> None:
    async def work(pool: Pool, actions: Catalogue) -> None:
        texts = [f"a/b \u2028\x7f é {number}" for number in range(50)]
        calls = [pool.call(prepared(actions, ECHO, {"text": text})) for text in texts]
        answers = [answered(result) for result in await asyncio.gather(*calls)]
        assert [json.loads(answer.output_json)["echo"]["text"] for answer in answers] == texts

    with_host(work)


@pytest.mark.req("IPC-22", "IPC-23")
def test_a_repeated_key_wipes_no_state() -> None:
    async def work(pool: Pool, actions: Catalogue) -> None:
        held = {5: Artifact("t", "p", "held", 4)}
        first = answered(
            await pool.call(prepared(actions, KEEP, {"slot": 1, "text": "x"}, slots=held, idempotency_key="k"))
        )
        assert first.slots == {**held, 1: Artifact("text", KEEP, "x", 1)}
        again = answered(
            await pool.call(prepared(actions, KEEP, {"slot": 1, "text": "x"}, slots=first.slots, idempotency_key="k"))
        )
        assert again.idempotent_hit
        assert again.slots == first.slots

    with_host(work)


def test_nothing_of_one_state_is_seen_with_another() -> None:
    async def work(pool: Pool, actions: Catalogue) -> None:
        await pool.call(prepared(actions, KEEP, {"slot": 1, "text": "secret", "fail": True}))
        second = answered(await pool.call(prepared(actions, KEEP, {"slot": 2, "text": "mine"})))
        assert set(second.slots) == {2}

    with_host(work)


@pytest.mark.req("IPC-20", "IPC-21", "IPC-33")
def test_a_no_is_a_no_with_or_without_status() -> None:
    async def work(pool: Pool, actions: Catalogue) -> None:
        async def status(said: dict[str, str]) -> DispatchError:
            result = await pool.call(prepared(actions, "AID.TEST.STATUS.v1", said))
            assert isinstance(result, dict)
            return result

        assert (await status({"status": "TOOL_ERROR", "error": "no"}))["detail"] == "no"
        assert (await status({"status": "BREAKER_TRIP", "error": "later"})).get("status") == "BREAKER_TRIP"
        assert (await status({"status": "PERHAPS"})).get("status") == "TOOL_ERROR"
        missing = await pool.call(HostCall(aid="AID.NO.SUCH.TOOL.v1", tier=0))
        assert error(missing) == ("not_found", None)

    with_host(work)


@pytest.mark.parametrize("reason", ["lease expired", "expired"])
def test_reasons_are_passed_on_in_whatever_words(reason: str) -> None:
    refused = interpret_answer(HostCall(aid=WRITE), {"ok": False, "error": "lease_rejected", "reason": reason})
    assert isinstance(refused, dict)
    assert "lease_rejected" in refused["detail"]
    assert "expired" in refused["detail"]


@pytest.mark.req("IPC-30")
def test_output_that_is_no_utf_8_loses_one_call_only() -> None:
    async def work(pool: Pool, actions: Catalogue) -> None:
        assert error(await pool.call(prepared(actions, "AID.TEST.BINARY.v1")))[0] == "parse_error"
        assert answered(await pool.call(prepared(actions, ECHO))).output_json == '{"echo":{}}'

    with_host(work)


@pytest.mark.req("IPC-15", "IPC-16", "IPC-24")
def test_a_host_that_enforces_leases_is_asked_for_one_per_call() -> None:
    async def work(pool: Pool, actions: Catalogue) -> None:
        for count in (1, 2, 3):
            done = answered(await pool.call(prepared(actions, WRITE, {"n": count})))
            assert json.loads(done.output_json)["count"] == count
            assert "_lease_token" in json.loads(done.output_json)["request"]
        assert answered(await pool.call(prepared(actions, ECHO))).output_json == '{"echo":{}}'

    with_host(work, leases=True, MACHINA_LEASE_ENFORCE="1")


@pytest.mark.req("IPC-15", "IPC-24")
def test_a_host_that_rates_an_action_higher_than_we_do_gets_its_lease() -> None:
    events: list[tuple[str, object]] = []

    async def work(pool: Pool, actions: Catalogue) -> None:
        metrics = prepared(actions, "AID.PROC.SELF_METRICS.v1")
        assert metrics.tier == 0
        calls = [replace(metrics, call_id=f"c{number}") for number in range(5)]
        rights = [replace(call, authority=right_to(call)) for call in calls]
        results = await asyncio.gather(*map(pool.call, rights))
        assert sorted(json.loads(answered(result).output_json)["count"] for result in results) == [1, 2, 3, 4, 5]
        again = answered(await pool.call(replace(metrics, slots={1: Artifact("t")}, authority=right_to(metrics))))
        assert again.slots == {1: Artifact("t")}
        for without in (
            replace(metrics, call_id="d"),
            replace(metrics, call_id="e", authority=requested(replace(metrics, call_id="e"))),
        ):
            assert error(await pool.call(without)) == ("tool_error", "lease_refused"), "to that host it is an effect"

    with_host(
        work,
        leases=True,
        audit=lambda event, details: events.append((event, details["tier"])),
        MACHINA_LEASE_ENFORCE="1",
    )
    assert set(events) == {("lease_granted", 2)}


@pytest.mark.req("IPC-24")
def test_who_does_not_ask_is_refused_and_told_so() -> None:
    async def work(pool: Pool, actions: Catalogue) -> None:
        refused = await pool.call(prepared(actions, WRITE))
        assert error(refused) == ("tool_error", None)
        assert isinstance(refused, dict)
        assert refused["detail"] == "lease_required"

    with_host(work, MACHINA_LEASE_ENFORCE="1")


@pytest.mark.parametrize(("depth", "status"), [(1, None), (30, None), (31, "TOOL_ERROR"), (200, "TOOL_ERROR")])
def test_requests_are_shallow_whatever_the_input_is(depth: int, status: str | None) -> None:
    """json-c reads 32 levels. Input travels as text, so only the tool itself can find it too deep."""
    nested: Any = []
    for _ in range(depth - 1):
        nested = [nested]

    async def work(pool: Pool, actions: Catalogue) -> None:
        result = await pool.call(prepared(actions, ECHO, {"x": {"y": nested}}))
        if status is None:
            assert json.loads(answered(result).output_json) == {"echo": {"x": {"y": nested}}}
        else:
            assert isinstance(result, dict)
            assert (result.get("status"), result["detail"]) == (status, "bad input")
        assert isinstance(await pool.call(prepared(actions, ECHO)), ActionResult)

    with_host(work)
