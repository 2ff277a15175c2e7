"""Frames: several for one message, binary ones (TRANS-04), no UTF-8 in them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.desk import PATIENCE, encoded, intent
from tests.server.house import ClientConnection, house


async def hear(ws: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        told: dict[str, Any] = json.loads(await ws.recv())
    return told


async def test_a_message_in_several_frames_is_one_message() -> None:
    """It violates TRANS-05, which senders must obey; a WebSocket library hands out whole messages."""
    text = encoded(intent("split")).decode()
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        await ws.send([text[:9], text[9:40], text[40:]])
        assert (await hear(ws))["id"] == "split"


@pytest.mark.req("TRANS-04")
async def test_nor_are_several_binary_frames_one() -> None:
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        data = encoded(intent("a"))
        await ws.send([data[:9], data[9:]])
        with pytest.raises(ConnectionClosed) as closed:
            await hear(ws)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003


async def test_text_that_is_no_utf_8_ends_the_connection_and_is_no_fault_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        with caplog.at_level(logging.WARNING):
            await ws.send(b'{"type":"\xff"}', text=True)
            with pytest.raises(ConnectionClosed) as closed:
                await hear(ws)
        assert not caplog.records
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1007


async def test_a_connection_that_is_refused_is_no_fault_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with house() as h:
        with caplog.at_level(logging.WARNING):
            for path, headers in (("/nothing", {}), ("/ws", {"origin": "http://evil.example"})):
                with pytest.raises(InvalidStatus) as refused:
                    await h.websocket(path, additional_headers=headers)
                assert json.loads(refused.value.response.body)["type"] == "error"
        assert not caplog.records
