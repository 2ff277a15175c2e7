"""``manglecp mcp serve`` as a process: standard streams and Streamable HTTP, both eras, and the resource server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import mcp_types as types
import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.subscriptions import ToolsListChanged

from manglecp.cli import cli
from manglecp.intent import ANONYMOUS, Identity
from manglecp.mcp_server import http_app
from manglecp.server import AuthConfig, Guards, RequestLimits
from manglecp.server.auth_config import ResourceMetadata
from manglecp.server.config import Rate, ServerSettings
from tests.deadlines import patience
from tests.mcp_server.desk import write_pack
from tests.mcp_server.hosts import LEGACY, MODERN, User, handles, host, invoke, mcp, opened, text

pytestmark = [pytest.mark.process, pytest.mark.socket, pytest.mark.no_cover]


def _words(pack: Path, *options: str) -> list[str]:
    folder = str(pack.parent)
    common = ["--degrade", "--workspace", folder, "--store", f"{folder}/store"]
    return ["-m", "manglecp", "mcp", "serve", str(pack), *common, *options]


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_standard_streams(tmp_path: Path, mode: str) -> None:
    pack = write_pack(tmp_path)
    user = User([True])
    target = StdioServerParameters(command=sys.executable, args=_words(pack))
    async with host(target, mode, user) as client:
        assert client.protocol_version == ("2025-11-25" if mode == LEGACY else "2026-07-28")
        paid = await invoke(client, (await handles(client))["pay_back"], amount=3)
        assert paid.structured_content["result"] == {"paid": 3}
        question = {"question": "why_not", "tool": "count_stock", "intent": "complain"}
        assert "secret" not in text(await client.call_tool("explain", question))  # the reason is not public
    assert "Requested by: local" in user.forms[0]


@contextmanager
def _serving(pack: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a process at a free port, and yield its URL and the process."""
    command = [sys.executable, *_words(pack, "--http", "127.0.0.1:0", *options)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"serving at (\S+)", line):
                    yield found[1], process
                    break
            else:
                raise AssertionError("".join(lines))
        finally:
            process.terminate()
    assert process.returncode in (0, -15)


@asynccontextmanager
async def _connected(url: str, token: str, mode: str, user: User | None = None) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
        yield await stack.enter_async_context(host(streamable_http_client(url, http_client=http), mode, user))


async def test_http_with_tokens_and_two_processes(tmp_path: Path) -> None:
    pack, tokens = write_pack(tmp_path), tmp_path / "tokens.toml"
    tokens.write_text(
        "".join(
            f'[[token]]\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\nidentity = "{name}"\n'
            for name in ("ann", "bob")
        )
    )
    reports: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert (total, message is not None) == (100, True)
        reports.append(progress)

    words = (pack, "--tokens", str(tokens))
    with _serving(*words) as (url, _), _serving(*words) as (other, _):
        async with httpx2.AsyncClient() as http:
            refused = await http.post(url, json={})
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Bearer")
            guess = {"Authorization": "Bearer eve"}
            assert (await http.post(url, json={}, headers=guess)).status_code == 401
            while (await http.post(url, json={}, headers=guess)).status_code != 429:
                pass  # a token of this address is accepted below
            hidden = {"Authorization": "Bearer ann", "Host": "evil.example"}
            assert (await http.post(url, json={}, headers=hidden)).status_code == 421
        assert _list_tools_with_padded_headers(url, "ann") == 200
        async with _connected(url, "ann", MODERN) as client:
            found = await handles(client)
        user = User([True])
        async with _connected(other, "ann", MODERN, user) as client:  # another replica
            assert not (await invoke(client, found["pay_back"], amount=9)).is_error
            (tmp_path / "gate").touch()
            arguments = {"handle": found["wait_for"], "args": {"gate": str(tmp_path / "gate")}}
            await client.call_tool("invoke", arguments, progress_callback=note)
        assert "Requested by: ann" in user.forms[0]
        assert reports
        async with _connected(url, "bob", MODERN) as client:  # the handles are those of ann
            assert "Declare the intent again" in text(await invoke(client, found["look_up"], order="A"))
        async with _connected(url, "ann", LEGACY, User()) as client:  # without sessions there is no way to ask
            assert not (await invoke(client, found["look_up"], order="A")).is_error
            unapproved = text(await invoke(client, found["pay_back"], amount=1))
            assert "manglecp approvals approve" in unapproved
            assert str(tmp_path) not in unapproved  # where the store is concerns the operator
    assert (tmp_path / "paid").read_text() == "9\n"


def _list_tools_with_padded_headers(url: str, token: str) -> int:
    meta = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}
    params = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}}
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": " tools/list  ",
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
    with closing(HTTPConnection(urlsplit(url).netloc)) as connection:  # httpx2 would remove the spaces
        connection.request("POST", urlsplit(url).path, body, headers)
        return connection.getresponse().status


class _Badges:
    required, schemes, token_url = True, ("oauth2",), None

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        return Identity("ann", frozenset(), "user") if (scheme, credential) == ("oauth2", "jwt") else None


EXTERNALS = """
from pathlib import Path
from manglecp import external


@external("is_open(Desk)", mode="+", deterministic=False)
def is_open(desk):
    return [()] if Path(__file__).with_name("open").exists() else []
"""
DESK_HOURS = """
Decl is_open(Desk) descr [external(), mode("+")] bound [/string].
mandatory("close_desk") :- intent("help"), is_open("desk").
valid_for("look_up", fn:duration:parse("1s")) :- intent("help").
"""


async def test_a_subscriber_learns_that_its_tools_changed(tmp_path: Path) -> None:
    pack = write_pack(tmp_path)
    (pack / "externals.py").write_text(EXTERNALS)
    (pack / "rules" / "hours.mg").write_text(DESK_HOURS)
    (pack / "open").touch()
    with _serving(pack, "--direct", "help") as (url, process):
        async with Client(url) as client, client.listen(tools_list_changed=True) as changes:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == ["close_desk", "look_up", "wait_for"]
            assert listed.ttl_ms <= 1_000
            (pack / "open").unlink()
            async with asyncio.timeout(patience(60)):
                assert await anext(changes) == ToolsListChanged()
            assert [tool.name for tool in (await client.list_tools()).tools] == ["look_up", "wait_for"]
            process.terminate()
            async with asyncio.timeout(patience(20)):  # the server ends subscriptions, and does not wait for clients
                assert [change async for change in changes] == []


async def test_a_resource_server_names_its_issuer(tmp_path: Path) -> None:
    url = "https://tools.example/.well-known/oauth-protected-resource/mcp"
    auth = AuthConfig(_Badges(), ResourceMetadata(url, b'{"resource":"https://tools.example/mcp"}'))
    async with opened(tmp_path) as core:
        guards = Guards(hosts=["tools.example"], auth_required=True)
        app = http_app(await mcp(core, identity=ANONYMOUS), auth, guards, core.request_limits)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="https://tools.example") as http:
            refused = await http.post("/mcp", json={})
            assert f'resource_metadata="{url}"' in refused.headers["www-authenticate"]
            assert (await http.get(url)).json() == {"resource": "https://tools.example/mcp"}


async def test_invalid_tokens_are_limited_by_address(tmp_path: Path) -> None:
    limits = RequestLimits(ServerSettings(attempt_rate=Rate(1, 3)), clock=lambda: 0.0)
    async with opened(tmp_path) as core:
        app = http_app(await mcp(core, identity=ANONYMOUS), AuthConfig(_Badges()), Guards(auth_required=True), limits)

        async def post(address: str, token: str | None) -> httpx2.Response:
            transport = httpx2.ASGITransport(app, client=(address, 1))
            headers = {} if token is None else {"Authorization": token}
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                return await http.post("/mcp", json={}, headers=headers)

        guesses = [(await post("192.0.2.1", f"Bearer guess-{number}")).status_code for number in range(4)]
        assert guesses == [401, 401, 401, 429]
        refused = await post("192.0.2.1", "Basic guess")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "Too many invalid credentials" in refused.text
        assert (await post("192.0.2.1", None)).status_code == 401
        assert (await post("192.0.2.2", "Bearer guess")).status_code == 401


async def test_a_server_elsewhere(tmp_path: Path) -> None:
    pack = write_pack(tmp_path)
    options = ["--degrade", "--workspace", str(tmp_path), "--store", str(tmp_path / "store")]
    command = [sys.executable, "-m", "manglecp", "serve", str(pack), "--http", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = next(found[1] for line in process.stderr if (found := re.search(r'serving at ([^\s"]+)', line)))
        words = ["-m", "manglecp", "mcp", "serve", url]
        async with Client(StdioServerParameters(command=sys.executable, args=words)) as client:
            tools = await handles(client)
            assert not (await invoke(client, tools["look_up"], order="A")).is_error
            refused = await invoke(client, tools["pay_back"], amount=1)
            assert f"--server {url}" in text(refused)
            why = await client.call_tool("explain", {"question": "why", "handle": tools["look_up"]})
            assert isinstance(why, types.CallToolResult)
            assert not why.is_error
            process.kill()
            process.wait()
            lost = await invoke(client, tools["look_up"], order="A")
            assert "check that before you repeat it" in text(lost)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["http://127.0.0.1:1", "--http", ":0"], "leave --http out"),
        (["PACK", "--tokens", "TOKENS"], "credentials are for --http"),
        (["PACK", "--http", "0.0.0.0:0"], "no credential is required"),
        (["PACK", "--token", "x"], "leave --token out"),
        (["PACK", "--http", ":0", "--permission", "refund"], "leave --as and --permission out"),
        (["PACK", "--http", ":0", "--as", "ann"], "leave --as and --permission out"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: list[str], expected: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch()
    names = {"PACK": str(write_pack(tmp_path)), "TOKENS": str(tokens)}
    result = CliRunner().invoke(cli, ["mcp", "serve", *(names.get(word, word) for word in options)])
    assert result.exit_code == 2
    assert expected in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["PACK", "--degrade", "--store", ":memory:", "--direct", "hepl"], "Did you mean 'help'?"),
        (["http://127.0.0.1:1"], "refuses connections"),
    ],
)
def test_what_cannot_be_served_is_an_error_at_the_start(tmp_path: Path, words: list[str], expected: str) -> None:
    pack = str(write_pack(tmp_path))
    command = [sys.executable, "-m", "manglecp", "mcp", "serve", *(pack if word == "PACK" else word for word in words)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("manglecp.mcp_server.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("anyio", "mcp", "mcp_types"):
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(cli, ["mcp", "serve", str(write_pack(tmp_path)), "--degrade", "--store", ":memory:"])
    assert result.exit_code == 1
    assert "it belongs to the extra 'mcp'" in result.output
