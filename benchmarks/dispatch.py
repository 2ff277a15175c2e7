"""Calls through a dispatcher to one warm host: round trip, concurrent calls, and bytes, wall time on a shared machine.

Each call is looked up, validated against its schema, executed under a lease and reported to an auditor. Calls above
tier 0 have an authorisation that was created before; ``harness.py`` measures its cost. For comparison, the same two
functions run in a stdio server of the MCP SDK (extra ``mcp``) with its own client, without leases, state or an auditor.

A figure outside of its budget is marked; a slow machine does not fail the benchmark.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from _table import print_table
from _turns import ServerTurn

from manglecp.base.digest import digest_bytes
from manglecp.toolhost import ActionResult, Dispatcher
from manglecp.toolhost.dispatch.catalogue import Listing, list_plugin
from manglecp.toolhost.dispatch.dispatcher import ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand

PLUGIN = '''
from manglecp.toolhost.actions import action


@action(effects=["none"])
def length(text: str) -> int:
    """How long a text is."""
    return len(text)


@action(effects=["none"])
def echo(text: str) -> str:
    """The text itself."""
    return text


@action(effects=["filesystem"])
def leased(text: str) -> int:
    """As length, but under a lease."""
    return len(text)
'''
MCP_SERVER = '''
from mcp.server import MCPServer

server = MCPServer("benchmark")


@server.tool()
def length(text: str) -> int:
    """How long a text is."""
    return len(text)


@server.tool()
def echo(text: str) -> str:
    """The text itself."""
    return text


server.run()
'''
SMALL = "a"
BIG = "a" * 65_536
Calling = Callable[[str, str], Awaitable[None]]
"""A function that calls an action by name with a text."""


class Figures(NamedTuple):
    """The measurements of one server."""

    round_trip: float
    """The median in milliseconds."""
    concurrent: float
    """Calls per second, with 32 pending calls."""
    sent: float
    """MB/s of 64 KiB texts, with small results."""
    echoed: float
    """MB/s of 64 KiB texts, in both directions."""


async def measured(call: Calling, scale: int) -> Figures:
    return Figures(
        await round_trip(call, "length", 100 * scale),
        await rate(call, "length", SMALL, 1_000 * scale),
        await rate(call, "length", BIG, 96 * scale) * len(BIG) / 1e6,
        await rate(call, "echo", BIG, 64 * scale) * len(BIG) / 1e6,
    )


async def round_trip(call: Calling, name: str, count: int) -> float:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        await call(name, SMALL)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1_000


async def rate(call: Calling, name: str, text: str, count: int) -> float:
    async def some() -> None:
        for _ in range(count // 32):
            await call(name, text)

    start = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(32)))
    return count / (time.perf_counter() - start)


async def ours(folder: Path) -> tuple[Figures, float]:
    plugin = folder / "plugin.py"
    plugin.write_text(PLUGIN)
    heard: list[object] = [None]

    def audit(event: str, details: Mapping[str, object]) -> None:
        heard[0] = (event, details)

    listing = list_plugin(str(plugin), os.environ, sandbox="none")
    assert isinstance(listing, Listing), listing
    command = listing.command(os.environ, sandbox="none")
    assert isinstance(command, HostCommand), command
    served = [ServedPlugin(listing.catalogue, command)]
    async with Dispatcher(served, size=1, timeout=60, audit=audit) as dispatcher:

        async def call(name: str, text: str) -> None:
            answer = await dispatcher.call(f"AID.PLUGIN.{name.upper()}.v1", inputs={"text": text})
            assert isinstance(answer, ActionResult), answer

        await call("length", SMALL)
        return await measured(call, 32), await leased_round_trip(dispatcher, 3_200)


async def leased_round_trip(dispatcher: Dispatcher, count: int) -> float:
    """Measure calls with prepared authorisations; creating them in between would leave the host idle."""
    aid, text, turn, times = "AID.PLUGIN.LEASED.v1", f'{{"text":"{SMALL}"}}', ServerTurn(1), []
    calls = {f"run/s{number}/1": digest_bytes(text.encode()) for number in range(count)}
    rights = {call_id: turn.authorised(aid, call_id, digest) for call_id, digest in calls.items()}
    gc.freeze()  # keep the garbage collector away from thousands of authorisations, which no real server holds
    for call_id, right in rights.items():
        start = time.perf_counter()
        answer = await dispatcher.call(aid, inputs={"text": SMALL}, call_id=call_id, authority=right)
        times.append(time.perf_counter() - start)
        assert isinstance(answer, ActionResult), answer
    gc.unfreeze()
    return statistics.median(times) * 1_000


async def mcp_sdk(folder: Path) -> Figures | None:
    if importlib.util.find_spec("mcp") is None:
        return None
    from mcp import Client, StdioServerParameters, stdio_client

    program = folder / "server.py"
    program.write_text(MCP_SERVER)
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    server = StdioServerParameters(command=sys.executable, args=[str(program)], env=paths)
    with (folder / "log").open("w") as log:
        async with Client(stdio_client(server, errlog=log)) as client:

            async def call(name: str, text: str) -> None:
                answer = await client.call_tool(name, {"text": text})
                assert not answer.is_error, answer

            await call("length", SMALL)
            return await measured(call, 4)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures, leased = await ours(Path(folder))
        peer = await mcp_sdk(Path(folder))
    theirs = (
        ["not installed"] * 4
        if peer is None
        else [
            f"{peer.round_trip:.3f} ms",
            f"{peer.concurrent:,.0f} calls/s",
            f"{peer.sent:.0f} MB/s",
            f"{peer.echoed:.0f} MB/s",
        ]
    )
    rows = [
        ("round trip", f"{figures.round_trip:.3f} ms", "0.2 ms", figures.round_trip <= 0.2, theirs[0]),
        ("round trip, tier 1", f"{leased:.3f} ms", "0.2 ms", leased <= 0.2, ""),
        (
            "32 pending calls",
            f"{figures.concurrent:,.0f} calls/s",
            "8,000 calls/s",
            figures.concurrent >= 8_000,
            theirs[1],
        ),
        ("64 KiB in, small result", f"{figures.sent:.0f} MB/s", "150 MB/s", figures.sent >= 150, theirs[2]),
        ("64 KiB in and out", f"{figures.echoed:.0f} MB/s", "60 MB/s", figures.echoed >= 60, theirs[3]),
    ]
    print_table(
        ("measurement", "result", "budget", "", "MCP SDK"),
        [(what, got, allowed, "" if good else "MISSED", peer) for what, got, allowed, good, peer in rows],
    )


if __name__ == "__main__":
    asyncio.run(main())
