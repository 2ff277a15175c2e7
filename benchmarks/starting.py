"""The time from the start of a process to its first output line.

Budgets: help within 200 ms, the first manifest over stdio within 300 ms. That manifest has the status ``booting`` and
is sent before the pack is loaded; ``ready`` is the next manifest, when the hosts of the pack have started.

For comparison: an interpreter without imports, and a stdio server of the MCP SDK (extra ``mcp``) with one function,
until its response to ``initialize``.

The figures are medians of several rounds, each of which starts every program once. Bytecode is written before the first
round, as an installation does. CPU is the time of the process up to that line, all threads. Budgets are compared with
the least time, because other load on the machine affects the median.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from _table import print_table

INCIDENT = Path(__file__).parents[1] / "examples" / "incident"
ROUNDS = 15
PATIENCE = 60.0
MCP_SERVER = '''
from mcp.server import MCPServer

server = MCPServer("benchmark")


@server.tool()
def length(text: str) -> int:
    """How long a text is."""
    return len(text)


server.run()
'''
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "benchmark", "version": "1"},
    },
}


class Program(NamedTuple):
    lines: tuple[str, ...]
    """A name for each measured output line."""
    arguments: list[str]
    stdin: bytes = b""
    budgets: tuple[float | None, ...] = (None,)
    """The budget for each line in milliseconds."""


class Figures(NamedTuple):
    wall: float
    cpu: float


def programs(folder: Path) -> list[Program]:
    serve = ["-m", "manglecp", "serve", str(INCIDENT), "--stdio", "--degrade", "--log-level", "error"]
    found = [
        Program(("an interpreter",), ["-c", "print()"]),
        Program(("manglecp --help",), ["-m", "manglecp", "--help"], budgets=(200.0,)),
        Program(
            ("manglecp serve: first manifest", "manglecp serve: ready"),
            [*serve, "--store", str(folder / "store.sqlite3")],
            budgets=(300.0, None),
        ),
    ]
    if importlib.util.find_spec("mcp") is not None:
        server = folder / "server.py"
        server.write_text(MCP_SERVER)
        found.append(Program(("MCP SDK: initialize",), [str(server)], json.dumps(INITIALIZE).encode() + b"\n"))
    return found


def started(program: Program, environment: dict[str, str]) -> list[Figures]:
    """Return the figures of each output line."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *program.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    clock = (~process.pid << 3) | 2  # the id of the CPU clock of another process on Linux
    with process.stdin as stdin, process.stdout as stdout:
        if program.stdin:
            stdin.write(program.stdin)
            stdin.flush()
        found = []
        for what in program.lines:
            assert stdout.readline(), f"{what}: no output"
            found.append(Figures(time.perf_counter() - begun, time.clock_gettime(clock)))
        stdin.close()
        stdout.read()
    process.wait(PATIENCE)
    return found


def main() -> int:
    rows, kept = [], True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        all_of_them = programs(folder)
        for program in all_of_them:
            started(program, environment)
        rounds = [[started(program, environment) for program in all_of_them] for _ in range(ROUNDS)]
        for program, times in zip(all_of_them, zip(*rounds, strict=True), strict=True):
            for what, budget, line in zip(program.lines, program.budgets, zip(*times, strict=True), strict=True):
                wall = statistics.median(one.wall for one in line) * 1e3
                cpu = statistics.median(one.cpu for one in line) * 1e3
                least = min(one.wall for one in line) * 1e3
                rows.append(
                    [what, f"{wall:.0f}", f"{least:.0f}", f"{cpu:.0f}", "" if budget is None else f"{budget:.0f}"]
                )
                kept = kept and (budget is None or least <= budget)
    print_table([f"median of {ROUNDS}", "ms", "least ms", "CPU ms", "budget"], rows)
    if importlib.util.find_spec("mcp") is None:
        print("\nthe MCP SDK is not installed")
    if not kept:
        print("\nover budget")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
