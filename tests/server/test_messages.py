"""Bytes in, bytes out: every type of message, on every kind of transport."""

from __future__ import annotations

import pytest

from tests.server.desk import cancel, desk, intent, invoke


@pytest.mark.req("TRANS-15", "TRANS-34")
async def test_an_intent_and_an_invocation_over_http() -> None:
    async with desk() as d:
        answer, reply = await d.post(intent("c-1"))
        assert (answer["type"], answer["id"], reply.status, reply.code) == ("intent_response", "c-1", 200, None)
        [tool] = [one for one in answer["payload"]["macro_tools"] if one["name"] == "t"]
        answer, reply = await d.post(invoke("c-2", tool["macro_id"], {"n": 3}))
        assert (answer["type"], answer["id"], reply.status) == ("invoke_response", "c-2", 200)
        assert answer["payload"]["result"] == {"n": 3}


async def test_a_session_begins_with_the_manifest_and_answers() -> None:
    async with desk() as d, d.client() as client:
        tools = await d.tools(client)
        answer = await client.ask(invoke("c-2", tools["t"], {"n": 3}))
        assert answer["payload"]["result"] == {"n": 3}
        assert client.sent[0]["type"] == "manifest"


@pytest.mark.parametrize("type_", ["ping", "intent_response", "manifest"])
@pytest.mark.req("WIRE-15")
async def test_other_types_are_refused_and_the_session_goes_on(type_: str) -> None:
    async with desk() as d, d.client() as client:
        answer = await client.ask({**intent("x"), "type": type_})
        assert (answer["type"], answer["payload"]["code"]) == ("error", "invalid_type")
        assert (await client.ask(intent("y")))["type"] == "intent_response"


async def test_http_takes_requests_only() -> None:
    async with desk() as d:
        answer, reply = await d.post(cancel("x"))
        assert (answer["payload"]["code"], answer["id"], reply.status) == ("invalid_type", None, 400)
