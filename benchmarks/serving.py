"""``manglecp serve`` in one process: intent evaluations, and invocations beside a server of the MCP SDK.

Both servers are one process; the same load generator, in its own process, uses eight persistent connections with one
pending request each; the rounds alternate, so that other load on the machine affects both; and the tool is the same
function. The work differs, and that is compared: the MCP server calls the function, manglecp proves, isolates and
records the call. The first MCP server runs as ``pip install mcp`` leaves it: uvicorn with h11 on asyncio's event loop.
The others also have uvloop, which this project installs, and httptools, a faster parser that it cannot use safely.

    evaluate same    the recorded request of the incident example, repeated: its offers are already in the store
    evaluate other   the same with a fact that no other request has: its offers are written to the store each time
    invoke           a macro-tool of one action that returns the length of a text: looked up in the store, checked,
                     proven by the rules, executed in its host under a lease, entered in the ledger
    MCP              the same function in a server of the MCP SDK (extra ``mcp``), executed in the server process, with
                     the defaults of the SDK: each client has a session, responses are event streams
    MCP, uvloop      the same with uvloop and httptools
    MCP, JSON        with uvloop and httptools, and the options for speed: no sessions, responses are JSON
    MCP, modern      the same with these options and a request of its protocol of 2026-07-28
    … on stdio       the same on standard streams: one client with eight pending requests

``per second`` is the best of the rounds, with the latencies of that round. ``CPU`` is the time of the server process
for one request without hosts, all threads, the least of the rounds; on a busy machine it is more precise than the rate.
``core`` is an evaluation through the message core alone, sequentially and without HTTP.

Budget: 800 evaluations a second, and 1.3 times the calls of the MCP SDK with its defaults over HTTP, although each call
proves its tool again. The second table compares ``invoke`` with all variants.

On a quiet machine with two cores, in four runs: 991 to 1,015 evaluations a second; 1.30, 1.34, 1.34 and 1.39 times the
calls of the MCP SDK with its defaults, with 0.70 to 0.77 of its CPU time. With much other work on the machine the ratio
was 1.20 to 1.27: it costs manglecp, which has host processes, more than the SDK.

A figure outside of its budget is marked; a slow machine does not fail the benchmark.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from _lines import Lines, on_streams
from _load import NUMBER, LoadResult, Target, load
from _table import print_table

from manglecp.invoke import PackOptions
from manglecp.pack import SandboxPolicy
from manglecp.server import ServerSettings, open_core
from manglecp.store import open_store

INCIDENT = Path(__file__).parents[1] / "examples" / "incident"
RECORDED = json.loads((INCIDENT / "recorded" / "diagnose_error.json").read_bytes())
EVALUATIONS = 800.0
TIMES_MCP = 1.3
CONNECTIONS = 8
TIMES = 600
ROUNDS = 10
PATIENCE = 60.0
CLIENT = {"name": "b", "version": "1"}
WIRE = {"manglecp": "2026-02-draft"}

ACTIONS = '''
from manglecp import action


@action(effects=["none"])
def length(text: str) -> int:
    """How long a text is."""
    return len(text)
'''
RULES = """
macro("length", "How long a text is.").
mandatory("length") :- intent("go").
macro_step("length", 1, "length").
arg_from("length", 1, "text", "text").
"""
MCP_SERVER = '''
import sys

import uvicorn
from mcp.server import MCPServer

server = MCPServer("benchmark", log_level="ERROR")


@server.tool()
def length(text: str) -> int:
    """How long a text is."""
    return len(text)


if sys.argv[1] == "stdio":
    server.run("stdio")
    sys.exit()
options = {"json_response": True, "stateless_http": True} if sys.argv[1] == "fast" else {}
app = server.streamable_http_app(**options)
loop, parser = ("asyncio", "h11") if sys.argv[1] == "default" else ("uvloop", "httptools")
uvicorn.run(app, port=int(sys.argv[2]), loop=loop, http=parser, log_level="error", access_log=False)
'''
SESSIONS = "2025-06-18"
MODERN = "2026-07-28"


# --- servers ----------------------------------------------------------------------------------------------------------


class Server(NamedTuple):
    port: int
    pid: int


@contextmanager
def running(command: Sequence[str], path: str) -> Iterator[Server]:
    """Run a server process that listens on the port at the end of its command."""
    port = int(command[-1].rpartition(":")[2])
    paths = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen([sys.executable, *command], env={**os.environ, "PYTHONPATH": paths}) as process:
        try:
            _wait(process, port, path)
            yield Server(port, process.pid)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ours(pack: Path, store: Path) -> list[str]:
    return [*_serve(pack, store), "--http", f"127.0.0.1:{free_port()}"]


def _serve(pack: Path, store: Path) -> list[str]:
    return ["-m", "manglecp", "serve", str(pack), "--degrade", "--store", str(store), "--log-level", "error"]


def _wait(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    """Wait until the server responds at this path with a status other than 503."""
    until = time.monotonic() + PATIENCE
    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n".encode()
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError("the server did not start")
        try:
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
                peer.sendall(request)
                answer = peer.recv(64)
                if answer and not answer.startswith(b"HTTP/1.1 503"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError("the server is not ready")


# --- requests ---------------------------------------------------------------------------------------------------------


def same() -> str:
    return json.dumps(RECORDED)


def other() -> str:
    """Return the recorded request with another page each time."""
    fact = {"pred": "current_url", "args": [f"https://shop.example/{NUMBER.decode()}"]}
    facts = [one for one in RECORDED["payload"]["facts"] if one["pred"] != "current_url"]
    return json.dumps({**RECORDED, "payload": {**RECORDED["payload"], "facts": [*facts, fact]}})


def invocation(port: int) -> str:
    """Return the invocation of the only offered tool."""
    question = {**WIRE, "type": "intent_request", "id": "i", "payload": {"intent": {"name": "go"}, "facts": []}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/evaluate", json.dumps(question).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        (tool,) = json.load(answer)["payload"]["macro_tools"]
    payload = {"macro_id": tool["macro_id"], "args": {"text": "a"}}
    return json.dumps({**WIRE, "type": "invoke_request", "id": "v", "payload": payload})


def mcp_session(peer: Server) -> Target:
    """Return the request of a client with a session."""
    about = {"protocolVersion": SESSIONS, "clientInfo": CLIENT, "capabilities": {}}
    opening = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    return mcp_call(peer)._replace(opening=tuple(map(json.dumps, opening)))


def mcp_modern(peer: Server) -> Target:
    about = {"protocolVersion": MODERN, "clientInfo": CLIENT, "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
    return mcp_call(peer, MODERN, ("mcp-method: tools/call", "mcp-name: length"), _meta=meta)


def mcp_call(peer: Server, version: str = SESSIONS, headers: tuple[str, ...] = (), **more: Any) -> Target:
    params = {"name": "length", "arguments": {"text": "a"}, **more}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accepted = ("accept: application/json, text/event-stream", f"mcp-protocol-version: {version}")
    return Target(peer.port, peer.pid, "/mcp", json.dumps(body), accepted + headers)


def on_our_streams(stack: ExitStack, pack: Path, store: Path) -> Callable[[int], LoadResult]:
    """Return the load function for an invocation on ``manglecp serve --stdio``."""
    command = [sys.executable, *_serve(pack, store), "--stdio"]
    lines = stack.enter_context(on_streams(command, lambda response: response["type"] == "error"))
    lines.wait_ready()
    lines.send({**WIRE, "type": "intent_request", "id": "i", "payload": {"intent": {"name": "go"}, "facts": []}})
    (tool,) = lines.receive()["payload"]["macro_tools"]
    payload = {"macro_id": tool["macro_id"], "args": {"text": "a"}}
    return _loading(lines, {**WIRE, "type": "invoke_request", "payload": payload})


def on_mcp_streams(stack: ExitStack, script: Path) -> Callable[[int], LoadResult]:
    """Return the load function for a server of the MCP SDK."""
    failed = lambda response: "error" in response or response["result"].get("isError", False)  # noqa: E731
    lines = stack.enter_context(on_streams([sys.executable, str(script), "stdio"], failed))
    about = {"protocolVersion": SESSIONS, "clientInfo": CLIENT, "capabilities": {}}
    lines.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
    lines.receive()
    lines.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    params = {"name": "length", "arguments": {"text": "a"}}
    return _loading(lines, {"jsonrpc": "2.0", "method": "tools/call", "params": params})


def _loading(lines: Lines, message: dict[str, Any]) -> Callable[[int], LoadResult]:
    return lambda times: lines.load(message, times, CONNECTIONS)


# --- measurements -----------------------------------------------------------------------------------------------------


class Figures(NamedTuple):
    rate: float
    middle: float
    """The median latency in milliseconds."""
    late: float
    """The 99th percentile of the latencies in milliseconds."""
    cpu: float


def measured(loads: dict[str, Callable[[int], LoadResult]]) -> dict[str, Figures]:
    """Run all loads alternately for several rounds."""
    found: dict[str, list[Figures]] = {name: [] for name in loads}
    for run in loads.values():
        run(TIMES // 4)  # warm-up
    for _ in range(ROUNDS):
        for name, run in loads.items():
            took = run(TIMES)
            middle, late = took.latencies[TIMES // 2], took.latencies[TIMES * 99 // 100]
            found[name].append(Figures(TIMES / took.seconds, middle, late, took.cpu / TIMES))
    return {name: max(rounds)._replace(cpu=min(one.cpu for one in rounds)) for name, rounds in found.items()}


async def through_the_core(folder: Path) -> float:
    """Return the CPU milliseconds of an evaluation, the least of several rounds."""
    options = PackOptions(INCIDENT, sandbox=SandboxPolicy(degrade=True))
    store = partial(open_store, str(folder / "core.sqlite3"))
    least, body = float("inf"), same().encode()
    async with open_core(options, store, settings=ServerSettings(peer_rate=None)) as core:
        await core.revisions.wait_until_loaded()
        for _ in range(4 * ROUNDS):
            start = time.process_time_ns()
            for _ in range(50):
                reply = await core.session("http", peer="127.0.0.1").handle(body)
                assert reply is not None
                assert reply.status == 200, reply.data
            least = min(least, (time.process_time_ns() - start) / 1e6 / 50)
    return least


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        core = asyncio.run(through_the_core(folder))
        (folder / "pack" / "rules" / "domain").mkdir(parents=True)
        (folder / "pack" / "rules" / "domain" / "length.mg").write_text(RULES)
        (folder / "pack" / "actions.py").write_text(ACTIONS)
        (folder / "server.py").write_text(MCP_SERVER)
        incident = stack.enter_context(running(ours(INCIDENT, folder / "incident.sqlite3"), "/ready"))
        trivial = stack.enter_context(running(ours(folder / "pack", folder / "pack.sqlite3"), "/ready"))
        targets = {
            "evaluate same": Target(*incident, "/evaluate", same()),
            "evaluate other": Target(*incident, "/evaluate", other()),
            "invoke": Target(*trivial, "/invoke", invocation(trivial.port)),
        }
        if importlib.util.find_spec("mcp") is not None:
            default, plain, fast = (
                stack.enter_context(running([str(folder / "server.py"), how, str(free_port())], "/"))
                for how in ("default", "uvloop", "fast")
            )
            targets["MCP"] = mcp_session(default)
            targets["MCP, uvloop"] = mcp_session(plain)
            targets["MCP, JSON"] = mcp_call(fast)
            targets["MCP, modern"] = mcp_modern(fast)
        loads: dict[str, Callable[[int], LoadResult]] = {
            name: partial(load, target, connections=CONNECTIONS) for name, target in targets.items()
        }
        loads["invoke on stdio"] = on_our_streams(stack, folder / "pack", folder / "streams.sqlite3")
        if "MCP" in loads:
            loads["MCP on stdio"] = on_mcp_streams(stack, folder / "server.py")
        found = measured(loads)
    allowed = {"evaluate same": EVALUATIONS}
    if "MCP" in found:
        allowed["invoke"] = TIMES_MCP * found["MCP"].rate
    rows = [["core", "", "", "", f"{core:.3f}", "", ""]]
    for what, one in found.items():
        least = allowed.get(what)
        missed = "MISSED" if least is not None and one.rate < least else ""
        shown = "" if least is None else f"{least:,.0f}"
        rows.append([what, f"{one.rate:,.0f}", f"{one.middle:.2f}", f"{one.late:.2f}", f"{one.cpu:.3f}", shown, missed])
    print_table(["request", "per second", "p50 ms", "p99 ms", "CPU ms", "budget", ""], rows)
    if "MCP" not in found:
        print("\nthe MCP SDK is not installed (make setup-bench)")
        return
    rows = []
    for what, one in found.items():
        if what.startswith("MCP"):
            invoke = found["invoke on stdio" if what.endswith("stdio") else "invoke"]
            rows.append([what, f"{invoke.rate / one.rate:.2f}", f"{invoke.cpu / one.cpu:.2f}"])
    print()
    print_table(["invoke compared with", "ratio of calls", "ratio of CPU"], rows)


if __name__ == "__main__":
    main()
