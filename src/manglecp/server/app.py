"""The ASGI application: HTTP and WebSocket on one message core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manglecp.server.asgi import Connection, Receive, Scope, Send, connection_of
from manglecp.server.core import Core
from manglecp.server.guards import Guards
from manglecp.server.http import Http
from manglecp.server.proxies import Proxies
from manglecp.server.steps import Steps, run
from manglecp.server.websocket import WebSocket

if TYPE_CHECKING:
    from manglecp.server.metrics import Metrics

__all__ = ["App"]


class App:
    """Made on the event loop that serves it. Opening and ending the core is left to whoever made that."""

    def __init__(
        self,
        core: Core,
        guards: Guards | None = None,
        *,
        metrics: Metrics | None = None,
        metadata: tuple[str, bytes] | None = None,
        max_age: int | None = None,
    ) -> None:
        guards = guards or Guards(auth=core.auth.required)
        self.core = core
        self._http = Http(core, guards, metrics=metrics, metadata=metadata, max_age=max_age)
        self._websocket = WebSocket(core, guards)
        trusted = core.settings.trusted_proxies
        self._proxies = Proxies(trusted) if trusted else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await run(self.steps(scope, receive, send, connection_of(scope)))
        elif scope["type"] == "websocket":
            await self._websocket(self._seen(scope), receive, send)
        else:
            raise ValueError(f"{scope['type']} is not served")

    def steps(self, scope: Scope, receive: Receive, send: Send, connection: Connection | None) -> Steps[None]:
        """A request over HTTP, from its headers to its answer."""
        return self._http.steps(self._seen(scope), receive, send, connection)

    def _seen(self, scope: Scope) -> Scope:
        return scope if self._proxies is None else self._proxies.seen_through(scope)

    async def drain(self, grace: float | None = None) -> bool:
        """Take nothing new, let what is under way end, and take leave of everybody; did all of it end in time?"""
        over = await self.core.drain(grace)
        await self._websocket.end()
        return over
