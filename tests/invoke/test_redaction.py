"""Secrets reach actions, and nobody else: no client, no ledger, no log, and no file that is left behind."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from manglecp.intent import OfferCodec
from manglecp.invoke import decide_call
from manglecp.invoke.calls import secret_names
from manglecp.invoke.runtime import sweep_store
from manglecp.store import open_store
from manglecp.wire import WireError
from manglecp.wire.messages import DecidePayload, Intent
from tests.intent.packs import NOW
from tests.invoke.chains import chain, effect
from tests.invoke.workshop import ME, Fails, Shop, shop, waiving

SETTING = "correct-horse-battery"
ARGUMENT = "staple-of-the-person"
CREDENTIAL = "ghp_0123456789abcdefghijABCDEFGHIJ"
SECRETS = (SETTING, ARGUMENT, CREDENTIAL)
PARAMS = {"key": {"type": "string"}, "pin": {"type": "string", "writeOnly": True}, "n": {"type": "integer"}}
RULES = (
    'macro_step("t", 1, "call"). macro_step("t", 2, "call"). on_error("t", 2, "continue").',
    'arg_value("t", N, "key", V) :- macro_step("t", N, _), secret(V).',
    'secret(V) :- setting("api_key", K), V = fn:string:concat("Key ", K, "!").',
    'extract("call", "said", "/said"). extract("call", "log", "/log").',
    'asserts("text_of", [N, V], "server") :- step_value(N, "said", V).',
    'asserts("text_of", [7, V], "server") :- run_arg("pin", V).',
    'asserts("text_of", [8, V], "server") :- ran("t"), setting("api_key", V).',
    'asserts("text_of", [9, V], "server") :- step_value(_, "log", V).',
    'retracts("text_of", [1, V]) :- run_arg("pin", V).',
    'continues_with("text_of", [1, V]) :- step_value(1, "said", V).',
    'continues_with("text_of", [2, V]) :- step_value(1, "log", V).',
    'suggests("later", ["pin": V], T) :- run_arg("pin", V), T = fn:string:concat("Go on with ", V).',
    'summary(T) :- run_arg("pin", V), T = fn:string:concat("It was ", V).',
    'summary(T) :- step_value(1, "log", V), T = fn:string:concat("The log said ", V).',
)
SKIPS = 'skip_step(2, T) :- run_arg("pin", V), T = fn:string:concat("Because of ", V).'


def echo(given: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, "said": f"{given['key']} and {given['pin']}", "log": f"token: {CREDENTIAL}"}


def complain(given: dict[str, Any]) -> Any:
    fails = Fails()
    fails.error["detail"] = f"{given['key']} {given['pin']} {CREDENTIAL}"
    raise fails


def clean(*texts: str) -> None:
    for text in texts:
        assert [secret for secret in SECRETS if secret in text] == []


async def used(s: Shop, **more: Any) -> str:
    """What a client is told by a run, whether it comes to something or not."""
    args = {"n": 1, "pin": ARGUMENT}
    try:
        answer = await s.invoke("t", args, confirm=True, request_key="k", **more)
    except WireError as error:
        return f"{error.message} {error.details}"
    assert SETTING not in str(answer)
    assert ARGUMENT not in str(answer)
    return f"{answer.state_delta} {answer.observability} {answer.next}"


@pytest.mark.req("OBS-10")
@pytest.mark.parametrize("tier", [0, 1])
@pytest.mark.parametrize("first", ["echo", "complain", "skip"])
async def test_secrets_are_nowhere(tier: int, first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    call = effect("call", tier, ("network",) if tier else (), params=PARAMS)
    rules = (*RULES, 'macro_result("t", "ok", 1, "/ok").', *[SKIPS] * (first == "skip"))
    work = {"call": complain if first == "complain" else echo}
    store = open_store(tmp_path / "store.sqlite3")
    try:
        async with shop(chain(*rules, actions=(call,), params={"api_key": SETTING}), work, store=store) as s:
            told = await used(s)
            assert s.bench.ran[0][1]["key"] == f"Key {SETTING}!"
            assert s.bench.ran[0][1]["pin"] == ARGUMENT
            clean(told, str(s.ledger()), caplog.text)
            assert await used(s) == told  # as it was kept
    finally:
        store.close()
    for file in tmp_path.iterdir():
        clean(file.read_bytes().decode("latin-1"))


async def test_a_result_holds_no_setting_and_no_secret_argument() -> None:
    call = effect("call", params=PARAMS)
    async with shop(chain(*RULES, actions=(call,), params={"api_key": SETTING}), {"call": echo}) as s:
        answer = await s.invoke("t", {"n": 1, "pin": ARGUMENT})
    assert answer.result["said"] == "Key [redacted]! and [redacted]"


async def test_a_document_is_read_back_as_it_was() -> None:
    """Where a secret setting was frozen into a chain, there is a blank; texts that look like one are texts."""
    call = effect("call", params={**PARAMS, "map": {"type": "object"}})
    frozen = """
        arg_value("t", 1, "map", ["a": [K, "Key ", "api_key"], "b": T]) :-
            setting("api_key", K), setting("other_token", T).
    """
    params = {"api_key": SETTING, "other_token": SETTING + "-and-more"}
    async with shop(chain(*RULES, frozen, actions=(call,), params=params)) as s:
        await s.tools()
        (macro_id,) = (await s.tools()).values()
        with s.store.read_transaction() as tx:
            kept = s.store.registry.find(tx, ME.name, macro_id, 0)
        assert kept is not None
        clean(kept.document.decode())
        documents = OfferCodec(s.domain.pack)
        proven = documents.read(kept.document)
        assert documents.write(proven) == kept.document
        given = {one.param: one.value for one in proven.steps[0].arguments}
        assert given["key"] == f"Key {SETTING}!"
        assert given["map"] == {"a": [SETTING, "Key ", "api_key"], "b": f"{SETTING}-and-more"}


async def test_a_challenge_and_an_automatic_approval_tell_no_secret() -> None:
    pay = effect("call", 3, ("payments",), params=PARAMS)
    made = chain(*RULES, actions=(pay,), params={"api_key": SETTING})
    async with shop(made, {"call": echo}) as s:
        error = await s.refused("t", {"n": 1, "pin": ARGUMENT})
        clean(str(error.details))
    async with shop(made, {"call": echo}, refresh_identity=waiving("payments")) as s:
        clean(await used(s), str(s.ledger()))


async def test_the_decision_log_has_no_secret_that_only_the_tool_declares() -> None:
    call = effect("call", params={name: {"type": "string"} for name in ("key", "pin")})
    declared = 'macro_param("t", "pin", {"type": "string", "writeOnly": /true}).'
    denial = 'prohibited("t", T) :- call("t"), call_arg("pin", P), call_arg("key", "bad")'
    policy = (
        f'{denial} |> let T = fn:string:concat("not with ", P).\n'
        'public_reason("t", T) :- call("t"), setting("api_key", K) |> let T = fn:string:concat("key ", K).\n'
        'needs_confirmation("t") :- call("t"), call_arg("key", "ask").'
    )
    params = {"api_key": SETTING}
    made = chain('macro_step("t", 1, "call").', declared, actions=(call,), policy=policy, params=params)
    async with shop(made) as s:
        for key in ("bad", "ask", "good"):
            args = {"key": key, "pin": ARGUMENT}
            with suppress(WireError):
                await s.invoke("t", args)
            for intent in (None, Intent(name="go")):
                decision = decide_call(s.domain, DecidePayload(tool="t", args=args, intent=intent), ME, NOW)
                assert SETTING not in f"{decision.public_reasons} {decision.error}"
                await s.invoker.decision_log.record(decision, "decide")
        await s.invoker.decision_log.drain()
        with s.store.read_transaction() as tx:
            records = s.store.decisions.newest(tx, 100)
        assert {"decide", "admission", "effect"} <= {record.operation for record in records}
        clean(*(s.store.decisions.content(record).decode() for record in records), str(s.ledger()))


async def test_why_a_step_was_left_out_of_a_failure_tells_no_secret() -> None:
    call = effect("call", params=PARAMS)
    skips = 'skip_step(1, T) :- run_arg("pin", V), T = fn:string:concat("Because of ", V).'
    rules = ('macro_step("t", 1, "call"). macro_step("t", 2, "look").', 'arg_value("t", 1, "key", "k").', skips)
    async with shop(chain(*rules, actions=(call,)), {"look": lambda _: complain({"key": "k", "pin": "p"})}) as s:
        error = await s.refused("t", {"n": 1, "pin": ARGUMENT})
    assert error.details is not None
    assert error.details["events"][0]["detail"] == "Because of [redacted]"
    clean(str(error.details), error.message)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "writeOnly": True},
        {"type": "string", "format": "password"},
        {"type": "object", "properties": {"user": {}, "key": {"writeOnly": True}}},
        {"type": "array", "items": {"anyOf": [{"type": "null"}, {"format": "password"}]}},
        {"$ref": "#/$defs/Login"},
    ],
)
def test_a_secret_is_found_wherever_it_stands(schema: dict[str, Any]) -> None:
    shared = {"Login": {"properties": {"again": {"$ref": "#/$defs/Login"}, "word": {"format": "password"}}}}
    whole = {"properties": {"one": schema, "other": {"default": {"writeOnly": True}}}, "$defs": shared}
    assert secret_names(whole) == {"one"}


@pytest.mark.req("SEC-33")
async def test_session_facts_are_sealed_and_deleted_with_their_offer(tmp_path: Path) -> None:
    """The deviation: they are stored with the offer, which is proven again from them."""
    store = open_store(tmp_path / "store.db", key=b"k" * 32)
    fact = {
        "pred": "lasted",
        "args": [918_273_645],
        "t": {"start": "2026-01-15T11:10:00Z", "end": "2026-01-15T11:20:07Z"},
    }
    pack = chain('macro_step("t", 1, "write").', when='mandatory("t") :- intent("go"), lasted(N)@[S, E], N > 1.')
    async with shop(pack, store=store) as s:
        assert await s.tools() == {}
        proven = (await s.tools(facts=[fact]))["t"]
        await s.invoke(proven, {"n": 1}, evaluate=False, request_key="k")
        assert [name for name, _ in s.bench.ran] == ["write"]
        assert await s.tools() == {}
        with store.read_transaction() as tx:
            assert tx.execute("SELECT count(*) FROM registry_document").fetchone()[0] == 2
        sweep_store(store, NOW // 1_000_000 + 10**9)
        with store.read_transaction() as tx:
            assert tx.execute("SELECT count(*) FROM registry_document").fetchone()[0] == 0
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    store.close()
    left += b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"write" in left
    assert b"918273645" not in left
    assert b"11:20:07" not in left
