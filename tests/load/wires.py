"""HTTP and WebSocket by hand, as little of them as it takes: whoever wants to send what no library would send needs to
write it out, and a client that costs nearly nothing leaves the machine to the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "BINARY",
    "CLOSE",
    "CONTINUATION",
    "JSON",
    "PING",
    "PONG",
    "TEXT",
    "UPGRADE",
    "Answer",
    "Frame",
    "connect",
    "connect_websocket",
    "frame",
    "message",
    "read_answer",
    "read_frame",
    "request",
]

LONGEST: Final = 1 << 24
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
JSON: Final = ((b"content-type", b"application/json"),)
UPGRADE: Final = (
    (b"upgrade", b"websocket"),
    (b"connection", b"upgrade"),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", b"AAAAAAAAAAAAAAAAAAAAAA=="),
)
Header = tuple[bytes, bytes]


def message(type_: str, request_id: str | None, payload: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": type_, "id": request_id, "manglecp": "2026-02-draft", "payload": payload}).encode()


# --- HTTP ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def json(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.body)
        return told


def request(
    method: bytes, path: bytes, body: bytes | None = None, headers: tuple[Header, ...] = (), *, token: str | None = None
) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (method, path), b"host: localhost", *(b"%s: %s" % one for one in headers)]
    if token is not None:
        lines.append(b"authorization: Bearer " + token.encode())
    if body is not None:
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join((*lines, b"", body or b""))


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, limit=LONGEST)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """IncompleteReadError if the connection ended before it."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    headers = dict(_header(line) for line in lines)
    status = int(first.split()[1])
    if status in (204, 304) or status < 200:
        return Answer(status, headers, b"")
    if b"content-length" not in headers:  # a response of the HTTP parser itself: one chunk, or up to the end
        body = await reader.read()
        if headers.get(b"transfer-encoding") == b"chunked":
            body = body.partition(b"\r\n")[2].removesuffix(b"\r\n0\r\n\r\n")
        return Answer(status, headers, body)
    return Answer(status, headers, await reader.readexactly(int(headers[b"content-length"])))


def _header(line: bytes) -> Header:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip()


# --- WebSocket -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    opcode: int
    data: bytes

    @property
    def code(self) -> int:
        """Of a close frame."""
        return int.from_bytes(self.data[:2])


def frame(
    data: bytes, opcode: int = TEXT, *, fin: bool = True, mask: bytes | None = b"\0\0\0\0", reserved: int = 0
) -> bytes:
    """As a client sends it, and with everything that may be wrong with it."""
    first = (0x80 if fin else 0) | (reserved << 4) | opcode
    masked = 0 if mask is None else 0x80
    if len(data) < 126:
        head = bytes((first, masked | len(data)))
    elif len(data) < 1 << 16:
        head = bytes((first, masked | 126)) + len(data).to_bytes(2)
    else:
        head = bytes((first, masked | 127)) + len(data).to_bytes(8)
    if mask is None:
        return head + data
    if any(mask):
        key = int.from_bytes((mask * (len(data) // 4 + 1))[: len(data)])
        data = (int.from_bytes(data) ^ key).to_bytes(len(data))
    return head + mask + data


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """What a server sends: whole, and not masked. IncompleteReadError if the connection ended before it."""
    first, length = await reader.readexactly(2)
    assert first & 0xF0 == 0x80, "a frame of a server is a whole message"
    assert length < 0x80, "a frame of a server is not masked"
    if length == 126:
        length = int.from_bytes(await reader.readexactly(2))
    elif length == 127:
        length = int.from_bytes(await reader.readexactly(8))
    return Frame(first & 0x0F, await reader.readexactly(length))


async def connect_websocket(
    port: int, *, token: str | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The manifest is the first frame that is left to be read."""
    reader, writer = await connect(port)
    writer.write(request(b"GET", b"/ws", None, UPGRADE, token=token))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    return reader, writer
