"""The newest clients of MCP at ``manglecp mcp serve``: the SDK, FastMCP and the Inspector's CLI. `make interop`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deadlines import patience
from tests.interop.install import FOLDER, NODE_BIN, node_path
from tests.interop.servers import mcp_serve, serving
from tests.mcp_server.desk import write_pack

pytestmark = pytest.mark.soak

PROGRAM: Final = Path(__file__).with_name("client_program.py")
TOOLS: Final = ["declare_intent", "invoke", "explain"]
FACT: Final = 'complaint("A-1")'
DECLARE: Final[tuple[str, dict[str, Any]]] = ("declare_intent", {"intent": "help", "facts": [FACT]})
INSPECTOR: Final = NODE_BIN / "mcp-inspector"


@contextmanager
def served(folder: Path, transport: str) -> Iterator[dict[str, Any]]:
    """Serve the pack, and yield where: a command, or a URL and a token."""
    pack = write_pack(folder)
    if transport == "stdio":
        yield {"command": mcp_serve(pack, folder)}
        return
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[[token]]\nsha256 = "{hashlib.sha256(b"secret-of-ann").hexdigest()}"\nidentity = "ann"\n')
    command = mcp_serve(pack, folder, "--http", "127.0.0.1:0", "--tokens", str(tokens))
    with serving(command, folder / "server.log") as url:
        yield {"url": url, "token": "secret-of-ann"}


def approve(text: str, folder: Path) -> None:
    """Approve the request that a text names, as its user is told to."""
    (request,) = re.findall(r"manglecp approvals approve (ap-\w+)", text)
    store = ["--yes", "--store", str(folder / "store")]
    command = [sys.executable, "-m", "manglecp", "approvals", "approve", request, *store]
    subprocess.run(command, check=True, capture_output=True, timeout=patience(60))


def paid(folder: Path) -> list[str]:
    file = folder / "paid"
    return file.read_text().split() if file.exists() else []


def pay(amount: int) -> tuple[str, dict[str, Any]]:
    return "invoke", {"handle": "pay_back", "args": {"amount": amount}}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("sdk", ["mcp", "fastmcp"])
def test_a_client_finds_and_calls_tools(sdk: str, transport: str, mode: str, tmp_path: Path) -> None:
    python = FOLDER / sdk / "bin" / "python"
    assert python.exists(), "run `make interop`, which installs the clients"
    calls: list[tuple[str, dict[str, Any]]] = [
        DECLARE,
        ("invoke", {"handle": "look_up", "args": {"order": "A-1"}}),
        pay(7),
        pay(8),
        pay(200),
        ("invoke", {"handle": "look_up", "args": {"order": 1}}),
        ("declare_intent", {"intent": "hlep"}),
    ]

    def run(target: dict[str, Any], *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        task = json.dumps(target | {"calls": calls, "decisions": [True, False]})
        command = [str(python), str(PROGRAM), sdk, mode, task]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(120))
        assert done.returncode == 0, done.stderr
        received: dict[str, Any] = json.loads(done.stdout)
        return received

    with served(tmp_path, transport) as target:
        received = run(target, *calls)
        assert received["tools"] == TOOLS
        assert received["version"] == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        declared, looked_up, first, second, denied, wrong, misspelt = received["results"]
        assert "pay_back(amount: integer)" in declared["text"]
        assert looked_up["content"]["result"] == {"order": "A-1", "depth": 1}
        assert [result["failed"] for result in (denied, wrong, misspelt)] == [True] * 3
        assert "amount of at most 100" in denied["text"]
        assert "/order" in wrong["text"]
        assert "Did you mean 'help'?" in misspelt["text"]
        if (transport, mode) == ("http", "legacy"):  # there is no session, and so no way to ask the user
            assert received["forms"] == []
            assert first["failed"]
            approve(first["text"], tmp_path)
            (_, repeated) = run(target, DECLARE, pay(7))["results"]
            assert repeated["content"]["result"] == {"paid": 7}
        else:
            assert [re.findall(r'"amount":(\d+)', form) for form in received["forms"]] == [["7"], ["8"]]
            assert first["content"]["result"] == {"paid": 7}
            assert "declined" in second["text"]
    assert paid(tmp_path) == ["7"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector(transport: str, era: str, tmp_path: Path) -> None:
    assert INSPECTOR.exists(), "run `make interop`, which installs the Inspector"

    def inspect(target: dict[str, Any], method: str, tool: str = "", status: int = 0, **arguments: Any) -> Any:
        """Return the result; a schema that some clients cannot use fails the test."""
        if "command" in target:
            command = target["command"]
        else:
            command = ["--server-url", target["url"], "--transport", "http"]
            command += ["--header", f"Authorization: Bearer {target['token']}"]
        called = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)] if tool else ["--strict"]
        options = ["--protocol-era", era, "--format", "json", "--method", method, *called]
        done = subprocess.run(
            [str(INSPECTOR), "--cli", *command, *options],
            env={**os.environ, "PATH": node_path(), "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(120),
        )
        assert done.returncode == status, done.stderr
        assert "Issue:" not in done.stderr
        return json.loads(done.stdout)["result"]

    tool_error = 5
    with served(tmp_path, transport) as target:
        assert [tool["name"] for tool in inspect(target, "tools/list")["tools"]] == TOOLS
        declared = inspect(target, "tools/call", "declare_intent", intent="help", facts=[FACT])
        handles = {tool["name"]: tool["handle"] for tool in declared["structuredContent"]["tools"]}
        looked_up = inspect(target, "tools/call", "invoke", handle=handles["look_up"], args={"order": "A-1"})
        assert looked_up["structuredContent"]["result"] == {"order": "A-1", "depth": 1}
        payment = {"handle": handles["pay_back"], "args": {"amount": 7}}
        refused = inspect(target, "tools/call", "invoke", tool_error, **payment)
        approve(refused["content"][0]["text"], tmp_path)
        repeated = inspect(target, "tools/call", "invoke", **payment)
        assert repeated["structuredContent"]["result"] == {"paid": 7}
        payment["args"] = {"amount": 200}
        denied = inspect(target, "tools/call", "invoke", tool_error, **payment)
        assert "amount of at most 100" in denied["content"][0]["text"]
    assert paid(tmp_path) == ["7"]
