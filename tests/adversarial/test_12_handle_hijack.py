"""Case 12: the id of a tool opens nothing for others, nothing when it is guessed, late, or of other rules."""

from __future__ import annotations

import pytest

from manglecp.intent import ANONYMOUS, Identity
from manglecp.store import open_store
from manglecp.wire import WireError
from tests.adversarial._invoked import invoked
from tests.intent.packs import NOW
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import ME, shop

OTHERS = (ANONYMOUS, Identity("ME"), Identity("me "), Identity("me\n"), Identity("somebody", frozenset({"admin"})))


def told(error: WireError) -> tuple[object, ...]:
    return error.code, error.message, error.details, error.retry_after_ms


@pytest.mark.req("SEC-29", "SEC-37", "INVK-06")
@invoked
async def test_whoever_has_no_right_to_a_tool_learns_nothing_of_it() -> None:
    clock = [NOW]
    lasting = 'valid_for("t", D) :- D = fn:duration:parse("10s").'
    async with shop(chain(steps("write"), lasting, 'needs_confirmation("t").'), clock=lambda: clock[0]) as s:
        mine = (await s.tools())["t"]
        error = await s.refused(mine, {"n": 1}, evaluate=False)
        token = await s.approve(error)
        recorded = s.ledger()
        unknown = told(await s.refused("m-ffffffffffffffffffffffffffffffff", {"n": 1}, evaluate=False))
        assert unknown[0] == "macro_not_found"
        for now in (NOW, NOW + 20 * 10**9, NOW + 10_000 * 10**9):
            clock[0] = now
            for other in OTHERS:
                for args in ({"n": 1}, {"n": "?"}, {}):
                    assert told(await s.refused(mine, args, evaluate=False, identity=other)) == unknown
                    more = {"confirmation_token": token, "request_key": "k"}
                    assert told(await s.refused(mine, args, evaluate=False, identity=other, **more)) == unknown
        clock[0] = NOW
        for guess in (mine.upper(), mine[:-1], mine + "0", f" {mine}", mine[:-1] + "%", "", "m-*"):
            if guess != mine:
                assert told(await s.refused(guess, {"n": 1}, evaluate=False)) == unknown
        assert s.bench.ran == []
        assert s.ledger() == recorded
        await s.invoke(mine, {"n": 1}, evaluate=False, confirmation_token=token)  # it was the owner's all the time


@invoked
async def test_tools_of_other_rules_are_gone() -> None:
    store = open_store(":memory:")
    try:
        async with shop(chain(steps("write")), store=store) as s:
            mine = (await s.tools())["t"]
        async with shop(chain(steps("write"), policy='prohibited("t", "No more.").'), store=store) as s:
            assert (await s.refused(mine, {"n": 1}, evaluate=False)).code == "macro_expired"
            assert (await s.tools()) == {}
            assert s.bench.ran == []
        async with shop(chain(steps("write")), store=store) as s:  # the old rules are back
            await s.invoke(mine, {"n": 1}, evaluate=False)
    finally:
        store.close()


@invoked
async def test_the_same_tool_of_two_is_two() -> None:
    """Both were told the same id; what one of them had is not what the other has."""
    kim = Identity("kim")
    async with shop(chain(steps("look"))) as s:
        mine = (await s.tools())["t"]
        assert (await s.refused(mine, {"n": 1}, evaluate=False, identity=kim)).code == "macro_not_found"
        assert (await s.tools(identity=kim))["t"] == mine
        await s.invoke(mine, {"n": 1}, evaluate=False, identity=kim)
        await s.invoke(mine, {"n": 1}, evaluate=False, identity=ME)
