"""Intent evaluations per second: through the message core, and over HTTP against ``manglecp serve``, in one process.

The pack is the incident example with its recorded question, the store a file. Budget: at least 800 evaluations a second
over HTTP. Two kinds of questions:

    same     one client that asks the same again: its tools are kept already
    other    every question is a new one, with a fact that no other has: its tools are written to the store each time

``CPU`` is the time of the serving process, all threads, for one evaluation; on a busy machine it says more than the
rate. Over HTTP the load comes from this process, on connections that stay open, so that both share the processors.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from _table import print_table

from manglecp.server.assembly import Source, open_core
from manglecp.server.settings import ServerSettings

INCIDENT = Path(__file__).parents[1] / "examples" / "incident"
RECORDED = json.loads((INCIDENT / "recorded" / "diagnose_error.json").read_bytes())
BUDGET = 800.0
CONNECTIONS = 8
TIMES = 2_000
BATCH = 50
PATIENCE = 60.0


def same() -> Callable[[], bytes]:
    body = json.dumps(RECORDED).encode()
    return lambda: body


def other() -> Callable[[], bytes]:
    """The recorded question on another page each time."""
    numbers = itertools.count()

    def body() -> bytes:
        fact = {"pred": "current_url", "args": [f"https://shop.example/{next(numbers)}"]}
        facts = [one for one in RECORDED["payload"]["facts"] if one["pred"] != "current_url"]
        return json.dumps({**RECORDED, "payload": {**RECORDED["payload"], "facts": [*facts, fact]}}).encode()

    return body


KINDS = {"same": same, "other": other}

# --- the core ---------------------------------------------------------------------------------------------------------


async def through_the_core(folder: Path) -> list[list[str]]:
    """One after the other; the CPU time of batches, so that threads are counted that lag behind."""
    rows = []
    source = Source(folder=INCIDENT, where=str(folder / "core.sqlite3"), degrade=True)
    async with open_core(source, settings=ServerSettings(peer_rate=None)) as core:
        await core.serving.ready()
        for kind, make in KINDS.items():
            body, times = make(), []
            for _ in range(TIMES // BATCH):
                start = time.process_time_ns()
                for _ in range(BATCH):
                    reply = await core.session("http", peer="127.0.0.1").handle(body())
                    assert reply is not None
                    assert reply.status == 200, reply.data
                times.append((time.process_time_ns() - start) / 1e6 / BATCH)
            rows.append(["core", kind, f"{min(times):.3f}", f"{statistics.median(times):.3f}", ""])
    return rows


# --- HTTP -------------------------------------------------------------------------------------------------------------


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """A server of its own process: its port, and the id of the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "manglecp", "serve", str(INCIDENT), "--http", f"127.0.0.1:{port}", "--degrade"]
    command += ["--store", str(folder / "http.sqlite3"), "--log-level", "error"]
    process = subprocess.Popen(command)
    try:
        _wait(process, port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert process.poll() is None, "the server did not start"
        try:
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.sendall(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                if peer.recv(64).startswith(b"HTTP/1.1 200"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError("the server is not ready")


async def _client(port: int, body: Callable[[], bytes], left: Iterator[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in left:
        data = body()
        head = f"POST /evaluate HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(data) + data)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        await reader.readexactly(int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
    writer.close()
    await writer.wait_closed()


async def _load(port: int, make: Callable[[], Callable[[], bytes]], times: int) -> float:
    """Seconds that so many evaluations take."""
    body, left = make(), iter(range(times))
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(_client(port, body, left))
    return time.perf_counter() - start


def _cpu(pid: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def over_http(folder: Path) -> tuple[list[list[str]], bool]:
    import uvloop

    rows, kept = [], True
    with served(folder) as (port, pid), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for kind, make in KINDS.items():
            runner.run(_load(port, make, TIMES // 10))  # warm
            before, costs, rates = _cpu(pid), [], []
            for _ in range(4):
                rates.append(TIMES / 4 / runner.run(_load(port, make, TIMES // 4)))
                after = _cpu(pid)
                costs.append((after - before) / (TIMES / 4) * 1e3)
                before = after
            rows.append(["HTTP", kind, f"{min(costs):.3f}", f"{statistics.median(costs):.3f}", f"{max(rates):,.0f}"])
            kept = kept and (kind != "same" or max(rates) >= BUDGET)
    return rows, kept


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(through_the_core(Path(folder)))
        http, kept = over_http(Path(folder))
    print_table(["through", "questions", "CPU ms least", "CPU ms median", "best per second"], rows + http)
    if not kept:
        print(f"\nunder budget: {BUDGET:,.0f} evaluations a second over HTTP")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
