"""Trace one warm request of each kind through a server, and print how much code it executes.

    .venv/bin/python -m tools.trace_request            a table for the architecture page
    .venv/bin/python -m tools.trace_request --path     the files of a read-only call, in the order of first use

A server with a pack of two actions runs in this process behind uvicorn; a client in another thread sends each request
over a socket until it is warm, and then a few times under ``sys.setprofile``; the shortest trace counts, because the
others have the work of timers. ``base`` is not counted, and neither is the resumption of a coroutine: the profiler
reports it like a call. Each call proves its tool, which is an evaluation of the rules; a row of its own shows the call
without it.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

import manglecp
from manglecp import Server
from manglecp.intent.decision import decide
from manglecp.wire.messages import VERSION

ROOT = str(Path(manglecp.__file__).parent) + "/"
WARM = 5
TRACES = 5
ACTIONS = """
from pathlib import Path

from manglecp import action


@action(effects=["none"])
def find_order(order: str) -> int:
    return 20


@action(effects=["filesystem"])
def refund(order: str, amount: int) -> str:
    with Path("refunds.txt").open("a") as book:
        book.write(f"{order} {amount}\\n")
    return order
"""
RULES = """
macro("look_up", "Returns what was paid for an order.").
macro_step("look_up", 1, "find_order").
mandatory("look_up") :- intent("help").

macro("pay_back", "Refunds an order.").
macro_step("pay_back", 1, "refund").
mandatory("pay_back") :- intent("help").
"""


@dataclass
class Trace:
    """The functions of manglecp that were called, in order, as file and name. ``base`` is left out."""

    active: bool = False
    calls: list[tuple[str, str]] = field(default_factory=list)
    in_proof: list[bool] = field(default_factory=list)
    """Of each call: whether the proof of the tool made it."""
    frames: set[FrameType] = field(default_factory=set)
    proof: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "return" and frame is self.proof:
            self.proof = None
        elif event == "call" and code is decide.__code__:
            self.proof = frame
        if self.active and event == "call" and code.co_filename.startswith(ROOT) and frame not in self.frames:
            self.frames.add(frame)  # kept, so that no other frame gets its identity
            file = code.co_filename.removeprefix(ROOT)
            if not file.startswith(("base/", "__init__")):
                self.calls.append((file, code.co_qualname))
                self.in_proof.append(self.proof is not None)


def format_row(name: str, calls: Sequence[tuple[str, str]]) -> str:
    """Return a row of the table."""
    packages = [file.partition("/")[0] for file, _ in calls]
    changes = sum(one != other for one, other in pairwise(packages))
    files = len({file for file, _ in calls})
    return f"| {name} | {len(calls)} | {len(set(calls))} | {files} | {len(set(packages))} | {changes} |"


class Caller:
    """A client that sends plain requests from a thread of its own."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def post(self, path: str, type_: str, payload: Mapping[str, Any]) -> Any:
        """Return the payload of the response."""
        body = {"manglecp": VERSION, "id": "t", "type": type_, "payload": payload}
        self._connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = json.loads(self._connection.getresponse().read())
        if response["type"] == "error":
            raise SystemExit(f"{path}: {response['payload']}")
        return response["payload"]


def trace_requests(port: int, trace: Trace) -> dict[str, list[tuple[str, str]]]:
    """Send each kind of request until it is warm, trace one more, and return the calls by kind."""
    caller = Caller(port)
    intent = partial(caller.post, "/evaluate", "intent_request", {"intent": {"name": "help"}, "facts": []})
    tools = {tool["name"]: tool["macro_id"] for tool in intent()["macro_tools"]}

    def invoke(tool: str, args: Mapping[str, Any]) -> Callable[[], Any]:
        return partial(caller.post, "/invoke", "invoke_request", {"macro_id": tools[tool], "args": args})

    requests: dict[str, Callable[[], Any]] = {
        "intent": intent,
        "call, read-only": invoke("look_up", {"order": "A-1"}),
        "call with an effect": invoke("pay_back", {"order": "A-1", "amount": 1}),
    }
    traced = {}
    for name, send in requests.items():
        for _ in range(WARM):
            send()
        traces = []
        for _ in range(TRACES):
            time.sleep(0.2)  # background work of the last request ends
            trace.calls, trace.in_proof, trace.frames, trace.active = [], [], set(), True
            send()
            time.sleep(0.05)
            trace.active = False
            traces.append((trace.calls, trace.in_proof))
        calls, in_proof = min(traces, key=lambda one: len(one[0]))
        traced[name] = calls
        if any(in_proof):
            rest = zip(calls, in_proof, strict=True)
            traced[f"{name}, without its proof"] = [call for call, proves in rest if not proves]
    return traced


async def serve(folder: Path, trace: Trace) -> dict[str, list[tuple[str, str]]]:
    """Serve the pack on a free port and trace requests to it."""
    (folder / "pack" / "rules").mkdir(parents=True)
    (folder / "pack" / "actions.py").write_text(ACTIONS)
    (folder / "pack" / "rules" / "desk.mg").write_text(RULES)
    (folder / "book").mkdir()
    store = f"{folder}/store.db"
    async with Server(folder / "pack", store=store, workspace=[folder / "book"]) as server:
        web = uvicorn.Server(uvicorn.Config(server.app(), port=0, log_level="warning"))
        serving = asyncio.create_task(web.serve())
        while not web.started:
            await asyncio.sleep(0.01)
        port = web.servers[0].sockets[0].getsockname()[1]
        traced = await asyncio.to_thread(trace_requests, port, trace)
        web.should_exit = True
        await serving
    return traced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", action="store_true", help="list the files of a read-only call")
    options = parser.parse_args()
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    with tempfile.TemporaryDirectory() as folder:
        traced = asyncio.run(serve(Path(folder), trace))
    sys.setprofile(None)
    if options.path:
        print("\n".join(dict.fromkeys(file for file, _ in traced["call, read-only"])))
        return
    print("| warm request | calls | functions | files | packages | package changes |\n|---|--:|--:|--:|--:|--:|")
    for name, calls in traced.items():
        print(format_row(name, calls))


if __name__ == "__main__":
    main()
