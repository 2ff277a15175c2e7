"""A host, its configuration and a server for tests of the guard. Hosts, relays and servers are processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Final, Self

from click.testing import CliRunner

from manglecp.cli import cli
from tests.deadlines import patience as deadline

SERVER: Final = Path(__file__).with_name("server.py")
MANGLECP: Final = (sys.executable, "-m", "manglecp")
READ: Final = {"readOnlyHint": True, "openWorldHint": False}
WRITE: Final = {"readOnlyHint": False, "destructiveHint": False}


def tool(name: str, annotations: Mapping[str, Any] | None = None, *params: str, **members: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {param: {} for param in params or ("path",)}}
    hints = {} if annotations is None else {"annotations": dict(annotations)}
    return {"name": name, "description": f"Tool {name}", "inputSchema": schema, **hints, **members}


TOOLS: Final = [
    tool("read", READ),
    tool("fetch", {"readOnlyHint": True}),
    tool("write", WRITE),
    tool("delete", {"readOnlyHint": False}),
    tool("mystery"),
    tool("sleep", READ, "seconds"),
    tool("die", READ),
    tool("big", READ, "size"),
]


class Setup:
    """A folder with a configuration of one server, ``files``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "mcp.json"
        self.state = folder / "state.json"
        self.received = folder / "received.txt"
        self.set_state()
        self.write_config({"files": self.entry()})

    def entry(self) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(SERVER), str(self.state), str(self.received)]}

    def write_config(self, servers: Mapping[str, Any], section: str = "mcpServers") -> None:
        self.config.write_text(json.dumps({section: servers}, indent=2))

    def set_state(self, **state: Any) -> None:
        new = self.state.with_suffix(".new")
        new.write_text(json.dumps({"tools": TOOLS} | state))
        new.replace(self.state)

    def cli(self, *args: str, status: int = 0) -> str:
        """Run a verb in this process and return its output."""
        done = CliRunner().invoke(cli, args)
        shown: str = done.stdout + done.stderr
        assert done.exit_code == status, shown
        return shown

    def install(self, *args: str) -> str:
        shown = self.cli("guard", str(self.config), "--yes", *args)
        self.received.write_text("")  # what the guard itself sent, to pin the tools
        return shown

    def pin(self, *args: str, status: int = 0) -> str:
        shown = self.cli("guard", "pin", str(self.config), *args, status=status)
        kept = [line for line in self.received.read_text().splitlines(keepends=True) if is_call(json.loads(line))]
        self.received.write_text("".join(kept))
        return shown

    def report(self) -> list[dict[str, Any]]:
        document: dict[str, Any] = json.loads(self.cli("guard", "report", str(self.config), "--json"))
        rows: list[dict[str, Any]] = document["calls"]
        return rows

    def verdicts(self) -> dict[str, str]:
        return {row["name"]: row["verdict"] for row in self.report()}

    @property
    def store(self) -> str:
        return str(self.folder / ".manglecp" / "guard.db")

    def approve(self, text: str) -> str:
        """Approve the request that the text of a tool error names."""
        request = approval_id(text)
        self.cli("approvals", "approve", request, "--yes", "--store", self.store)
        return request

    def calls_received(self) -> list[dict[str, Any]]:
        """Return the calls as the server read them."""
        found = []
        for line in self.received.read_text().splitlines() if self.received.exists() else ():
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                found += [m for m in (message if isinstance(message, list) else [message]) if is_call(m)]
        return found

    def lock(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "manglecp.lock").read_text())
        servers: dict[str, Any] = document["configurations"][self.config.name]
        return servers

    def command(self, name: str = "files") -> list[str]:
        document = json.loads(self.config.read_text())
        entry = next(iter(document.values()))[name]
        return [entry["command"], *entry["args"]]

    def host(self, name: str = "files") -> Host:
        """Start the server as the host does."""
        return Host(self.command(name))


def is_call(message: Any) -> bool:
    return isinstance(message, dict) and message.get("method") == "tools/call"


def approval_id(text: str) -> str:
    return next(word for word in text.split() if word.startswith("ap-"))


class Host:
    """A client without an SDK."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._lines: Queue[bytes] = Queue()
        self._errors: list[bytes] = []
        self._threads = [threading.Thread(target=self._read_output), threading.Thread(target=self._read_errors)]
        for thread in self._threads:
            thread.start()
        self._next_id = 0

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> int:
        """Close the input, wait for the end, and return the exit status."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            status = self.process.wait(deadline(20))
        finally:
            self.process.kill()
            for thread in self._threads:
                thread.join()
            assert self.process.stdout is not None
            assert self.process.stderr is not None
            self.process.stdout.close()
            self.process.stderr.close()
        return status

    @property
    def stderr(self) -> str:
        return b"".join(self._errors).decode()

    def send_raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive_raw(self, seconds: float = 20) -> bytes:
        return self._lines.get(timeout=deadline(seconds))

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.receive_raw())
        return message

    def is_silent(self, seconds: float = 0.3) -> bool:
        try:
            self._lines.get(timeout=seconds)
        except Empty:
            return True
        return False

    def send(self, method: str, params: Any = None, request_id: Any = None) -> Any:
        if request_id is None:
            self._next_id += 1
            request_id = self._next_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        self.send_raw(json.dumps(message).encode() + b"\n")
        return request_id

    def request(self, method: str, params: Any = None) -> dict[str, Any]:
        request_id = self.send(method, params)
        response = self.receive()
        assert response["id"] == request_id, response
        return response

    def initialize(self) -> dict[str, Any]:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        return self.request("initialize", params)

    def tools(self) -> list[str]:
        names: list[str] = []
        cursor: dict[str, Any] = {}
        while True:
            result = self.request("tools/list", cursor)["result"]
            names += [tool["name"] for tool in result["tools"]]
            if "nextCursor" not in result:
                return names
            cursor = {"cursor": result["nextCursor"]}

    def call(self, name: str, **args: Any) -> tuple[bool, str]:
        """Return whether the call failed, and the text of its result."""
        result = self.request("tools/call", {"name": name, "arguments": args})["result"]
        return result.get("isError", False), result["content"][0]["text"]
