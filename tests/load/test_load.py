"""A server under mixed traffic: right answers for everybody who asks rightly, nothing left behind, and a clean end.

How fast it is depends on the machine, and is looked at in the long variant only.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from pathlib import Path
from typing import Any, Final

import pytest

from tests.load.clients import mixture
from tests.load.questions import PACK, Question, rest
from tests.load.serving import PATIENCE, Figures, Server, serve
from tests.load.traffic import Traffic
from tests.load.wires import CLOSE, JSON, connect, connect_websocket, frame, message, read_answer, read_frame, request

pytestmark = [
    pytest.mark.no_cover,
    # Clients that leave without a word are part of it.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

IDENTITIES: Final = tuple(f"user-{number}" for number in range(40))
CONFIG: Final = "[rates]\npeer = { per_second = 0 }\nidentity = { per_second = 0 }\n"
"""All clients come from one address, and go as fast as they can."""
MEMORY: Final = 112 << 10
"""Kilobytes that a server may grow by between its first seconds of traffic and its last.

Four messages of 16 MiB are part of it: a closed connection is freed with its last message by the garbage collector,
which does not run while the server is idle.
"""
RESTED: Final = 1.5


@pytest.mark.req("TRANS-20", "TRANS-32", "TRANS-33", "TRANS-40", "SEC-02", "SEC-17")
@pytest.mark.parametrize(
    ("connections", "seconds"),
    [pytest.param(20, 3.0, id="20"), pytest.param(200, 30.0, id="200", marks=pytest.mark.soak)],
)
async def test_mixed_traffic(connections: int, seconds: float, tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    with serve(tmp_path, identities=IDENTITIES, config=CONFIG, store=store, more=PACK) as server:
        async with asyncio.timeout(PATIENCE + 10 * seconds):
            await traffic(server, connections, seconds / 3)  # what is made once, is made now
            before = server.figures()
            seen = await traffic(server, connections, seconds)
            after = await server.at_rest(before, kilobytes=MEMORY)
            await drained(server)
        assert not server.faults()
    told = figures(seen, before, after, seconds)
    print(told)
    if seconds > 10:
        middle, slow = (quantile(seen.seconds, part) for part in (0.5, 0.99))
        assert slow < 10 * middle, told


async def traffic(server: Server, connections: int, seconds: float) -> Traffic:
    seen = Traffic(server.port, IDENTITIES)
    clients = mixture(connections)
    running = asyncio.create_task(seen.run(clients))
    await asyncio.sleep(seconds)
    seen.end()
    await running
    assert not seen.wrong, seen.wrong[:20]
    if seconds > 1:
        assert {client.__name__ for client in clients} <= set(seen.done), seen.done
    return seen


# --- the end ---------------------------------------------------------------------------------------------------------


async def drained(server: Server) -> None:
    """SIGTERM in the middle of it: whatever the server has said that it began, it ends, and nobody is told nonsense."""
    seen = Traffic(server.port, IDENTITIES)
    running = asyncio.create_task(seen.run(mixture(20)))
    tool = await resting_tool(server)
    begun = [asyncio.Event() for _ in range(3)]
    resting = [asyncio.create_task(rests(server, rest(f"rest-{n}", tool, RESTED), one)) for n, one in enumerate(begun)]
    for one in begun:
        await one.wait()
    server.figures()  # which processes it has
    seen.draining = True
    server.ask_to_end()
    for told in await asyncio.gather(*resting):
        assert told["type"] == "invoke_response", told
        assert told["payload"]["result"] == {"rested": RESTED}
    assert await asyncio.to_thread(server.ended) == 0
    seen.end()
    await running
    assert not seen.wrong, seen.wrong[:20]
    assert not server.left()


async def resting_tool(server: Server) -> str:
    reader, writer = await connect(server.port)
    data = message("intent_request", "wait", {"intent": {"name": "wait"}})
    writer.write(request(b"POST", b"/evaluate", data, JSON, token=IDENTITIES[0]))
    tools = (await read_answer(reader)).json()["payload"]["macro_tools"]
    writer.close()
    found: str = next(tool["macro_id"] for tool in tools if tool["name"] == "rest")
    return found


async def rests(server: Server, question: Question, begun: asyncio.Event) -> dict[str, Any]:
    """The answer; the server has said before that it has begun."""
    reader, writer = await connect_websocket(server.port, token=IDENTITIES[0])
    writer.write(frame(question.data))
    while True:
        got = await read_frame(reader)
        assert got.opcode != CLOSE, f"{question.id} was begun, and never answered"
        told: dict[str, Any] = json.loads(got.data)
        if told["type"] == "progress":
            begun.set()
        elif told["type"] != "manifest":
            writer.close()
            return told


# --- figures ---------------------------------------------------------------------------------------------------------


def quantile(seconds: list[float], part: float) -> float:
    return statistics.quantiles(seconds, n=1_000, method="inclusive")[round(part * 1_000) - 1]


def figures(seen: Traffic, before: Figures, after: Figures, seconds: float) -> str:
    correct = len(seen.seconds)
    latency = ", ".join(f"p{100 * part:g} {1_000 * quantile(seen.seconds, part):.0f} ms" for part in (0.5, 0.9, 0.99))
    return (
        f"\n{correct} right answers in {seconds:g} s ({correct / seconds:.0f}/s), {seen.told_to_wait} put off"
        f"\n{latency}\n{dict(sorted(seen.done.items()))}\nbefore {before}\nafter  {after}"
    )
