"""A server inside of another program: a pack that is served without a process of its own, and without a socket.

    async with Server("pack") as server, Client(server) as client:
        found = await client.evaluate("observe")

Whoever has a web server already gives it :meth:`Server.app`, which answers HTTP and WebSocket.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from manglecp.server.assembly import Source, open_core
from manglecp.server.core import Core
from manglecp.server.settings import ServerSettings
from manglecp.server.who import Who

if TYPE_CHECKING:
    from manglecp.server.app import App
    from manglecp.server.sessions import Session

__all__ = ["Server"]


class Server:
    """A pack that is served for as long as the ``async with`` lasts, on the event loop that enters it."""

    def __init__(
        self,
        folder: str | Path,
        *,
        store: str = ":memory:",
        workspace: Sequence[str | Path] = (),
        params: Mapping[str, str] | None = None,
        programs: Sequence[str] = (),
        tokens: str | Path | None = None,
        settings: ServerSettings | None = None,
        degrade: bool = False,
        allow_weaker: bool = False,
    ) -> None:
        """As the options of ``manglecp serve``. Without ``tokens`` everybody may ask who gets at it."""
        self._source = Source(
            folder=Path(folder),
            where=store,
            workspace=tuple(map(Path, workspace)),
            params=dict(params or {}),
            programs=tuple(programs),
            degrade=degrade,
            allow_weaker=allow_weaker,
        )
        self._tokens = None if tokens is None else Path(tokens)
        self._settings = settings
        self._stack = AsyncExitStack()
        self._core: Core | None = None
        self._apps: list[App] = []

    async def __aenter__(self) -> Self:
        """Once the pack is loaded; PackError or StoreError if it cannot be."""
        who = Who() if self._tokens is None else Who.of(self._tokens, None)
        opening = open_core(
            self._source, auth=who.auth, secrets=who.secrets, auto_confirm=who.auto_confirm, settings=self._settings
        )
        async with AsyncExitStack() as stack:
            core = await stack.enter_async_context(opening)
            await core.serving.ready()
            self._core, self._stack = core, stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """What is under way is answered first."""
        try:
            await self.core.drain()
            for app in self._apps:
                await app.drain()
        finally:
            self._apps.clear()
            self._core = None
            await self._stack.aclose()

    @property
    def core(self) -> Core:
        """What transports talk to."""
        if self._core is None:
            raise RuntimeError("a server is used inside of its async with")
        return self._core

    def session(
        self, transport: Literal["websocket", "stdio"], /, *, send: Callable[[bytes], Awaitable[None]]
    ) -> Session:
        """For clients in this process: ``Client(server)``."""
        return self.core.session(transport, send=send)

    def app(self, *, hosts: Sequence[str] = (), origins: Sequence[str] = ()) -> App:
        """An ASGI application. ``hosts`` are the names that clients know it by, besides those of this machine, and
        ``origins`` those whose web pages may ask."""
        from manglecp.server.app import App
        from manglecp.server.guards import Guards

        guards = Guards(hosts=hosts, origins=origins, auth=self.core.auth.required)
        app = App(self.core, guards)
        self._apps.append(app)
        return app
