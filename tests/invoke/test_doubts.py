"""Effects that may be repeated and whose outcome was lost: until it is known, they may have happened.

Whoever wants to stop meanwhile waits for that, and nobody is told that nothing was changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.store import open_store
from tests.invoke.chains import chain, effect, steps
from tests.invoke.test_resuming import answer, begun, gone_on, names, the_run
from tests.invoke.workshop import ME, Fails, Stop, Work, shop

PUT = effect("put", idempotent=True)
BACK = 'undo_step("t", 1, "erase"). undo_in("t", 1, "n", "n"). reversible("t").'
UNKNOWN = [{"step": 1, "action": "put", "status": "unknown"}]


def lost_once(then: Callable[[], None]) -> Work:
    """The first answer does not arrive."""
    tries = iter(range(1))

    def put(given: dict[str, Any]) -> dict[str, Any]:
        if next(tries, None) is not None:
            then()
            raise Fails("crash")
        return given

    return put


@pytest.mark.parametrize("back", [True, False])
async def test_cancelling_waits_until_it_is_known_what_happened(back: bool) -> None:
    cancel = Stop()
    pack = chain(steps("put", "write"), *[BACK] * back, actions=(PUT,))
    async with shop(pack, {"put": lost_once(cancel.set)}) as s:
        error = await s.refused("t", {"n": 1}, confirm=True, cancel=cancel)
        assert names(s) == ["put", "put", *["erase"] * back]
        assert s.ledger()[-1][1]["state"] == "cancelled"
    assert error.code == "cancelled"
    assert error.details is not None
    assert error.details["effects"] == [{"step": 1, "action": "put", "status": "undone" if back else "done"}]


async def test_an_heir_of_a_cancelled_run_finds_out_what_happened_first() -> None:
    pack, store = chain(steps("put", "write"), BACK, actions=(PUT,)), open_store(":memory:")
    await begun(pack, store, "answered:s1")
    run = the_run(store).run_id
    with store.write_transaction() as tx:
        assert store.runs.request_cancel(tx, run, ME.name)
    async with gone_on(pack, store) as s:
        assert names(s) == ["put", "erase"]
        error = await answer(s)
    store.close()
    assert error.code == "cancelled"
    assert error.details["effects"] == [{"step": 1, "action": "put", "status": "undone"}]


async def test_an_idempotent_effect_that_was_not_sent_is_not_in_doubt() -> None:
    def put(_: dict[str, Any]) -> Any:
        raise Fails("timeout", sent=False)

    async with shop(chain(steps("put", "write"), actions=(PUT,)), {"put": put}) as s:
        error = await s.refused("t", {"n": 1}, confirm=True)
        assert names(s) == ["put"]
    assert error.details is not None
    assert (error.details["reason"], error.details["effects"]) == ("step_failed", [])


async def test_without_time_to_find_out_a_person_has_to_say() -> None:
    async with shop(chain(steps("put", "write"), actions=(PUT,), invocation={"max_execution_ms": 200})) as s:

        async def put(_: dict[str, Any]) -> Any:
            await asyncio.sleep(s.bench.calls[-1]["timeout"] + 0.05)
            raise Fails("timeout")

        s.bench.work["put"] = put
        error = await s.refused("t", {"n": 1}, confirm=True)
        assert names(s) == ["put"]
    assert error.details is not None
    assert (error.details["reason"], error.details["effects"]) == ("needs_decision", UNKNOWN)
    assert "nothing was changed" not in error.message


async def test_a_failure_beside_it_is_dealt_with_when_it_is_known() -> None:
    rules = (steps("put", "write", "look"), 'step_after("t", 3, 1). step_after("t", 3, 2).', BACK)

    def fails(_: dict[str, Any]) -> Any:
        raise Fails

    async with shop(chain(*rules, actions=(PUT,)), {"put": lost_once(lambda: None), "write": fails}) as s:
        error = await s.refused("t", {"n": 1}, confirm=True)
        assert sorted(names(s)[:2]) == ["put", "write"]
        assert names(s)[2:] == ["put", "erase"]
        s.ledger()
    assert error.details is not None
    assert error.details["reason"] == "step_failed"
    assert error.details["effects"] == [{"step": 1, "action": "put", "status": "undone"}]


async def test_taking_back_has_time_of_its_own() -> None:
    pack = chain(steps("write", "write"), BACK, invocation={"max_execution_ms": 200})
    async with shop(pack) as s:

        async def slow(given: dict[str, Any]) -> dict[str, Any]:
            await asyncio.sleep(s.bench.calls[-1]["timeout"] + 0.05)
            return given

        s.bench.work["write"] = slow
        error = await s.refused("t", {"n": 1}, confirm=True)
        assert names(s) == ["write", "erase"]
        assert s.bench.calls[-1]["timeout"] > 0.01  # of the time of the run nothing is left
    assert error.details is not None
    assert (error.details["reason"], error.details["effects"][0]["status"]) == ("timeout", "undone")
