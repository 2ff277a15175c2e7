"""Read the tools and the instructions of a server: start it, ask, and end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any, Final, NamedTuple

from manglecp.guard.frames import MAX_FRAME_BYTES, encode, read_frame
from manglecp.guard.host_config import GuardError, ServerEntry

_SECONDS: Final = 60.0
"""The time for the start and the list; a first `npx` or `uvx` downloads the server."""
_MAX_PAGES: Final = 100
_ENDED: Final = "the server ended before it listed its tools; start it by hand to see why"
_LEGACY: Final = "2025-11-25"
_INFO: Final = {"name": "manglecp-guard", "version": "1"}
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": _INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Listing(NamedTuple):
    """What a server sends that models read before the first call."""

    tools: list[dict[str, Any]]
    """Of all pages."""
    instructions: str | None


async def read_listing(entry: ServerEntry) -> Listing:
    """Return what a server lists. Raises :class:`GuardError`."""
    entry = entry.expanded()
    try:
        server = await asyncio.create_subprocess_exec(
            *entry.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **entry.env},
            cwd=entry.cwd,
            limit=MAX_FRAME_BYTES,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: of a NUL, or of the name of a variable
        raise GuardError(f"{entry.name}: {entry.command[0]} cannot be started: {error}") from None
    try:
        return await asyncio.wait_for(_Conversation(entry.name, server).read(), _SECONDS)
    except TimeoutError:
        raise GuardError(f"{entry.name}: the server did not list its tools within {_SECONDS:.0f} seconds") from None
    except ValueError:  # of readline
        raise GuardError(f"{entry.name}: a frame of the server has more than {MAX_FRAME_BYTES:,} bytes") from None
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(server.pid, number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(server.wait(), 1)


class _Conversation:
    def __init__(self, name: str, server: asyncio.subprocess.Process) -> None:
        self._name = name
        self._server = server
        self._next_id = 0

    async def read(self) -> Listing:
        params = {"protocolVersion": _LEGACY, "capabilities": {}, "clientInfo": _INFO}
        meta: dict[str, Any] = {}
        greeting = await self._request("initialize", params)
        if "error" in greeting:  # revision 2026-07-28 has no sessions
            meta = {"_meta": _META}
            greeting = await self._request("server/discover", meta)
        else:
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        for _ in range(_MAX_PAGES):
            response = await self._request("tools/list", {**cursor, **meta})
            result = response.get("result")
            if not isinstance(result, dict):
                result = {}
            page = result.get("tools")
            if not isinstance(page, list) or not all(isinstance(tool, dict) for tool in page):
                raise GuardError(
                    f"{self._name}: the server does not list tools: {encode(response)[:300].decode(errors='replace')}"
                )
            tools += page
            if not (next_cursor := result.get("nextCursor")):
                text = greeting["result"].get("instructions") if isinstance(greeting.get("result"), dict) else None
                return Listing(tools, text if isinstance(text, str) else None)
            cursor = {"cursor": next_cursor}
        raise GuardError(f"{self._name}: the server lists its tools on more than {_MAX_PAGES} pages")

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(encode(message) + b"\n")
        try:
            await self._server.stdin.drain()
        except OSError:
            raise GuardError(f"{self._name}: {_ENDED}") from None

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdout is not None
        self._next_id += 1
        await self._send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        while line := await self._server.stdout.readline():
            message = read_frame(line).value
            if isinstance(message, dict) and "method" not in message and message.get("id") == self._next_id:
                return message
        raise GuardError(f"{self._name}: {_ENDED}")
