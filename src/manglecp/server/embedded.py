"""A server inside another program, without a process and a socket of its own.

    async with Server("pack") as server, Client(server) as client:
        tools = await client.evaluate("observe")

:meth:`Server.app` is an ASGI application for the program's web server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from manglecp.intent import Identity
from manglecp.invoke import PackOptions
from manglecp.pack import SandboxPolicy
from manglecp.server.auth_config import AuthConfig
from manglecp.server.config import ServerSettings
from manglecp.server.core import Core, IdentifiedSessions
from manglecp.server.runtime import open_core
from manglecp.store import open_store

if TYPE_CHECKING:
    from manglecp.server.app import App
    from manglecp.server.auth import Auth
    from manglecp.server.sessions import Session


class Server:
    """A server for the duration of an ``async with`` block, on the event loop of the block."""

    def __init__(
        self,
        folder: str | Path,
        *,
        store: str = ":memory:",
        workspace: Sequence[str | Path] = (),
        params: Mapping[str, str] | None = None,
        programs: Sequence[str] = (),
        tokens: str | Path | None = None,
        auth: Auth | None = None,
        settings: ServerSettings | None = None,
        degrade: bool = False,
        allow_weaker: bool = False,
    ) -> None:
        """Take options of ``manglecp serve``: ``store`` is a path or a URL, ``params`` are those of the pack.

        ``workspace`` are folders that actions may write, ``programs`` are programs that they may start. Without
        ``tokens``, the path of a file, or another method of authentication in ``auth``, clients need no credential.
        ``degrade`` starts hosts although the kernel lacks a mechanism of the sandbox; ``allow_weaker`` permits a pack
        to request a profile weaker than ``strict``.
        """
        self._options = PackOptions(
            Path(folder),
            params=dict(params or {}),
            workspace=tuple(workspace),
            programs=tuple(programs),
            sandbox=SandboxPolicy(degrade=degrade, allow_weaker=allow_weaker),
        )
        self._open_store = partial(open_store, store)
        if tokens is not None and auth is not None:
            raise ValueError("pass tokens or auth; manglecp.server.auth.CombinedAuth combines several methods")
        self._tokens = None if tokens is None else Path(tokens)
        self._auth = auth
        self._settings = settings
        self._stack = AsyncExitStack()
        self._core: Core | None = None
        self._apps: list[App] = []

    async def __aenter__(self) -> Self:
        """Wait until the pack is loaded. Raises PackError or StoreError."""
        auth = AuthConfig(self._auth) if self._tokens is None else AuthConfig.of(self._tokens, None)
        opening = open_core(self._options, self._open_store, auth, settings=self._settings)
        async with AsyncExitStack() as stack:
            core = await stack.enter_async_context(opening)
            await core.revisions.wait_until_loaded()
            self._core, self._stack = core, stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Drain, and close the core."""
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
        """The message core. Raises RuntimeError outside of the ``async with`` block."""
        if self._core is None:
            raise RuntimeError("use the server inside its async with block")
        return self._core

    def session(
        self, transport: Literal["websocket", "stdio"], /, *, send: Callable[[bytes], Awaitable[None]]
    ) -> Session:
        """Open a session of a client in this process, as ``Client(server)`` does."""
        return self.core.session(transport, send=send)

    def as_(self, name: str, permissions: Iterable[str] = (), *, trust: str = "user") -> IdentifiedSessions:
        """Return a target for clients that act as this principal, authenticated by your program."""
        return IdentifiedSessions(self.core, Identity(name, frozenset(permissions), trust))

    def app(self, *, hosts: Sequence[str] = (), origins: Sequence[str] = ()) -> App:
        """Return an ASGI application.

        ``hosts`` are the names of the server in the Host header, besides those of the loopback address. Web pages of
        ``origins`` may send requests.
        """
        from manglecp.server.app import App
        from manglecp.server.middleware import Guards

        guards = Guards(hosts=hosts, origins=origins, auth_required=self.core.auth.required)
        app = App(self.core, guards)
        self._apps.append(app)
        return app
