"""An MCP host without an SDK: it starts the servers of its configuration, and calls tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tools.demo.terminal import expect

__all__ = ["McpHost"]


class McpHost:
    """A connection to one server."""

    def __init__(self, server: asyncio.subprocess.Process) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._input, self._output = server.stdin, server.stdout

    @classmethod
    @asynccontextmanager
    async def start(cls, config: Path, name: str, variables: Mapping[str, str]) -> AsyncIterator[McpHost]:
        """Start a server of a configuration."""
        entry = json.loads(config.read_text(encoding="utf-8"))["mcpServers"][name]
        server = await asyncio.create_subprocess_exec(
            *(entry["command"], *entry["args"]),
            env=variables,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        host = cls(server)
        info = {"name": "demo", "version": "1"}
        await host.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        host._send({"method": "notifications/initialized"})
        yield host
        host._input.close()
        expect(await server.wait() == 0, f"{name} failed")

    def _send(self, message: dict[str, Any]) -> None:
        self._input.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result."""
        self._send({"id": 1, "method": method, "params": params})
        while "id" not in (message := json.loads(await self._output.readline())):
            pass  # a notification
        result: dict[str, Any] = message["result"]
        return result

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.request("tools/list"))["tools"]]

    async def call(self, tool: str, *, is_error: bool = False, **args: Any) -> str:
        """Return the text of the result."""
        result = await self.request("tools/call", name=tool, arguments=args)
        text: str = result["content"][0]["text"]
        expect(result.get("isError", False) is is_error, f"the call of {tool}: {text}")
        return text
