"""Case 25: clients that try to bring a server down by what they do with their connections. Others go on.

What they send is tried at random by the tests in ``tests/fuzz``, a hundred thousand frames of each kind in ``make
soak``; all of them together, under load, by those in ``tests/load``. Here are those that do not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Final

import pytest

from manglecp.server import binding
from tests.adversarial._invoked import invoked
from tests.load.wires import PING, UPGRADE, connect, connect_websocket, frame, read_answer, read_frame, request
from tests.server.desk import PATIENCE, encoded, intent
from tests.server.house import House, house

MANIFEST: Final = request(b"GET", b"/.well-known/manglecp/manifest.json")
HANDSHAKE: Final = request(b"GET", b"/ws", None, UPGRADE)
PINGS: Final = frame(b"x" * 125, PING) * 1_000
MANY: Final = 512 << 20
"""Bytes, far more than what sockets and the server hold."""
UNREAD_MS: Final = 500


async def flood(h: House, first: bytes, data: bytes) -> None:
    """A client writes for as long as the server reads, and reads nothing; until it is cut off."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    narrow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", h.port))
    _, writer = await asyncio.open_connection(sock=narrow)
    writer.write(first)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    taken = 0
    with contextlib.suppress(ConnectionError):
        while taken < MANY:
            writer.write(data)
            await writer.drain()
            taken += len(data)
    writer.transport.abort()
    assert taken < MANY, "the server reads on, and keeps its answers"


async def fine(h: House) -> None:
    reader, writer = await connect_websocket(h.port)
    assert json.loads((await read_frame(reader)).data)["type"] == "manifest"
    writer.write(frame(encoded(intent("z"))))
    assert json.loads((await read_frame(reader)).data)["id"] == "z"
    writer.close()


@pytest.mark.req("SEC-37")
@pytest.mark.parametrize(
    ("first", "data"),
    [pytest.param(HANDSHAKE, PINGS, id="pongs"), pytest.param(b"", MANIFEST * 100, id="documents")],
)
@invoked
async def test_who_asks_and_does_not_take_it_is_cut_off(
    first: bytes, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "_MAX_UNACKNOWLEDGED_MS", UNREAD_MS)
    async with house() as h, asyncio.timeout(PATIENCE):
        flooding = asyncio.create_task(flood(h, first, data))
        await fine(h)
        await flooding
        await fine(h)


@invoked
async def test_who_is_only_slow_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is there in the end, though it takes longer than a client may leave everything unread."""
    monkeypatch.setattr(binding, "_MAX_UNACKNOWLEDGED_MS", UNREAD_MS)
    count = 4_000
    async with house() as h:
        reader, writer = await connect(h.port)
        writer.write(MANIFEST * count)
        async with asyncio.timeout(PATIENCE):
            for number in range(count):
                assert (await read_answer(reader)).status == 200
                if number % 200 == 0:
                    await asyncio.sleep(UNREAD_MS / 2_000)
        writer.close()
