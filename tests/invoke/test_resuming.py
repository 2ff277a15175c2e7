"""Runs that somebody else began: what a record says is not done again, and the direction of a run is kept.

Here a process is lost by an exception that nothing catches, at a named point. The same with real processes, and with
all points, is in tests/crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from manglecp.harness import TurnState
from manglecp.invoke.gate import GateRefused, Resumption, Turn, Turns
from manglecp.invoke.invoker import InvokeSettings
from manglecp.pack import Pack
from manglecp.store import Decision, Run, RunState, Store, open_store
from manglecp.wire import WireError
from tests.deadlines import patience
from tests.invoke.test_chains import chain, effect, steps
from tests.invoke.workshop import ME, Fails, Shop, Stop, Work, shop

SHORT = InvokeSettings(claim_ms=30)
UNDO = [f'undo_step("t", {n}, "erase"). undo_in("t", {n}, "n", "n").' for n in (1, 2)]
BACK = (*UNDO, 'reversible("t").', 'arg_value("t", 2, "n", 7).')


class Lost(BaseException):
    """The process is gone."""


def at(name: str) -> Callable[[str], None]:
    """Be lost at this point."""

    def point(reached: str) -> None:
        if reached == name:
            raise Lost(name)

    return point


async def begun(pack: Pack, store: Store, point: str, work: Mapping[str, Work] | None = None, **more: Any) -> Shop:
    """Invoke, in a process that is lost at this point."""
    async with shop(pack, work, store=store, settings=SHORT, point=at(point)) as s:
        with pytest.raises(Lost):
            await s.invoke("t", {"n": 1}, confirm=True, request_key="k", **more)
    return s


@asynccontextmanager
async def gone_on(pack: Pack, store: Store, work: Mapping[str, Work] | None = None) -> AsyncIterator[Shop]:
    """Take the run over, and carry it out."""
    async with shop(pack, work, store=store, settings=SHORT) as s:
        async with asyncio.timeout(patience(60)):
            while await s.invoker.take_over() is None:
                await asyncio.sleep(0.01)
        yield s


async def answer(s: Shop) -> Any:
    """What the repeated invocation gets."""
    try:
        return await s.invoke("t", {"n": 1}, request_key="k")
    except WireError as error:
        return error


def the_run(store: Store) -> Run:
    with store.read_transaction() as tx:
        (run,) = store.runs.list(tx)
    return run


def names(s: Shop) -> list[str]:
    return [name for name, _ in s.bench.ran]


def fails(_: dict[str, Any]) -> Any:
    raise Fails


async def test_what_is_done_is_not_done_again() -> None:
    pack, store = chain(steps("look", "write", "look", "write")), open_store(":memory:")
    first = await begun(pack, store, "finished:s2")
    assert names(first) == ["look", "write"]
    async with gone_on(pack, store) as s:
        assert names(s) == ["look", "write"]
        assert (await answer(s)).result == {"n": 1}
        assert names(s) == ["look", "write"]
        s.ledger()
    assert the_run(store).state == RunState.SUCCEEDED
    store.close()


@pytest.mark.parametrize("point", ["started:s1", "answered:s1"])
async def test_what_may_have_been_done_waits_for_a_person(point: str) -> None:
    pack, store = chain(steps("write", "look")), open_store(":memory:")
    first = await begun(pack, store, point)
    async with gone_on(pack, store) as s:
        assert names(s) == []
        error = await answer(s)
        assert error.details["effects"] == [{"step": 1, "action": "write", "status": "unknown"}]
        s.ledger()
    assert len(first.bench.ran) <= 1
    assert the_run(store).state == RunState.NEEDS_DECISION
    run = the_run(store).run_id
    with store.write_transaction() as tx:
        store.runs.decide(tx, run, Decision(verdict="did_not", step=1), "operator")
    async with gone_on(pack, store) as s:
        assert names(s) == ["write", "look"]
        assert (await answer(s)).result == {"n": 1}
    store.close()


async def test_every_effect_in_doubt_is_told_of() -> None:
    side = chain(steps("write", "write", "look"), 'step_after("t", 3, 1). step_after("t", 3, 2).')
    store = open_store(":memory:")
    await begun(side, store, "started:s2")
    async with gone_on(side, store) as s:
        error = await answer(s)
    assert [(one["step"], one["status"]) for one in error.details["effects"]] == [(1, "unknown"), (2, "unknown")]
    store.close()


async def test_whoever_goes_on_touches_nothing_before_an_undo_that_failed() -> None:
    pack, store = chain(steps("write", "write", "look"), *BACK), open_store(":memory:")
    work = {"look": fails, "erase": fails}
    first = await begun(pack, store, "finished:u2", work)
    assert names(first) == ["write", "write", "look", "erase"]
    async with gone_on(pack, store, work) as s:
        assert names(s) == [], "step 1 may rest on step 2, which still stands"
        error = await answer(s)
    assert [(one["step"], one["status"]) for one in error.details["effects"]] == [(1, "done"), (2, "done")]
    store.close()


@pytest.mark.parametrize("point", ["gate:u2", "finished:u2", "gate:u1"])
async def test_a_run_that_was_being_taken_back_does_not_go_forward(point: str) -> None:
    pack, store = chain(steps("write", "write", "write"), *BACK), open_store(":memory:")
    cancel = Stop()

    def write(given: dict[str, Any]) -> dict[str, Any]:
        if given["n"] == 7:
            cancel.set()
        return given

    first = await begun(pack, store, point, {"write": write}, cancel=cancel)
    async with gone_on(pack, store) as s:
        error = await answer(s)
    assert names(first) + names(s) == ["write", "write", "erase", "erase"]
    assert error.code == "cancelled"
    assert [one["status"] for one in error.details["effects"]] == ["undone", "undone"]
    assert the_run(store).state == RunState.CANCELLED
    store.close()


@pytest.mark.parametrize(("losses", "tries"), [(1, 2), (2, 3), (9, 3)])
async def test_what_may_be_repeated_is_tried_again_behind_its_own_gate(losses: int, tries: int) -> None:
    lost = iter(range(losses))

    def put(given: dict[str, Any]) -> dict[str, Any]:
        if next(lost, None) is not None:
            raise Fails("crash")
        return given

    pack = chain(steps("put", "look"), actions=(effect("put", idempotent=True),))
    async with shop(pack, {"put": put}) as s:
        given: Any
        try:
            given = (await s.invoke("t", {"n": 1}, confirm=True)).result
        except WireError as error:
            given = error.details
        assert names(s).count("put") == tries
        kinds = [kind for kind, _ in s.ledger()]
        assert kinds.count("step") == tries
        assert kinds.count("turn") == tries + 1
        assert len({one["call_id"] for one in s.bench.calls}) == len(s.bench.calls)
    if losses < tries:
        assert given == {"n": 1}
    else:
        assert given["reason"] == "needs_decision"
        assert given["effects"] == [{"step": 1, "action": "put", "status": "unknown"}]


async def test_an_undo_that_may_be_repeated_is_tried_again() -> None:
    lost = iter(range(1))

    def unput(given: dict[str, Any]) -> dict[str, Any]:
        if next(lost, None) is not None:
            raise Fails("crash")
        return given

    rules = ('undo_step("t", 1, "unput"). undo_in("t", 1, "n", "n").', 'reversible("t").')
    pack = chain(steps("write", "look"), *rules, actions=(effect("unput", idempotent=True),))
    async with shop(pack, {"look": fails, "unput": unput}) as s:
        error = await s.refused("t", {"n": 1}, confirm=True)
        assert names(s) == ["write", "look", "unput", "unput"]
        s.ledger()
    assert error.details is not None
    assert error.details["effects"] == [{"step": 1, "action": "write", "status": "undone"}]


async def test_a_cancelled_run_is_not_begun_again() -> None:
    pack, store = chain(steps("write", "write"), *UNDO[:1], 'reversible("t").'), open_store(":memory:")
    await begun(pack, store, "finished:s1")
    run = the_run(store).run_id
    with store.write_transaction() as tx:
        assert store.runs.request_cancel(tx, run, ME.name)
    async with gone_on(pack, store) as s:
        assert names(s) == ["erase"]
        assert (await answer(s)).code == "cancelled"
    store.close()


async def test_whoever_cannot_read_a_run_leaves_it_to_others() -> None:
    pack, store = chain(steps("write", "write")), open_store(":memory:")
    await begun(pack, store, "finished:s1")
    with store.write_transaction() as tx:
        (plan,) = tx.execute("SELECT plan FROM run_values").fetchone()
        tx.execute("UPDATE run_values SET plan = ?", (b"\0{}",))
    await asyncio.sleep(2 * SHORT.claim_ms / 1_000)  # the claim has lapsed
    async with shop(pack, store=store, settings=SHORT) as unable:
        with pytest.raises(ValueError, match="definition"):
            await unable.invoker.take_over()
        with store.write_transaction() as tx:
            tx.execute("UPDATE run_values SET plan = ?", (plan,))
        async with gone_on(pack, store) as s:
            assert names(s) == ["write"]
    assert the_run(store).state == RunState.SUCCEEDED
    store.close()


@pytest.mark.parametrize(("name", "code"), [("write", "execution_failed"), ("look", "internal_error")])
async def test_a_store_that_fails_in_the_middle_of_a_run(
    name: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A run with effects goes on later. Nobody is told to repeat it, and nobody gets a traceback for a full disk."""
    pack, store = chain(steps(name, name)), open_store(":memory:")

    def full(given: dict[str, Any]) -> dict[str, Any]:
        with store.write_transaction() as tx:
            tx.execute("DROP TRIGGER IF EXISTS full")
            tx.execute("CREATE TRIGGER full BEFORE INSERT ON ledger BEGIN SELECT RAISE (ABORT, 'disk full'); END")
        return given

    async with shop(pack, {name: full}, store=store, settings=SHORT) as s:
        error = await s.refused("t", {"n": 1}, request_key="k")
    assert (error.code, error.row.recoverable) == (code, False)
    assert "Traceback" not in caplog.text
    with store.write_transaction() as tx:
        tx.execute("DROP TRIGGER full")
    if name == "write":
        assert error.details is not None
        assert error.details["reason"] == "interrupted"
        async with gone_on(pack, store) as s:
            assert (await answer(s)).details["effects"] == [{"step": 1, "action": "write", "status": "unknown"}]
            assert names(s) == []
    store.close()


async def test_policies_that_let_no_turn_be_opened_leave_the_run_to_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(":memory:")
    pack = chain(steps("write", "write"), 'arg_value("t", 2, "n", 7).')
    await begun(pack, store, "finished:s1")

    usual = Turns.open

    def refuse(self: Turns, *, parallel: bool = False, resumed: Resumption | None = None) -> Turn:
        if resumed is not None:
            raise GateRefused(TurnState.CALL_SPEC, ["governance.policy_package_mismatch"])
        return usual(self, parallel=parallel)

    monkeypatch.setattr(Turns, "open", refuse)
    async with gone_on(pack, store) as s:
        told = await answer(s)
        assert names(s) == []
    assert (the_run(store).state, the_run(store).code) == (RunState.NEEDS_DECISION, "gate_refused")
    assert told.details["effects"] == [{"step": 1, "action": "write", "status": "done"}]
    store.close()
