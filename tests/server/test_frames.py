"""What is no message because of its frames: several of them (TRANS-05), binary ones (TRANS-04), no UTF-8 in them."""

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


@pytest.mark.req("TRANS-05")
@pytest.mark.parametrize("parts", [2, 50])
async def test_a_message_in_several_frames_is_none(parts: int) -> None:
    text = encoded(intent("split")).decode()
    size = -(-len(text) // parts)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        await ws.send(pieces)
        told = await hear(ws)
        assert (told["type"], told["id"], told["payload"]["code"]) == ("error", None, "malformed_message")
        assert "frame" in told["payload"]["message"]
        await ws.send(["", text])
        assert (await hear(ws))["payload"]["code"] == "malformed_message"
        await ws.send(encoded(intent("whole")).decode())
        assert (await hear(ws))["id"] == "whole"
        assert [one.code for one in h.desk.handled] == ["malformed_message", "malformed_message", None]


@pytest.mark.req("TRANS-04", "TRANS-05")
async def test_nor_are_several_binary_frames_one() -> None:
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        data = encoded(intent("a"))
        await ws.send([data[:9], data[9:]])
        with pytest.raises(ConnectionClosed) as closed:
            await hear(ws)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003


async def test_text_that_is_no_text_ends_the_connection_and_is_no_fault_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with house() as h, h.websocket() as ws:
        await hear(ws)
        with caplog.at_level(logging.WARNING):
            await ws.send(b'{"type":"\xff"}', text=True)
            with pytest.raises(ConnectionClosed) as closed:
                await hear(ws)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1007
        assert not caplog.records


async def test_a_connection_that_is_refused_is_no_fault_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with house() as h:
        with caplog.at_level(logging.WARNING):
            for path, headers in (("/nothing", {}), ("/ws", {"origin": "http://evil.example"})):
                with pytest.raises(InvalidStatus) as refused:
                    await h.websocket(path, additional_headers=headers)
                assert json.loads(refused.value.response.body)["type"] == "error"
        assert not caplog.records
