"""Who asks: guests, credentials in headers, the message for it, and what policy sees of it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from manglecp.intent import Identity
from manglecp.server.config import Rate, ServerSettings
from tests.server.desk import RULES, Client, Tokens, authenticate, desk, encoded, intent, invoke, plain_pack

BOT = Identity("bot", frozenset({"ship", "look"}), "automated")
ANN = Identity("ann", frozenset(), "user")
KNOWN = {"good": BOT, "ann's": ANN}
POLICY = """
prohibited("t", "only those who may ship") :- !client_permission("ship").
prohibited("w", "only automata") :- !client_trust("automated").
macro("mine", "For the user of this machine."). mandatory("mine") :- intent("go"), client_trust("local").
macro_step("mine", 1, "look").
"""


def names(answer: dict) -> set[str]:  # type: ignore[type-arg]
    return {tool["name"] for tool in answer["payload"]["macro_tools"]}


@pytest.mark.req("SEC-13", "SEC-14", "SEC-15", "SEC-17")
async def test_nothing_is_asked_before_authenticate_and_everything_after() -> None:
    async with desk(auth=Tokens(KNOWN)) as d, d.client() as client:
        manifest = (await client.until(lambda one: one["type"] == "manifest"))[0]
        assert manifest["payload"]["auth"] == {"required": True, "schemes": ["bearer", "api_key"]}
        for message in (intent("a"), invoke("b", "m-1", {})):
            assert (await client.ask(message))["payload"]["code"] == "auth_required"
        answer = await client.ask(authenticate("c", "good"))
        assert answer == {
            "type": "authenticate_response",
            "id": "c",
            "manglecp": "2026-02-draft",
            "payload": {
                "status": "authenticated",
                "identity": "bot",
                "permissions": ["look", "ship"],
                "trust_level": "automated",
            },
        }
        assert (await client.ask(intent("d")))["type"] == "intent_response"


@pytest.mark.req("SEC-14", "SEC-17", "ERR-10")
@pytest.mark.parametrize("transport", ["websocket", "stdio"])
async def test_a_credential_that_does_not_hold_leaves_the_session_as_it_was(transport: str) -> None:
    async with desk(auth=Tokens(KNOWN)) as d, d.client(transport) as client:  # type: ignore[arg-type]
        for request, scheme, token in (("a", "bearer", "bad"), ("b", "oauth2", "good")):
            answer = await client.ask(authenticate(request, token, scheme))
            assert answer["payload"]["code"] == "auth_invalid"
            assert answer["payload"]["recoverable"] is True
        assert (await client.ask(intent("c")))["payload"]["code"] == "auth_required"
        await client.ask(authenticate("d", "good"))
        assert (await client.ask(authenticate("e", "bad")))["payload"]["code"] == "auth_invalid"
        assert (await client.ask(intent("f")))["type"] == "intent_response"


async def test_what_comes_after_authenticate_without_waiting_is_asked_as_that_identity() -> None:
    async with desk(auth=Tokens(KNOWN)) as d, d.client() as client:
        await client.say(authenticate("a", "good"), intent("b"))
        assert (await client.answer("b"))["type"] == "intent_response"


@pytest.mark.req("SEC-16", "SEC-17", "TRANS-17", "ERR-10")
async def test_on_http_the_credential_comes_with_the_request() -> None:
    async with desk(auth=Tokens(KNOWN)) as d:
        answer, reply = await d.post(intent("a"))
        assert (answer["id"], reply.code, reply.status) == ("a", "auth_required", 401)
        answer, reply = await d.post(intent("b"), "bad")
        assert (answer["id"], reply.code, reply.status) == ("b", "auth_invalid", 401)
        answer, reply = await d.post(intent("c"), "good")
        assert (answer["type"], reply.status) == ("intent_response", 200)
        answer, reply = await d.post(authenticate("d", "good"))
        assert (reply.code, reply.status) == ("invalid_type", 400)


async def test_a_bad_credential_is_no_guest() -> None:
    async with desk(auth=Tokens(KNOWN, required=False)) as d:
        assert (await d.post(intent("a")))[1].status == 200
        assert (await d.post(intent("b"), "bad"))[1].code == "auth_invalid"


@pytest.mark.req("SEC-05", "SEC-18", "SEC-19", "SEC-28", "TRANS-28")
async def test_policy_sees_who_asks() -> None:
    async with desk(plain_pack(RULES, policy=POLICY), auth=Tokens(KNOWN, required=False)) as d:
        assert names((await d.post(intent("a")))[0]) == set()
        assert names((await d.post(intent("a"), "good"))[0]) == {"t", "w"}
        assert names((await d.post(intent("a"), "ann's"))[0]) == set()
        async with d.client("stdio", None) as client:
            assert names(await client.ask(intent("a"))) == {"mine"}


async def test_a_tool_belongs_to_whom_it_was_issued_to() -> None:
    async with desk(auth=Tokens(KNOWN)) as d:
        answer, _ = await d.post(intent("a"), "good")
        macro_id = next(tool["macro_id"] for tool in answer["payload"]["macro_tools"] if tool["name"] == "t")
        assert (await d.post(invoke("b", macro_id, {"n": 1}), "ann's"))[1].code == "macro_not_found"
        assert (await d.post(invoke("b", macro_id, {"n": 1}), "good"))[1].status == 200


@pytest.mark.req("SEC-23", "SEC-24", "SEC-25")
async def test_confirmation_is_waived_where_a_setting_says_so_and_the_client_is_told() -> None:
    rules = RULES + '\nneeds_confirmation("w").'
    waiving = {"good": KNOWN["good"]._replace(auto_confirm_effects=("filesystem",))}
    async with desk(plain_pack(rules), auth=Tokens(KNOWN | waiving)) as d:
        async with d.client() as client:
            told = (await client.ask(authenticate("a", "good")))["payload"]
            assert (told["trust_level"], told["auto_confirm_effects"]) == ("automated", ["filesystem"])
            assert (await _write(client))["type"] == "invoke_response"
        async with d.client() as client:
            assert "auto_confirm_effects" not in (await client.ask(authenticate("a", "ann's")))["payload"]
            assert (await _write(client))["payload"]["code"] == "confirmation_required"
    async with desk(plain_pack(rules), auth=Tokens(KNOWN)) as d, d.client() as client:
        assert "auto_confirm_effects" not in (await client.ask(authenticate("a", "good")))["payload"]
        assert (await _write(client))["payload"]["code"] == "confirmation_required"


async def _write(client: Client) -> dict:  # type: ignore[type-arg]
    tools = {tool["name"]: tool["macro_id"] for tool in (await client.ask(intent("i")))["payload"]["macro_tools"]}
    return await client.ask(invoke("w", tools["w"], {"n": 1}))


@pytest.mark.req("ERR-10")
async def test_a_credential_that_is_withdrawn_ends_what_a_session_may_do() -> None:
    now = [100.0]
    known = dict(KNOWN)
    async with desk(auth=Tokens(known), clock=lambda: now[0]) as d, d.client() as client:
        await client.ask(authenticate("a", "good"))
        del known["good"]
        assert (await client.ask(intent("b")))["type"] == "intent_response"
        now[0] += d.core.settings.recheck_interval
        assert (await client.ask(intent("c")))["payload"]["code"] == "auth_invalid"
        known["good"] = BOT
        assert (await client.ask(intent("d")))["type"] == "intent_response"


async def test_long_messages_of_strangers_are_not_even_decoded() -> None:
    async with desk(auth=Tokens(KNOWN)) as d:
        long = encoded(intent("a", facts=[{"pred": "p", "args": ["x" * 70_000]}]))
        answer, reply = await d.post(long)
        assert (answer["id"], reply.code) == (None, "auth_required")
        answer, reply = await d.post(long, "good")
        assert (answer["id"], reply.code) == ("a", "unknown_predicate")


async def test_whoever_guesses_is_slowed_down_and_whoever_knows_is_not() -> None:
    settings = ServerSettings(attempt_rate=Rate(0.001, 3), worker=False)
    async with desk(auth=Tokens(KNOWN), settings=settings) as d, d.client() as client:
        codes = [(await client.ask(authenticate(f"g-{n}", "guess")))["payload"]["code"] for n in range(5)]
        assert codes == ["auth_invalid"] * 3 + ["rate_limited"] * 2
        assert (await client.ask(authenticate("a", "good")))["type"] == "authenticate_response"
        assert (await d.post(intent("b"), "guess", peer="192.0.2.9"))[1].code == "auth_invalid"


async def test_a_check_that_does_not_end_is_given_up() -> None:
    class Stuck(Tokens):
        async def identify(self, scheme: str, credential: str) -> Identity | None:
            await asyncio.Event().wait()
            return await super().identify(scheme, credential)

    settings = ServerSettings(identify_timeout=0.01, worker=False)
    async with desk(auth=Stuck(KNOWN), settings=settings) as d, d.client() as client:
        assert (await client.ask(authenticate("a", "good")))["payload"]["code"] == "internal_error"


async def test_logs_have_request_ids_and_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "manglecp"):
        async with desk(auth=Tokens({"s3cret-credential": BOT})) as d, d.client() as client:
            await client.ask(authenticate("auth-1", "s3cret-credential"))
            await client.ask(authenticate("auth-2", "wr0ng-credential"))
            await client.ask(intent("ask-1", params={"password": "hunter2"}))
            await client.ask(intent("x" * 1_000))
    seen = [vars(record) for record in caplog.records if record.name == "manglecp.server.core"]
    assert [one["request_id"] for one in seen] == ["auth-1", "auth-2", "ask-1", "x" * 128]
    assert [one["code"] for one in seen] == [None, "auth_invalid", None, None]
    assert all(one["session"] == client.session.name for one in seen)
    assert "bot" in {one["identity"] for one in seen}
    for text in (str(seen), caplog.text, str(d.handled)):
        assert "credential" not in text
        assert "hunter2" not in text
