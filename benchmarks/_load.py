"""A load generator for HTTP servers, in its own process: raw requests on persistent connections, one at a time on each.

It reads the request from standard input, and writes the latencies and the CPU time of the server to standard output.
The text ``<number>`` in a body is replaced by a counter. Before the measurement each connection sends the opening
requests, and then uses the session id of their responses.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

NUMBER = b"<number>"
LONGEST = 120.0
SESSION = b"mcp-session-id:"


class Target(NamedTuple):
    """The request to send, and the server."""

    port: int
    pid: int
    """The process id of the server."""
    path: str
    body: str
    headers: tuple[str, ...] = ()
    opening: tuple[str, ...] = ()
    """The bodies that open a session."""


class LoadResult(NamedTuple):
    seconds: float
    """From the first request to the last response."""
    cpu: float
    """The CPU time of the server in milliseconds, all threads."""
    latencies: list[float]
    """In milliseconds, sorted."""


def load(target: Target, times: int, connections: int) -> LoadResult:
    """Run the load generator in a new process."""
    order = json.dumps({"target": target, "times": times, "connections": connections})
    done = subprocess.run(
        [sys.executable, __file__], input=order.encode(), stdout=subprocess.PIPE, timeout=LONGEST, check=True
    )
    return LoadResult(*json.loads(done.stdout))


class Connection:
    """A client that waits for each response."""

    def __init__(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        lines = [f"POST {target.path} HTTP/1.1", f"host: 127.0.0.1:{target.port}", "content-type: application/json"]
        self._head = "\r\n".join([*lines, *target.headers, ""]).encode()

    @classmethod
    async def open(cls, target: Target) -> Connection:
        client = cls(target, *await asyncio.open_connection("127.0.0.1", target.port))
        named = client._head
        for body in target.opening:
            head, _ = await client.post(body.encode())
            session = _header(head, SESSION)
            if session is not None:
                client._head = named + SESSION + b" " + session + b"\r\n"
        return client

    async def post(self, body: bytes) -> tuple[bytes, bytes]:
        """Send a request; return the head and the body of the response."""
        self._writer.write(self._head + b"content-length: %d\r\n\r\n" % len(body) + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _header(head, b"content-length:")
        found = await (self._chunks() if length is None else self._reader.readexactly(int(length)))
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"{head!r} {found!r}")
        return head, found

    async def _chunks(self) -> bytes:
        """Read a chunked body: an event stream."""
        found = []
        while length := int(await self._reader.readuntil(b"\r\n"), 16):
            found.append((await self._reader.readexactly(length + 2))[:-2])
        await self._reader.readexactly(2)
        return b"".join(found)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(name):
            return line[len(name) :].strip()
    return None


async def _send(target: Target, times: int, connections: int) -> LoadResult:
    left, latencies = iter(range(times)), list[float]()
    async with asyncio.timeout(LONGEST):
        clients = [await Connection.open(target) for _ in range(connections)]
        start, before = time.perf_counter(), cpu_of(target.pid)
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(_use(client, target.body.encode(), left, latencies))
        took = LoadResult(time.perf_counter() - start, cpu_of(target.pid) - before, sorted(latencies))
        for client in clients:
            await client.close()
    return took


async def _use(client: Connection, template: bytes, left: Iterator[int], latencies: list[float]) -> None:
    for number in left:
        body = template.replace(NUMBER, b"%d" % number)
        start = time.perf_counter()
        await client.post(body)
        latencies.append((time.perf_counter() - start) * 1_000)


def cpu_of(pid: int) -> float:
    """Return the CPU time of a process in milliseconds, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    import uvloop

    order: dict[str, Any] = json.load(sys.stdin)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        target = Target(*order["target"])
        print(json.dumps(runner.run(_send(target, order["times"], order["connections"]))))


if __name__ == "__main__":
    main()
