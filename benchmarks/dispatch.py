"""Calls through a pool of one warm host of ours: round trip, pipelined calls, and bytes, wall time on a shared machine.

A figure on the wrong side of what is allowed is marked; nothing fails because a machine is slow.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from _table import print_table

from manglecp.toolhost.dispatch import Answer, Call, HostCommand, Pool

PLUGIN = '''
from manglecp.toolhost.action import action


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
SMALL = '{"text":"a"}'
BIG = '{"text":"' + "a" * 65_536 + '"}'


async def call(pool: Pool, name: str, input_json: str, tier: int = 0) -> None:
    answer = await pool.call(Call(aid=f"AID.PLUGIN.{name}.v1", tier=tier, input_json=input_json))
    assert isinstance(answer, Answer), answer


async def round_trip(pool: Pool, name: str, tier: int) -> float:
    """Milliseconds, the median of 3,000."""
    times = []
    for _ in range(3_000):
        start = time.perf_counter()
        await call(pool, name, SMALL, tier)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1_000


async def rate(pool: Pool, name: str, input_json: str, count: int) -> float:
    """Calls per second, 32 at a time."""

    async def some() -> None:
        for _ in range(count // 32):
            await call(pool, name, input_json)

    start = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(32)))
    return count / (time.perf_counter() - start)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "plugin.py"
        plugin.write_text(PLUGIN)
        async with Pool(HostCommand.for_plugin(str(plugin), os.environ, sandbox="none"), size=1, timeout=60) as pool:
            tier_0 = await round_trip(pool, "LENGTH", 0)
            tier_1 = await round_trip(pool, "LEASED", 1)
            pipelined = await rate(pool, "LENGTH", SMALL, 32_000)
            sent = await rate(pool, "LENGTH", BIG, 3_200) * 65_536 / 1e6
            echoed = await rate(pool, "ECHO", BIG, 1_600) * 65_536 / 1e6
    rows = [
        ("round trip, tier 0", f"{tier_0:.3f} ms", "0.2 ms", tier_0 <= 0.2),
        ("round trip under a lease", f"{tier_1:.3f} ms", "", True),
        ("pipelined", f"{pipelined:,.0f} calls/s", "8,000 calls/s", pipelined >= 8_000),
        ("64 KiB in, small answer", f"{sent:.0f} MB/s", "150 MB/s", sent >= 150),
        ("64 KiB in and out", f"{echoed:.0f} MB/s", "60 MB/s", echoed >= 60),
    ]
    print_table(
        ("what", "measured", "allowed", ""),
        [(what, measured, allowed, "" if good else "MISSED") for what, measured, allowed, good in rows],
    )


if __name__ == "__main__":
    asyncio.run(main())
