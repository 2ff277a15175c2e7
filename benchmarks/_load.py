"""Load on an HTTP server, from a process of its own: raw requests on connections that stay open, each answered before
the next. Told on standard input what to send, it says on standard output how long each took.

The text ``<number>`` in a body is another number each time.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

NUMBER = b"<number>"
LONGEST = 120.0


class Target(NamedTuple):
    """What is asked, and where."""

    port: int
    path: str
    body: str
    headers: tuple[str, ...] = ()


class Took(NamedTuple):
    seconds: float
    """From the first request to the last answer."""
    latencies: list[float]
    """Milliseconds, sorted."""


def load(target: Target, times: int, connections: int) -> Took:
    """From another process."""
    told = json.dumps({"target": target, "times": times, "connections": connections})
    done = subprocess.run(
        [sys.executable, __file__], input=told.encode(), stdout=subprocess.PIPE, timeout=LONGEST, check=True
    )
    return Took(*json.loads(done.stdout))


async def _send(target: Target, times: int, connections: int) -> Took:
    left, latencies = iter(range(times)), list[float]()
    start = time.perf_counter()
    async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_connection(target, left, latencies))
    return Took(time.perf_counter() - start, sorted(latencies))


async def _connection(target: Target, left: Iterator[int], latencies: list[float]) -> None:
    lines = [f"POST {target.path} HTTP/1.1", f"host: 127.0.0.1:{target.port}", "content-type: application/json"]
    head = "\r\n".join([*lines, *target.headers, "content-length: "]).encode()
    template = target.body.encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    for number in left:
        body = template.replace(NUMBER, b"%d" % number)
        start = time.perf_counter()
        writer.write(head + b"%d\r\n\r\n" % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        found = await reader.readexactly(int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
        latencies.append((time.perf_counter() - start) * 1_000)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{answer!r} {found!r}")
    writer.close()
    await writer.wait_closed()


def main() -> None:
    import uvloop

    told: dict[str, Any] = json.load(sys.stdin)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        target = Target(*told["target"])
        print(json.dumps(runner.run(_send(target, told["times"], told["connections"]))))


if __name__ == "__main__":
    main()
