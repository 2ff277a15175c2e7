"""What the guard adds to a call of an MCP server on standard streams, with 100 rules of policy.

Client and server have no SDK. Budgets for a call of a reading tool: 0.6 ms more than without the guard at the median,
and 1,500 calls per second. The bare relay decodes every frame and decides nothing. FastMCP's proxy is measured if
`fastmcp` is installed. Times are wall-clock times, the best of several rounds.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _table import print_table

RULES, CALLS, PIPELINED, WINDOW, ROUNDS = 100, 1_000, 6_000, 32, 3
ADDED_MS, PER_SECOND = 0.6, 1_500.0
SERVER = """
import json, sys
tool = {"name": "read", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
        "annotations": {"readOnlyHint": True, "openWorldHint": False}}
info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
results = {"initialize": info, "tools/list": {"tools": [tool]}}
read = {"content": [{"type": "text", "text": "x" * 200}]}
for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message:
        response = {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], read)}
        sys.stdout.buffer.write(json.dumps(response).encode() + b"\\n")
        sys.stdout.buffer.flush()
"""
RELAY = """
import asyncio, sys
from manglecp.guard import run_relay
from manglecp.guard.gate import Admission
class Open:
    enforce = False
    async def admit(self, tool, args): return Admission()
    def list_tools(self, tools, *, is_first_page): return tools
    def report(self, admission, *, failed): pass
    async def close(self): pass
sys.exit(asyncio.run(run_relay(Open(), sys.argv[1:])))
"""
PROXY = """
import sys
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
create_proxy(StdioTransport(sys.argv[1], sys.argv[2:])).run(show_banner=False)
"""


class Client:
    """A client without an SDK."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.number = 0
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        self.send("initialize", params)
        self.receive()
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.send("tools/list", {})
        self.receive()

    def write(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: object) -> None:
        self.number += 1
        self.write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})

    def receive(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        while b'"id"' not in line:  # a notification
            line = self.process.stdout.readline()
        assert b'"error"' not in line
        assert b'"isError": true' not in line

    def call(self) -> None:
        self.send("tools/call", {"name": "read", "arguments": {"path": f"/srv/{self.number}"}})

    def median(self) -> float:
        """Return the median milliseconds of calls one after another."""
        times = []
        for _ in range(CALLS):
            start = time.perf_counter()
            self.call()
            self.receive()
            times.append((time.perf_counter() - start) * 1_000)
        return statistics.median(times)

    def rate(self) -> float:
        """Return the calls per second with a window of open calls."""
        start = time.perf_counter()
        for number in range(PIPELINED + WINDOW):
            if number < PIPELINED:
                self.call()
            if number >= WINDOW:
                self.receive()
        return PIPELINED / (time.perf_counter() - start)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the command of each case, after the guards were set up."""
    server, relay, proxy = (folder / name for name in ("server.py", "relay.py", "proxy.py"))
    for path, text in ((server, SERVER), (relay, RELAY), (proxy, PROXY)):
        path.write_text(text)
    rules = folder / "rules"
    rules.mkdir()
    lines = [
        f'prohibited(T, "path {n}") :- call(T), tool_class(T, "read"), call_arg("path", P),'
        f' :string:starts_with(P, "/etc/{n}").'
        for n in range(RULES)
    ]
    (rules / "own.mg").write_text("\n".join(lines))
    direct = [sys.executable, str(server)]
    found = {"direct": direct, "bare relay": [sys.executable, str(relay), *direct]}
    for case, flag in (("guard, shadow", "--shadow"), ("guard, enforced", "--enforce")):
        config = folder / f"{flag}.json"
        config.write_text(json.dumps({"mcpServers": {"files": {"command": direct[0], "args": direct[1:]}}}))
        guard = [
            sys.executable,
            "-m",
            "manglecp",
            "guard",
            "install",
            str(config),
            "--yes",
            "--rules",
            str(rules),
            flag,
        ]
        subprocess.run(guard, check=True, stdout=subprocess.DEVNULL)
        entry = json.loads(config.read_text())["mcpServers"]["files"]
        found[case] = [entry["command"], *entry["args"]]
    if importlib.util.find_spec("fastmcp"):
        found["FastMCP's proxy"] = [sys.executable, str(proxy), *direct]
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        cases = commands(Path(folder))
        clients = {case: Client(command) for case, command in cases.items()}
        medians = dict.fromkeys(cases, float("inf"))
        rates = dict.fromkeys(cases, 0.0)
        for _ in range(ROUNDS):
            for case, client in clients.items():
                medians[case] = min(medians[case], client.median())
                rates[case] = max(rates[case], client.rate())
        for client in clients.values():
            client.close()
    rows = [
        (case, f"{medians[case]:.2f}", f"{medians[case] - medians['direct']:.2f}", f"{rates[case]:,.0f}")
        for case in cases
    ]
    print_table(("a call of a reading tool", "median ms", "added ms", "calls/s"), rows)
    guards = ("guard, shadow", "guard, enforced")
    is_met = all(medians[c] - medians["direct"] <= ADDED_MS and rates[c] >= PER_SECOND for c in guards)
    print(f"budget: {ADDED_MS} ms added, {PER_SECOND:,.0f} calls/s: {'met' if is_met else 'MISSED'}")
    return not is_met


if __name__ == "__main__":
    sys.exit(main())
