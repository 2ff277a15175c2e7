"""What agents and programs around them use: approvals without waiting, handles, principals, explanations, providers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from manglecp import Client, Server
from manglecp.client import RequestRefused, ServerError, Tool
from manglecp.client.provider_tools import to_openai
from manglecp.intent import Identity
from manglecp.wire import messages
from tests.mcp_server.desk import write_pack

COMPLAINT = ['complaint("A-1")']


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Server]:
    async with Server(write_pack(folder), workspace=[folder], degrade=True, store=str(folder / "store")) as server:
        yield server


async def test_approvals_handles_explanations_and_facts_as_text(tmp_path: Path) -> None:
    async with desk(tmp_path) as server, Client(server) as client:
        assert repr(client) == "<Client: desk, ready>"
        assert [one.name for one in await client.intents()] == ["help", "evening", "complain"]
        found = await client.evaluate("help", facts=COMPLAINT, level="full")
        assert repr(found) == "<EvaluationResult help: look_up, pay_back, wait_for>"
        handle = found["pay_back"].macro_id

        assert await client.prepare(found["look_up"], {"order": "A-1"}) is None
        request = await client.prepare("pay_back", {"amount": 20})
        assert request is not None
        assert (request.approval or "").startswith("ap-")
        with pytest.raises(ServerError, match="more than 100 is for managers"):
            await client.prepare("pay_back", {"amount": 200})
        assert not (tmp_path / "paid").exists()

        async with Client(server.as_("boss", ["approve"])) as boss:
            await boss.approve(str(request.approval))
        async with Client(server) as other:  # has evaluated nothing
            with pytest.raises(ServerError, match="confirmation_required"):
                await other.invoke(handle, {"amount": 21})
            with pytest.raises(ServerError, match="schema_validation_failed"):
                await other.invoke(handle, {"amount": "20"})
            paid = await other.invoke(handle, {"amount": 20}, approval=request.approval)
            assert paid.result == {"paid": 20}
            assert repr(paid) == f"<InvocationResult {handle}: {{'paid': 20}}>"
            with pytest.raises(ServerError, match="macro_not_found"):
                await other.invoke("m-" + 32 * "0")
        assert (tmp_path / "paid").read_text() == "20\n"

        assert 'complaint("A-1")' in str(await client.why(found["pay_back"]))
        why_not = await client.why_not("pay_back", "help")
        assert "complaint" in str(why_not)
        assert why_not.would_unlock
        decided = await client.decide("pay_back", {"amount": 1}, intent="help", facts=COMPLAINT)
        assert decided.verdict == "ask"
        assert "UNSET" not in repr(decided)
        with pytest.raises(RequestRefused, match="facts:1"):
            await client.evaluate("help", facts=["complaint("])


async def test_principals_in_one_process(tmp_path: Path) -> None:
    async with desk(tmp_path) as server, Client(server) as client:
        mine = (await client.evaluate("help"))["look_up"].macro_id
        async with client.as_("bob") as bob:
            with pytest.raises(ServerError, match="macro_not_found"):  # the offer is not his
                await bob.invoke(mine, {"order": "A-1"})
            with pytest.raises(ServerError, match="auth_insufficient"):
                await bob.approvals()
        async with client.as_("boss", ["approve"]) as boss:
            assert await boss.approvals() == ()
    with pytest.raises(RequestRefused, match="not_supported"):
        Client("http://127.0.0.1:1").as_("bob")


class _Badges:
    required, schemes, token_url = True, ("bearer",), None

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        return Identity("ann", frozenset({"approve"}), "user") if (scheme, credential) == ("bearer", "ok") else None


async def test_a_server_with_a_method_of_authentication_of_its_own(tmp_path: Path) -> None:
    async with Server(write_pack(tmp_path), auth=_Badges(), degrade=True) as server:
        async with Client(server, token="ok") as client:
            assert await client.approvals() == ()
            async with client.as_("bob") as bob:  # without a credential
                assert "look_up" in await bob.evaluate("help")
        with pytest.raises(ServerError, match="auth_invalid"):
            async with Client(server, token="no") as client:
                pass
    with pytest.raises(ValueError, match="tokens or auth"):
        Server(tmp_path, tokens=tmp_path, auth=_Badges())


def _tool(name: str, schema: dict[str, Any]) -> Tool:
    definition = messages.MacroTool(macro_id=name, name=name, disclosure_level="full", input_schema=schema)
    return Tool(definition, messages.IntentPayload(intent=messages.Intent(name="go")))


async def test_tools_in_the_formats_of_providers(tmp_path: Path) -> None:
    async with desk(tmp_path) as server, Client(server) as client:
        found = await client.evaluate("help", level="full")
        look_up = {one["name"]: one for one in found.to_anthropic()}["look_up"]
        assert look_up["input_schema"]["additionalProperties"] is False
        assert look_up["input_schema"]["required"] == ["order"]
        strict = {one["name"]: one for one in found.to_openai()}["look_up"]
        assert strict["type"] == "function"
        assert strict["strict"] is True
        assert strict["parameters"]["required"] == ["depth", "order"]
        assert strict["parameters"]["properties"]["depth"]["anyOf"][1] == {"type": "null"}
        assert "default" not in str(strict)
        chat = found.to_openai(chat=True, strict=False)[0]
        assert set(chat) == {"type", "function"}
        outcome = await client.invoke(found["look_up"], {"order": "A-1", "depth": None})
        assert outcome.result == {"order": "A-1", "depth": 1}
        with pytest.raises(RequestRefused, match="level='full'"):
            (await client.evaluate("help", level="minimal")).to_anthropic()

    free: dict[str, Any] = {"type": "object", "properties": {"any": {"type": "object", "additionalProperties": True}}}
    assert to_openai([_tool("read", free)])[0] | {"parameters": None} == {
        "type": "function",
        "name": "read",
        "description": "",
        "parameters": None,
        "strict": False,
    }
