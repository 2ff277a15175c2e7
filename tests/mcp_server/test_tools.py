"""The three tools, approvals and direct mode, with the client of the SDK in both eras."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from manglecp.client import Client as OurClient
from manglecp.intent import ANONYMOUS, Identity
from manglecp.invoke import OPERATOR
from manglecp.store import open_store
from manglecp.wire import schema_errors
from tests.mcp_server.hosts import COMPLAINT, LEGACY, MODERN, User, handles, host, invoke, mcp, opened, text

pytestmark = [pytest.mark.process, pytest.mark.socket]


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_an_agent_finds_and_uses_its_tools(tmp_path: Path, mode: str) -> None:
    async with opened(tmp_path) as core, host(await mcp(core), mode) as client:
        assert "Intents: help, evening, complain." in (client.instructions or "")
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["declare_intent", "invoke", "explain"]
        assert [tool.annotations and tool.annotations.read_only_hint for tool in listed.tools] == [True, False, True]
        assert "complaint(order)" in json.dumps(listed.tools[0].input_schema)

        nothing = await client.call_tool("declare_intent", {"intent": "help"})
        assert "pay_back" not in text(nothing)
        found = await client.call_tool("declare_intent", {"intent": "help", "facts": [COMPLAINT]})
        for expected in (
            "look_up(order: string, depth?: integer = 1), handle m-",
            "follow the skill orders",
            "Orders begin with A.",
            "needs the approval",
        ):
            assert expected in text(found)
        few = await client.call_tool("declare_intent", {"intent": "help", "facts": [COMPLAINT], "budget": 0})
        assert few.structured_content["tools"] == []
        assert "the budget is too small" in text(few)
        assert "budget" not in text(nothing)
        by_name = await handles(client)
        done = await invoke(client, by_name["look_up"], order="A-1")
        assert done.structured_content["result"] == {"order": "A-1", "depth": 1}

        why = await client.call_tool("explain", {"question": "why", "handle": by_name["pay_back"]})
        assert COMPLAINT in text(why)
        question = {"question": "why_not", "tool": "pay_back", "intent": "help"}
        why_not = await client.call_tool("explain", question)
        assert why_not.structured_content["would_unlock"][0][0]["pred"] == "complaint"
        assert "there is no such fact" in text(why_not)

        skills = await client.list_resources()
        assert [str(resource.uri) for resource in skills.resources] == ["skill://orders"]
        templates = await client.list_resource_templates()
        assert templates.resource_templates[0].uri_template == "skill://{id}"
        read = await client.read_resource("skill://orders")
        assert getattr(read.contents[0], "text", "") == "Orders begin with A."
        with pytest.raises(MCPError, match="No tool that is offered"):
            await client.read_resource("skill://secrets")


MISTAKES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("declare_intent", {"intent": "hlep"}, "Did you mean 'help'?"),
    ("declare_intent", {"intent": "help", "facts": ["complaint("]}, "facts:1"),
    ("declare_intent", {"intent": "help", "facts": ["refund(1)"]}, "refund"),
    ("declare_intent", {"intent": 7}, "/intent"),
    ("invoke", {"handle": "look_up"}, "look_up is not a handle"),
    ("invoke", {"handle": "m-00000000000000000000000000000000"}, "Declare the intent again"),
    ("declare_intent", {"intent": "abc"}, "argument intent of declare_intent"),
    ("explain", {"question": "why", "tool": "close_desk", "intent": "help"}, "ask why_not"),
    ("explain", {"question": "why"}, "pass a handle, or tool and intent"),
    ("explain", {"question": "why", "handle": "m-00000000000000000000000000000000"}, "no such offer"),
)


async def test_a_mistake_of_the_model_has_a_remedy(tmp_path: Path) -> None:
    async with opened(tmp_path) as core, host(await mcp(core), MODERN) as client:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        for tool, args, expected in MISTAKES:
            result = await client.call_tool(tool, args)
            assert result.is_error
            assert expected in text(result)
            assert result.structured_content["error"]["code"]
            assert not schema_errors(result.structured_content, schemas[tool] or {})  # hosts check errors, too
        failed = await invoke(client, (await handles(client, "evening", ()))["count_stock"], shelf="A")
        assert "count_stock: The action reported an error" in text(failed)
        assert "swordfish" not in failed.model_dump_json()


async def test_an_invalid_argument_and_a_denied_call(tmp_path: Path) -> None:
    async with opened(tmp_path) as core, host(await mcp(core), MODERN) as client:
        by_name = await handles(client)
        wrong = await invoke(client, by_name["look_up"], order=1)
        assert "/order" in text(wrong)
        denied = await invoke(client, by_name["pay_back"], amount=200)
        assert "amount of at most 100" in text(denied)
        assert denied.structured_content["error"]["code"] == "auth_insufficient"
        with pytest.raises(MCPError, match="takes the handle of a tool"):
            await client.call_tool("pay_back", {})


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_the_user_of_the_host_approves_and_declines(tmp_path: Path, mode: str) -> None:
    user = User([True, False, None])
    async with opened(tmp_path) as core, host(await mcp(core), mode, user) as client:
        by_name = await handles(client)
        assert (await invoke(client, by_name["pay_back"], amount=20)).structured_content["result"] == {"paid": 20}
        declined = await invoke(client, by_name["pay_back"], amount=21)
        cancelled = await invoke(client, by_name["pay_back"], amount=22)
        by_name = await handles(client, "evening", ())
        managed = await invoke(client, by_name["close_desk"])  # no form: it needs an approver
    assert (tmp_path / "paid").read_text() == "20\n"
    assert 'Arguments: {"amount":20}' in user.forms[0]
    assert len(user.forms) == 3
    assert "declined" in text(declined)
    assert "manglecp approvals approve ap-" in text(cancelled)
    assert "needs the permission manager" in text(managed)
    store = open_store(str(tmp_path / "store"))
    try:
        with store.read_transaction() as tx:
            rows = tx.execute("SELECT state, approver FROM approval ORDER BY created_ms").fetchall()
            ledger = [json.loads(row[0]) for row in tx.execute("SELECT body FROM ledger").fetchall()]
    finally:
        store.close()
    assert [tuple(row) for row in rows[:2]] == [("used", "attested:local"), ("denied", "attested:local")]
    assert [entry["event"] for entry in ledger if entry.get("attested")] == ["approved", "denied"]


async def test_a_host_without_forms_is_told_how_to_approve(tmp_path: Path) -> None:
    async with opened(tmp_path) as core:
        anonymous = await mcp(core, identity=ANONYMOUS)
        for server, user in ((anonymous, User()), (await mcp(core, attested=False), User()), (await mcp(core), None)):
            for mode in (MODERN, LEGACY):
                async with host(server, mode, user) as client:
                    handle = (await handles(client))["pay_back"]
                    refused = await invoke(client, handle, amount=20)
                    approval = refused.structured_content["error"]["details"]["challenge"]["approval"]
                    assert f"manglecp approvals approve {approval} --store store" in text(refused)
        async with OurClient(core) as requester:
            with pytest.raises(Exception, match="auth_insufficient"):  # a client cannot attest, or approve its own call
                await requester.approve(approval)
        with core.revisions.use() as revision:
            revision.invoker.approvals.decide(OPERATOR, approval, "approved")
        async with host(await mcp(core), MODERN) as client:  # the same call again, now approved
            assert not (await invoke(client, handle, amount=20)).is_error
            assert (await invoke(client, handle, amount=20)).is_error  # it was valid once
    assert (tmp_path / "paid").read_text() == "20\n"


async def test_state_of_another_call_and_a_replay_approve_nothing(tmp_path: Path) -> None:
    yes: Any = {"approval": types.ElicitResult(action="accept", content={"approve": True})}
    async with opened(tmp_path) as core, host(await mcp(core), MODERN, User()) as client:

        async def send(handle: str, amount: int, state: str | None = None) -> Any:
            return await client.session.call_tool(
                "invoke",
                {"handle": handle, "args": {"amount": amount}},
                input_responses=None if state is None else yes,
                request_state=state,
                allow_input_required=True,
            )

        handle = (await handles(client))["pay_back"]
        asked = await send(handle, 20)
        assert isinstance(asked, types.InputRequiredResult)
        state = str(asked.request_state)
        for amount, other_state in ((90, state), (20, f"{state}x"), (20, "ap-invented"), (20, "")):
            with pytest.raises(MCPError, match="requestState") as invalid:
                await send(handle, amount, other_state)
            assert invalid.value.error.code == types.INVALID_PARAMS
        other = (await handles(client, "evening", ()))["pay_back"]
        managed = (await handles(client, "evening", ()))["close_desk"]
        refused = await client.session.call_tool("invoke", {"handle": managed})
        assert isinstance(refused, types.CallToolResult)
        close = refused.structured_content["error"]["details"]["challenge"]["approval"]
        forged = await client.session.call_tool(
            "invoke", {"handle": managed}, input_responses=yes, request_state=close, allow_input_required=True
        )
        assert isinstance(forged, types.CallToolResult)
        assert "approver with a credential of its own" in text(forged)
        async with host(await mcp(core, identity=_bob()), MODERN, User()) as bob:
            his = (await handles(bob))["pay_back"]
            with pytest.raises(MCPError, match="requestState"):
                await bob.session.call_tool(
                    "invoke",
                    {"handle": his, "args": {"amount": 20}},
                    input_responses=yes,
                    request_state=state,
                    allow_input_required=True,
                )
        assert not (tmp_path / "paid").exists()
        assert not (await send(handle, 20, state)).is_error
        assert isinstance(await send(other, 20, state), types.InputRequiredResult)  # a replay asks again
    assert (tmp_path / "paid").read_text() == "20\n"


def _bob() -> Identity:
    return Identity("bob", frozenset(), "user")


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_progress_and_cancellation(tmp_path: Path, mode: str) -> None:
    reports: list[tuple[float, str | None]] = []
    began = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert total == 100
        reports.append((progress, message))
        if message and "half of it" in message:
            began.set()

    async with opened(tmp_path) as core, host(await mcp(core), mode) as client:
        handle = (await handles(client))["wait_for"]
        arguments = {"handle": handle, "args": {"gate": str(tmp_path / "gate")}}
        call = asyncio.create_task(client.call_tool("invoke", arguments, progress_callback=note))
        async with asyncio.timeout(60):
            await began.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while core.pending:  # the run ends, although nothing opens the gate
                await asyncio.sleep(0.02)
        assert [done for done, _ in reports] == sorted({done for done, _ in reports})
        assert not (await invoke(client, (await handles(client))["look_up"], order="A-2")).is_error


async def test_two_processes_share_a_store_and_a_key_runs_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        async with host(await mcp(first), MODERN) as client:
            by_name = await handles(client)
        async with host(await mcp(second), MODERN, User([True])) as client:
            arguments = {"handle": by_name["pay_back"], "args": {"amount": 5}, "request_key": "k"}
            paid = await client.call_tool("invoke", arguments)
            again = await client.call_tool("invoke", arguments)
            assert paid.structured_content == again.structured_content
            why = await client.call_tool("explain", {"question": "why", "handle": by_name["pay_back"]})
            assert COMPLAINT in text(why)
    assert (tmp_path / "paid").read_text() == "5\n"


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_direct_mode_lists_what_needs_no_facts_and_decides_each_call(tmp_path: Path, mode: str) -> None:
    async with opened(tmp_path) as core:
        async with host(await mcp(core, direct="help"), mode, User()) as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == ["look_up", "wait_for"]
            assert listed.tools[0].annotations is not None
            assert listed.tools[0].annotations.read_only_hint is True
            done = await client.call_tool("look_up", {"order": "A-1"})
            assert done.structured_content == {"order": "A-1", "depth": 1}
            missing = await client.call_tool("pay_back", {"amount": 1})
            assert "mandatory needs complaint" in text(missing)
            with pytest.raises(MCPError, match="no tool pay_out is offered"):
                await client.call_tool("pay_out", {})
        user = User([True])
        async with host(await mcp(core, direct="evening"), mode, user) as client:
            assert (await client.call_tool("pay_back", {"amount": 7})).structured_content == {"paid": 7}
            assert (await client.call_tool("pay_back", {"amount": 700})).is_error
    assert (tmp_path / "paid").read_text() == "7\n"
