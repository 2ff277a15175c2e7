"""Subscriptions to changes of the list of tools, in direct mode (revision 2026-07-28)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler, ServerEvent, ToolsListChanged
from mcp.shared.exceptions import MCPError

_METHOD: Final = "subscriptions/listen"
_MAX_SUBSCRIPTIONS: Final = 256
_MIN_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 60.0
_ListTools: TypeAlias = Callable[[], Awaitable[types.ListToolsResult]]


def listen_handler(list_tools: _ListTools) -> ListenHandler:
    """Return the handler of subscriptions. ``list_tools`` returns the tools of the principal of the current request."""
    return ListenHandler(_ToolListBus(list_tools), max_subscriptions=_MAX_SUBSCRIPTIONS)


def end_subscriptions(server: Server[Any]) -> None:
    """End all open subscriptions of a server, which would delay its end."""
    entry = server.get_request_handler(_METHOD)
    if entry is not None and isinstance(entry.handler, ListenHandler):
        entry.handler.close()


class _ToolListBus:
    """Lists the tools of each subscriber again when its last list may have expired, and announces a change."""

    def __init__(self, list_tools: _ListTools) -> None:
        self._list_tools = list_tools

    async def publish(self, event: ServerEvent) -> None:
        raise NotImplementedError(f"{event} is for all subscribers; each has a list of its own")

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Begin to watch the list of the principal of this request, and return a function that ends it."""
        task = asyncio.create_task(self._watch(listener))

        def unsubscribe() -> None:
            task.cancel()

        return unsubscribe

    async def _watch(self, listener: Callable[[ServerEvent], None]) -> None:
        tools, seconds = await self._read_list()
        while True:
            await asyncio.sleep(seconds)
            before = tools
            tools, seconds = await self._read_list()
            if tools != before:
                listener(ToolsListChanged())

    async def _read_list(self) -> tuple[list[types.Tool] | None, float]:
        """Return the tools, and after how many seconds to read them again; None if they cannot be listed now."""
        try:
            listed = await self._list_tools()
        except MCPError:  # the client receives the reason when it lists the tools
            return None, _RETRY_SECONDS
        return listed.tools, max(listed.ttl_ms / 1_000, _MIN_SECONDS)
