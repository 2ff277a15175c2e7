"""What the guard adds to a call of an MCP server on standard streams, with 100 rules of policy.

Client and server have no SDK. Budgets for a call of a reading tool: 0.6 ms more than without the guard at the median,
and 1,500 calls per second. The bare relay decodes every frame and decides nothing. Two other products are measured if
they are installed: FastMCP's proxy (`fastmcp`), and `ctrlrun gateway` (`ctrlrun[gateway]`; its command is looked for on
the PATH). The gateway speaks only HTTP, so that it is compared with the same server over HTTP. Times are wall-clock
times, the best of several rounds.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from _table import print_table

RULES, CALLS, PIPELINED, WINDOW, ROUNDS = 100, 1_000, 6_000, 32, 3
HTTP_CALLS, HTTP_CONNECTIONS = 50, 4
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
    def result_filter(self, request): return None
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
HTTP = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        response = {"jsonrpc": "2.0", "id": message.get("id"), "result": results.get(message["method"], read)}
        body = json.dumps(response).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
CTRLRUN = """
schema: ctrlrun.policy/v2
actions:
  mcp.files.read:
    effect: "read:{path}"
    rules:
      - decision: allow
"""
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-11-25",
}


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


class HttpClient:
    """A client of an endpoint, with one connection per thread."""

    def __init__(self, port: int, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.port, self.processes = port, processes
        self.numbers = itertools.count()
        self.local = threading.local()
        deadline = time.monotonic() + 30
        while True:
            try:
                self.call()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def call(self, _: int = 0) -> float:
        """Make a call; return its milliseconds."""
        connection = getattr(self.local, "connection", None) or HTTPConnection("127.0.0.1", self.port, timeout=60)
        number = next(self.numbers)
        params = {"name": "read", "arguments": {"path": f"/srv/{number}"}}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        start = time.perf_counter()
        connection.request("POST", "/mcp", body, HEADERS)
        response = connection.getresponse().read()
        assert b'"content"' in response, response
        self.local.connection = connection
        return (time.perf_counter() - start) * 1_000

    def median(self) -> float:
        return statistics.median(map(self.call, range(HTTP_CALLS)))

    def rate(self) -> float:
        start = time.perf_counter()
        with ThreadPoolExecutor(HTTP_CONNECTIONS) as pool:
            list(pool.map(self.call, range(HTTP_CALLS)))
        return HTTP_CALLS / (time.perf_counter() - start)

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
            process.wait(30)


def http_clients(folder: Path) -> dict[str, HttpClient]:
    """Return the server over HTTP, and the gateway in front of it, if that is installed."""
    gateway = shutil.which("ctrlrun")
    if gateway is None:
        return {}
    program = folder / "http_server.py"
    program.write_text(SERVER.partition("for line")[0] + HTTP)
    (folder / "ctrlrun.yaml").write_text(CTRLRUN)
    ports = free_port(), free_port()
    server = subprocess.Popen([sys.executable, str(program), str(ports[0])])
    found = {"HTTP, direct": HttpClient(ports[0], [server])}
    names = ["--upstream", f"http://127.0.0.1:{ports[0]}/mcp", "--alias", "files", "--principal", "agent"]
    command = [gateway, "gateway", *names, "--listen", f"127.0.0.1:{ports[1]}"]
    started = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return found | {"HTTP, ctrlrun gateway": HttpClient(ports[1], [started])}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


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
        clients: dict[str, Client | HttpClient] = {case: Client(command) for case, command in cases.items()}
        clients |= http_clients(Path(folder))
        medians = dict.fromkeys(clients, float("inf"))
        rates = dict.fromkeys(clients, 0.0)
        try:
            for _ in range(ROUNDS):
                for case, client in clients.items():
                    medians[case] = min(medians[case], client.median())
                    rates[case] = max(rates[case], client.rate())
        finally:
            for client in clients.values():
                client.close()
    rows = []
    for case, median in medians.items():
        added = median - medians["HTTP, direct" if case.startswith("HTTP") else "direct"]
        rows.append((case, f"{median:.2f}", f"{added:.2f}", f"{rates[case]:,.0f}"))
    print_table(("a call of a reading tool", "median ms", "added ms", "calls/s"), rows)
    guards = ("guard, shadow", "guard, enforced")
    is_met = all(medians[c] - medians["direct"] <= ADDED_MS and rates[c] >= PER_SECOND for c in guards)
    print(f"budget: {ADDED_MS} ms added, {PER_SECOND:,.0f} calls/s: {'met' if is_met else 'MISSED'}")
    return not is_met


if __name__ == "__main__":
    sys.exit(main())
