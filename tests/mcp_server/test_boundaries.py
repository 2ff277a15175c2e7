"""What must not cross the server for MCP, and what a client of another protocol reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from manglecp.cli.options import RuntimeOptions
from manglecp.client import Client as OurClient, ClientError, Tool
from manglecp.intent import ANONYMOUS, Identity
from manglecp.mcp_server import McpOptions, PackSource, http_app, make_server
from manglecp.mcp_server.texts import tool_lines
from manglecp.server import AuthConfig, Guards
from manglecp.server.auth import LOCAL
from manglecp.wire import messages
from tests.mcp_server.desk import write_pack
from tests.mcp_server.hosts import LEGACY, MODERN, User, handles, host, invoke, mcp, opened, text

pytestmark = [pytest.mark.process, pytest.mark.socket, pytest.mark.no_cover]


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("postgresql://ann:secret@db/desk", " --store postgresql://ann@db/desk"),
        ("my store", " --store 'my store'"),
        (None, ""),
    ],
)
def test_a_printed_command_has_no_password(location: str | None, shown: str) -> None:
    options = RuntimeOptions({}, (), cache=False, degrade=False, location=location)
    assert options.store_words == shown


async def test_an_anonymous_client_does_not_read_the_facts_of_another(tmp_path: Path) -> None:
    async with opened(tmp_path) as core:
        server = await mcp(core, identity=ANONYMOUS)
        async with host(server, MODERN) as ann, host(server, MODERN) as bob:
            handle = (await handles(ann))["pay_back"]
            why = await bob.call_tool("explain", {"question": "why", "handle": handle})
            assert why.is_error
            assert "A-1" not in text(why)
            assert "pass tool and intent" in text(why)
            own = {"question": "why", "tool": "pay_back", "intent": "help", "facts": ['complaint("B-2")']}
            assert "B-2" in text(await bob.call_tool("explain", own))


@dataclass(frozen=True, slots=True)
class _BrokenSource(PackSource):
    async def approval_text(self, approval: str) -> str | None:
        raise RuntimeError(f"/var/lib/secret/store: {approval}")


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_an_internal_error_has_no_details(tmp_path: Path, mode: str) -> None:
    async with opened(tmp_path) as core:
        source = _BrokenSource(core)
        async with source.client(LOCAL) as client:
            server = make_server(source, await client.ready(), McpOptions(LOCAL))
        async with host(server, mode, User()) as client:
            failed = await invoke(client, (await handles(client))["pay_back"], amount=20)
            assert failed.is_error
            assert "secret" not in text(failed)
            assert "its log has the reason" in text(failed)


class _NoWindow(User):
    async def answer(self, _context: Any, _params: Any) -> Any:
        return types.ErrorData(code=types.INVALID_REQUEST, message="no window")


async def test_a_host_that_fails_to_show_a_form_is_told_how_to_approve(tmp_path: Path) -> None:
    async with opened(tmp_path) as core, host(await mcp(core), LEGACY, _NoWindow()) as client:
        refused = await invoke(client, (await handles(client))["pay_back"], amount=20)
        assert "manglecp approvals approve ap-" in text(refused)


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_the_user_approves_a_direct_call_with_a_null(tmp_path: Path, mode: str) -> None:
    async with opened(tmp_path) as core, host(await mcp(core, direct="evening"), mode, User([True])) as client:
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert hints["lock_up"] is not None
        assert (hints["lock_up"].destructive_hint, hints["lock_up"].open_world_hint) == (True, True)
        locked = await client.call_tool("lock_up", {"door": None})
        assert locked.structured_content == {"locked": "front"}


async def test_a_form_that_was_shown_before_a_change_of_policy_approves_nothing(tmp_path: Path) -> None:
    yes: Any = {"approval": types.ElicitResult(action="accept", content={"approve": True})}

    async def send(client: Client, state: str | None = None) -> Any:
        handle = (await handles(client))["pay_back"]
        return await client.session.call_tool(
            "invoke",
            {"handle": handle, "args": {"amount": 20}},
            input_responses=None if state is None else yes,
            request_state=state,
            allow_input_required=True,
        )

    async with opened(tmp_path) as core, host(await mcp(core), MODERN, User()) as client:
        asked = await send(client)
    rules = tmp_path / "desk" / "rules" / "policy" / "desk.mg"
    rules.write_text(rules.read_text() + 'needs_approval("pay_back", "manager").\n')
    async with opened(tmp_path) as core:
        for attested in (True, False):
            async with host(await mcp(core, attested=attested), MODERN, User()) as client:
                refused = await send(client, asked.request_state)
                assert refused.is_error
    assert not (tmp_path / "paid").exists()


async def test_direct_mode_lists_what_the_principal_may_use(tmp_path: Path) -> None:
    rules = write_pack(tmp_path) / "rules" / "policy" / "desk.mg"
    rules.write_text(rules.read_text().replace('free("look_up").', 'free("look_up") :- client_permission("manager").'))
    async with opened(tmp_path) as core:
        for permissions, names in ((set(), ["wait_for"]), ({"manager"}, ["look_up", "wait_for"])):
            server = await mcp(core, direct="help", identity=Identity("ann", frozenset(permissions), "user"))
            async with host(server, MODERN) as client:
                listed = await client.list_tools()
                assert [tool.name for tool in listed.tools] == names
                assert (listed.cache_scope, 0 < listed.ttl_ms <= 60_000) == ("private", True)
                if "look_up" in names:
                    assert not (await client.call_tool("look_up", {"order": "A"})).is_error
                else:
                    with pytest.raises(MCPError, match="no tool look_up is offered"):
                        await client.call_tool("look_up", {"order": "A"})


async def test_a_server_that_lists_no_intents_does_not_pretend_that_any_fits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = write_pack(tmp_path) / "pack.toml"
    settings.write_text('[pack]\npermissions = ["manager"]\n')
    async with opened(tmp_path) as core, host(await mcp(core), MODERN) as client:
        assert "not listed by this server, ask the user" in (client.instructions or "")
        assert "list them in pack.toml" in caplog.text
        assert "describes those that are listed" in text(await client.call_tool("declare_intent", {"intent": "any"}))
        assert await handles(client)


async def test_the_model_reads_what_an_intent_reads_and_which_skills_there_are_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as core, host(await mcp(core), MODERN) as client:
        nothing = await client.call_tool("declare_intent", {"intent": "complain", "facts": []})
        assert "It reads the facts complaint" in text(nothing)
        with pytest.raises(MCPError) as refused:
            await client.read_resource("skill://secrets")
        assert refused.value.error.code == types.INVALID_PARAMS


def test_a_rendered_tool_has_values_defaults_and_nested_types() -> None:
    properties = {
        "unit": {"enum": ["C", "F"], "default": "C", "description": "of the result"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "place": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "any": True,
    }
    schema = {"type": "object", "properties": properties, "required": ["days"]}
    definition = messages.MacroTool(macro_id="m-1", name="t", disclosure_level="full", input_schema=schema)
    tool = Tool(definition, messages.IntentPayload(intent=messages.Intent(name="go")))
    place = '{"type":"object","properties":{"lat":{"type":"number"}}}'
    assert list(tool_lines(tool)) == [
        f't(days: array of integer, unit?: "C" | "F" = "C", place?: {place}, any?: any), handle m-1: ',
        "  unit: of the result",
    ]


@contextmanager
def _process(*words: str) -> Iterator[str]:
    """Start ``manglecp`` at a free port, and yield its URL."""
    command = [sys.executable, "-m", "manglecp", *words, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(found[1] for line in process.stderr if (found := re.search(r'serving at ([^\s"]+)', line)))
        finally:
            process.terminate()


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_a_client_of_mcp_at_a_server_of_manglecp(tmp_path: Path, mode: str) -> None:
    pack = write_pack(tmp_path)
    common = ("serve", str(pack), "--degrade", "--store", str(tmp_path / "store"))
    with _process(*common) as url:
        targets: list[Any] = [f"{url}/mcp", f"{url}/", f"{url}/evaluate"]
        targets.append(StdioServerParameters(command=sys.executable, args=["-m", "manglecp", *common, "--stdio"]))
        for target in targets:
            assert "`manglecp mcp serve` serves MCP clients" in await _refusal(target, mode), target
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(f"{url}/mcp", headers={"Accept": "text/html"})
            assert (page.status_code, "the manifest is at" in page.text) == (404, True)


async def _refusal(target: Any, mode: str) -> str:
    try:
        async with Client(target, mode=mode):
            return "connected"
    except Exception as error:  # MCPError, or a group with one
        return _messages(error)


def _messages(error: BaseException) -> str:
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return " ".join([str(error), *map(_messages, inner)])


async def test_other_clients_hosts_and_origins_at_a_server_of_mcp(tmp_path: Path) -> None:
    async with opened(tmp_path) as core:
        guards = Guards("0.0.0.0", origins=["https://page.example"])
        app = http_app(await mcp(core, identity=ANONYMOUS), AuthConfig(), guards, core.request_limits)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://192.0.2.1:8010") as http:
            for path, status in (("/", 404), ("/.well-known/manglecp/manifest.json", 404), ("/mcp", 406)):
                page = await http.get(path, headers={"Accept": "text/html"})
                assert page.status_code == status
                assert "MCP hosts connect to /mcp" in page.json()["error"]["message"]
            assert (await http.post("/mcp", json={}, headers={"Host": "evil.example"})).status_code == 421
            foreign = {"Origin": "http://localhost:3000"}
            assert (await http.post("/mcp", json={}, headers=foreign)).status_code == 403
            asked = {
                "Origin": "https://page.example",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "content-type,mcp-protocol-version",
            }
            preflight = await http.options("/mcp", headers=asked)
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-origin"] == "https://page.example"


async def test_a_client_of_manglecp_at_a_server_of_mcp(tmp_path: Path) -> None:
    pack = write_pack(tmp_path)
    common = ("mcp", "serve", str(pack), "--degrade", "--store", str(tmp_path / "store"))
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("")
    with _process(*common) as url, pytest.raises(ClientError, match="not a MangleCP server"):
        async with OurClient(url):
            pytest.fail("connected")
    command = [sys.executable, "-m", "manglecp", *common]
    with pytest.raises(ClientError, match="none of MangleCP"):
        async with OurClient(command, connect_seconds=3, close_seconds=5):
            pytest.fail("connected")


def test_lines_that_are_no_messages_do_not_end_the_server(tmp_path: Path) -> None:
    pack = write_pack(tmp_path)
    command = [sys.executable, "-m", "manglecp", "mcp", "serve", str(pack), "--degrade", "--store", ":memory:"]
    deep = '{"jsonrpc":"2.0","id":5,"method":"tools/call","params":' + "[" * 100_000 + "]" * 100_000 + "}"
    initialize = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    lines = [
        "nonsense",
        '{"manglecp":"0.1","type":"intent_request","id":"1","payload":{}}',
        "[]",
        deep,
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        answers = {}
        while 2 not in answers:
            answer = json.loads(process.stdout.readline())
            answers[answer.get("id")] = answer
        process.stdin.close()
        assert process.wait(30) == 0
    assert [tool["name"] for tool in answers[2]["result"]["tools"]] == ["declare_intent", "invoke", "explain"]
