"""What is checked before anything runs, in which order, and what each refusal says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.mangle import instant_text
from manglecp.store import open_store
from manglecp.wire import WireError, receive
from manglecp.wire.messages import InvokeRequest
from tests.intent.packs import NOW, NOW_TEXT, action, request
from tests.invoke.chains import chain, effect, steps
from tests.invoke.workshop import ME, Fails, Shop, invocation, shop
from tests.store.postgres import postgres_url

__all__ = ["postgres_url"]

SECOND = 10**9
OTHER = Identity("somebody", frozenset(), "user")
BAD = {"n": "one"}


class Clock:
    """The server's, set by hand."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def lasting(time: str) -> str:
    return f'valid_for("t", D) :- D = fn:duration:parse("{time}").'


def nothing_happened(s: Shop) -> None:
    assert s.bench.ran == []
    assert s.ledger() == []


def status(error: WireError) -> tuple[str, int, bool]:
    return error.code, error.row.status, error.row.recoverable


# --- the request -----------------------------------------------------------------------------------------------------


@pytest.mark.req("INVK-01", "INVK-02", "INVK-04")
@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"args": {}}, "macro_id"),
        ({"macro_id": 7, "args": {}}, "macro_id"),
        ({"macro_id": "m-1"}, "args"),
        ({"macro_id": "m-1", "args": []}, "args"),
        ({"macro_id": "m-1", "args": {}, "confirmation_token": 1}, "confirmation_token"),
        ({"macro_id": "m-1", "args": {}, "eval_time": {}}, "eval_time"),
    ],
)
def test_members_that_are_missing_or_of_another_kind(payload: dict[str, Any], path: str) -> None:
    message = {"type": "invoke_request", "id": "i", "manglecp": "2026-02-draft", "payload": payload}
    with pytest.raises(WireError) as refused:
        receive(json.dumps(message).encode(), 1 << 20)
    assert refused.value.code == "malformed_message"
    assert path in json.dumps(refused.value.details) + refused.value.message


@pytest.mark.req("INVK-03", "INVK-04")
def test_members_that_may_be_left_out() -> None:
    payload = {"macro_id": "m-1", "args": {}}
    message = {"type": "invoke_request", "id": "i", "manglecp": "2026-02-draft", "payload": payload}
    found = receive(json.dumps(message).encode(), 1 << 20)
    assert isinstance(found, InvokeRequest)
    assert (found.payload.eval_time, found.payload.confirmation_token, found.payload.request_key) == (None,) * 3


@pytest.mark.req("INVK-03")
@pytest.mark.parametrize("given", [None, "2026-02-19T14:30:10Z", 1_771_511_410_000])
async def test_rules_of_a_run_use_the_servers_clock(given: Any) -> None:
    """The deviation: ``eval_time`` of an invocation is recorded, and reaches no rule."""
    during = 'asserts_during("lasted", [1], "server", T, T) :- ran("t"), T = fn:time:now().'
    async with shop(chain(steps("look"), during)) as s:
        answer = await s.invoke("t", {"n": 1}, eval_time=given)
        admission = s.ledger()[0][1]["admission"]
    (fact,) = answer.state_delta.asserts
    assert fact["t"] == {"at": NOW_TEXT}
    assert admission["proven_at"] == str(NOW)
    assert admission.get("eval_time") == (None if given is None else "1771511410000000000")


# --- identity --------------------------------------------------------------------------------------------------------


@pytest.mark.req("INVK-06", "ERR-23", "SEC-26")
async def test_unknown_foreign_and_swept_tools_look_the_same() -> None:
    clock = Clock()
    async with shop(chain(steps("look")), clock=clock) as s:
        mine = (await s.tools())["t"]
        errors = [
            await s.refused("m-0123456789abcdef", {"n": 1}, evaluate=False),
            await s.refused(mine, {"n": 1}, evaluate=False, identity=OTHER),
            await s.refused(mine, BAD, evaluate=False, identity=OTHER),
            await s.refused(mine, {"n": 1}, evaluate=False, identity=OTHER, confirmation_token="v1.x.1.y"),
        ]
        clock.now += 301 * SECOND
        errors.append(await s.refused(mine, {"n": 1}, evaluate=False))
        nothing_happened(s)
    assert {status(error) for error in errors} == {("macro_not_found", 404, True)}
    assert len({(error.message, str(error.details)) for error in errors}) == 1
    assert "evaluate" in errors[0].message


@pytest.mark.req("INVK-11")
async def test_a_tool_survives_a_change_of_the_pack_that_still_proves_it() -> None:
    store = open_store(":memory:")
    try:
        async with shop(chain(steps("look"), lasting("1h")), store=store) as s:
            mine = (await s.tools())["t"]
            await s.invoke(mine, {"n": 1}, evaluate=False)
        async with shop(chain(steps("look"), lasting("1h"), "inner(1)."), store=store) as s:
            await s.invoke(mine, {"n": 1}, evaluate=False)
        async with shop(
            chain(steps("look"), lasting("1h"), when='mandatory("t") :- intent("later").'), store=store
        ) as s:
            assert (await s.refused(mine, {"n": 1}, evaluate=False)).code == "macro_expired"
            assert s.bench.ran == []
    finally:
        store.close()


async def test_a_tool_works_on_every_server_of_the_store() -> None:
    store = open_store(":memory:")
    try:
        async with shop(chain(steps("look")), store=store) as one, shop(chain(steps("look")), store=store) as two:
            mine = (await one.tools())["t"]
            assert (await two.invoke(mine, {"n": 3}, evaluate=False)).result == {"n": 3}
    finally:
        store.close()


@pytest.mark.req("INVK-12", "INVK-13")
@pytest.mark.parametrize(
    ("limits", "kept"), [(None, 300), ({"retention_ms": 2_000}, 2), ({"retention_ms": 10**6}, 1000)]
)
async def test_tools_without_a_window_are_kept_for_a_while(limits: Any, kept: int) -> None:
    clock = Clock()
    async with shop(chain(steps("look"), invocation=limits), clock=clock) as s:
        mine = (await s.tools())["t"]
        clock.now += kept * SECOND - 1_000_000
        await s.invoke(mine, {"n": 1}, evaluate=False)
        await s.tools()  # announced again, kept again
        clock.now += kept * SECOND - 1_000_000
        await s.invoke(mine, {"n": 1}, evaluate=False)
        clock.now += 1_000_000
        assert (await s.refused(mine, {"n": 1}, evaluate=False)).code == "macro_not_found"


@pytest.mark.req("INVK-13")
async def test_tools_may_be_evicted_for_want_of_room() -> None:
    async with shop(chain(steps("look"), lasting("1h"))) as s:
        mine = (await s.tools())["t"]
        with s.store.write_transaction() as tx:
            assert s.store.registry.sweep(tx, NOW // 1_000_000, max_entries=0).evicted_unexpired == 1
        assert (await s.refused(mine, {"n": 1}, evaluate=False)).code == "macro_not_found"


@pytest.mark.req("SEC-32")
async def test_a_condensed_tool_can_be_invoked_and_is_held_to_its_full_schema() -> None:
    """OPEN-26."""
    rules = ('macro("u", "Another."). mandatory("u"). macro_step("u", 1, "look").',)
    made = chain(steps("look"), *rules, when='relevant("t", 45).')
    async with shop(made) as s:
        answer = await s.invoker.offers.evaluate(request("go"), ME)
        tool = next(one for one in answer.payload.macro_tools if one.name == "t")
        assert tool.disclosure_level != "full"
        error = await s.refused(tool.macro_id, BAD, evaluate=False)
        assert error.code == "schema_validation_failed"
        assert (await s.invoke(tool.macro_id, {"n": 2}, evaluate=False)).result == {"n": 2}


# --- the window ------------------------------------------------------------------------------------------------------


@pytest.mark.req("INVK-07", "INVK-11", "ERR-24", "SEC-29")
async def test_a_window_ends_by_the_clock_of_the_server() -> None:
    clock = Clock()
    async with shop(chain(steps("look"), lasting("10s")), clock=clock) as s:
        mine = (await s.tools())["t"]
        clock.now += 10 * SECOND - 1_000_000
        await s.invoke(mine, {"n": 1}, evaluate=False)
        clock.now += 1_000_000
        error = await s.refused(mine, {"n": 1}, evaluate=False, eval_time=NOW_TEXT)
        assert len(s.bench.ran) == 1
    assert status(error) == ("macro_expired", 410, True)
    assert "2026-01-15T12:00:10Z" in error.message


LOGGED = 'Decl logged(X) temporal descr [direction("input"), untimed("now")] bound [/string].'
RECENT = 'mandatory("t") :- intent("go"), <-[0s, 5m] logged(_).'


def stamp(seconds: float) -> str:
    return instant_text(NOW + int(seconds * SECOND))


@pytest.mark.parametrize("ahead", [0.001, 1.5, 59, 60])
@pytest.mark.parametrize("form", ["untimed", "now", "stamped", "earlier", "open", "long"])
async def test_a_client_whose_clock_is_ahead_need_not_wait(form: str, ahead: float) -> None:
    """OPEN-28: the rules prove the tool by the server's clock, where what is past for the client is past or now."""
    times: dict[str, dict[str, Any]] = {
        "untimed": {},
        "now": {"t": {"at": "now"}},
        "stamped": {"t": {"at": stamp(ahead)}},
        "earlier": {"t": {"at": stamp(ahead - 5)}},
        "open": {"t": {"start": stamp(ahead), "end": "_"}},
        "long": {"t": {"start": stamp(ahead), "end": stamp(ahead + 600)}},
    }
    async with shop(chain(steps("look"), lasting("1h"), when=RECENT, schema=LOGGED), clock=Clock()) as s:
        fact = {"pred": "logged", "args": ["a"], **times[form]}
        mine = (await s.tools(facts=[fact], eval_time=stamp(ahead)))["t"]
        await s.invoke(mine, {"n": 1}, evaluate=False)


@pytest.mark.parametrize(
    ("times", "lasts"),
    [
        ({"at": stamp(30)}, 0),  # now by the client's clock: now by that of the server, and no longer
        ({"at": stamp(20)}, 0),
        ({"start": stamp(-10), "end": stamp(20)}, 0),
        ({"start": stamp(10), "end": stamp(20)}, 0),
        ({"start": stamp(30), "end": stamp(40)}, 10),
        ({"start": stamp(0), "end": stamp(40)}, 40),
    ],
)
async def test_a_clock_that_is_ahead_makes_no_fact_last_longer(times: dict[str, str], lasts: int) -> None:
    clock = Clock()
    logged = LOGGED.replace('untimed("now")', 'untimed("always")')
    made = chain(steps("look"), when='mandatory("t") :- intent("go"), <-[0s, 30s] logged(_).', schema=logged)
    async with shop(made, clock=clock) as s:
        mine = (await s.tools(facts=[{"pred": "logged", "args": ["a"], "t": times}], eval_time=stamp(30)))["t"]
        await s.invoke(mine, {"n": 1}, evaluate=False)
        clock.now += (lasts + 30) * SECOND - 1
        await s.invoke(mine, {"n": 1}, evaluate=False)
        clock.now += 2
        assert (await s.refused(mine, {"n": 1}, evaluate=False)).code == "macro_expired"


async def test_what_is_future_for_a_client_whose_clock_is_ahead_stays_where_it_is() -> None:
    clock = Clock()
    logged = LOGGED.replace('untimed("now")', 'untimed("always")')
    made = chain(steps("look"), when='mandatory("t") :- intent("go"), <+[0s, 60s] logged(_).', schema=logged)
    async with shop(made, clock=clock) as s:
        mine = (await s.tools(facts=[{"pred": "logged", "args": ["a"], "t": {"at": stamp(40)}}], eval_time=stamp(30)))[
            "t"
        ]
        clock.now += 39 * SECOND
        await s.invoke(mine, {"n": 1}, evaluate=False)


async def test_a_window_that_has_not_begun() -> None:
    """OPEN-28: an evaluation for a time that no clock shows."""
    clock = Clock()
    async with shop(chain(steps("look"), when=RECENT, schema=LOGGED), clock=clock) as s:
        fact = {"pred": "logged", "args": ["a"], "t": {"at": stamp(61)}}
        mine = (await s.tools(facts=[fact], eval_time=stamp(61)))["t"]
        error = await s.refused(mine, {"n": 1}, evaluate=False)
        assert (status(error), error.retry_after_ms) == (("x-macro_not_yet_valid", 403, True), 61_000)
        nothing_happened(s)
        clock.now += 61_000_000_000
        await s.invoke(mine, {"n": 1}, evaluate=False)


# --- arguments -------------------------------------------------------------------------------------------------------

PARTS = {
    "path": {"type": "string", "maxLength": 5},
    "depth": {"type": "integer", "minimum": 0},
    "kind": {"enum": ["a", "b"]},
}


@pytest.mark.req("INVK-02", "INVK-08", "ERR-25", "ERR-39")
async def test_all_that_is_wrong_with_arguments_is_told_at_once() -> None:
    scan = action("scan", params=PARTS)
    async with shop(chain(steps("scan"), actions=(scan,))) as s:
        error = await s.refused("t", {"path": "too long a secret", "depth": -1, "more/~": True})
        nothing_happened(s)
    assert status(error) == ("schema_validation_failed", 400, True)
    assert error.details is not None
    told = [(one["path"], one["keyword"]) for one in error.details["schema_errors"]]
    assert told == [
        ("/depth", "minimum"),
        ("/kind", "required"),
        ("/more~1~0", "additionalProperties"),
        ("/path", "maxLength"),
    ]
    assert "secret" not in json.dumps(error.details)


# --- the order -------------------------------------------------------------------------------------------------------


@pytest.mark.req("INVK-05", "INVK-09", "INVK-10", "ERR-26", "ERR-27")
async def test_the_first_check_that_fails_is_the_one_that_is_reported() -> None:
    """Everything is wrong; one thing after the other is put right."""
    clock = Clock()
    pay = effect("pay", 3, ("payments",))
    async with shop(chain(steps("pay"), lasting("10s"), actions=(pay,)), clock=clock) as s:
        mine = (await s.tools())["t"]
        wrong = {"confirmation_token": "no token", "evaluate": False}
        clock.now += 11 * SECOND
        assert (await s.refused(mine, BAD, identity=OTHER, **wrong)).code == "macro_not_found"
        assert (await s.refused(mine, BAD, **wrong)).code == "macro_expired"
        clock.now = NOW
        assert (await s.refused(mine, BAD, **wrong)).code == "schema_validation_failed"
        assert status(await s.refused(mine, {"n": 1}, **wrong)) == ("confirmation_invalid", 403, True)
        error = await s.refused(mine, {"n": 1}, evaluate=False)
        assert status(error) == ("confirmation_required", 403, True)
        assert s.bench.ran == []
        token = await s.approve(error)
        answer = await s.invoker.invoke(invocation(mine, {"n": 1}, confirmation_token=token), ME)
        assert answer.payload.result == {"n": 1}
        assert s.bench.ran == [("pay", {"n": 1})]


async def test_a_read_needs_no_confirmation() -> None:
    async with shop(chain(steps("look"))) as s:
        assert (await s.invoke("t", {"n": 1})).result == {"n": 1}


@pytest.mark.req("INVK-17", "ERR-28")
async def test_a_failure_is_an_error_and_no_response() -> None:
    def fail(_: Any) -> Any:
        raise Fails

    async with shop(chain(steps("look", "look")), {"look": fail}) as s:
        error = await s.refused("t", {"n": 1})
        assert len(s.bench.ran) == 1
    assert status(error) == ("execution_failed", 500, False)
    assert error.details is not None
    assert error.details["reason"] == "step_failed"
    assert "nothing was changed" in error.message


@pytest.mark.req("INVK-03")
@pytest.mark.parametrize("time", ["nonsense", "", "2026-02-30T00:00:00Z", 10**30, -(10**17)])
async def test_a_time_that_is_none(time: Any) -> None:
    async with shop(chain(steps("look"))) as s:
        error = await s.refused("t", {"n": 1}, eval_time=time)
        assert (error.code, (error.details or {})["path"]) == ("malformed_message", "$.payload.eval_time")
        nothing_happened(s)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_texts_that_not_every_store_can_hold(kind: str, request: pytest.FixtureRequest) -> None:
    store = open_store(request.getfixturevalue("postgres_url") if kind == "postgresql" else ":memory:")
    async with shop(chain(steps("write")), store=store) as s:
        assert (await s.refused("m-\0", {"n": 1}, evaluate=False)).code == "macro_not_found"
        error = await s.refused("t", {"n": 1}, request_key="a\0b")
        assert (error.code, (error.details or {})["path"]) == ("malformed_message", "$.payload.x-request_key")
        nothing_happened(s)
    store.close()
