"""MCP over standard streams and over Streamable HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from manglecp.mcp_server.handlers import VerifiedToken
from manglecp.server import AuthConfig
from manglecp.server.auth import Auth

PATH: Final = "/mcp"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the parent process on the standard streams until it closes them."""
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


class _Verifier:
    """Our authentication, as a resource server of OAuth uses it."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth

    async def verify_token(self, token: str) -> AccessToken | None:
        for scheme in ("bearer", "oauth2"):
            identity = await self._auth.identify(scheme, token) if scheme in self._auth.schemes else None
            if identity is not None:
                expires = None if identity.expires_at is None else int(identity.expires_at)
                return VerifiedToken(
                    token="", client_id=identity.name, scopes=[], expires_at=expires, identity=identity
                )
        return None


def http_app(
    server: Server[Any], auth: AuthConfig, *, hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> ASGIApp:
    """Return the ASGI application of MCP, at ``/mcp``, without sessions: any replica serves any request.

    ``hosts`` are the names of the server in the Host header besides the loopback address. With authentication each
    request needs an access token; the metadata of the resource (RFC 9728) names its issuer, if there is one.
    """
    names = [*_LOOPBACK, *hosts]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[*(f"http://{name}:*" for name in _LOOPBACK), *origins],
    )
    app = server.streamable_http_app(streamable_http_path=PATH, stateless_http=True, transport_security=security)
    if auth.auth is None:
        return app
    metadata = auth.metadata
    metadata_url = None if metadata is None else AnyHttpUrl(metadata.url)
    guarded = AuthenticationMiddleware(
        AuthContextMiddleware(RequireAuthMiddleware(app, [], metadata_url)),
        backend=BearerAuthBackend(_Verifier(auth.auth)),
    )

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
        elif metadata is not None and scope.get("path") == urlsplit(metadata.url).path:
            await Response(metadata.document, media_type="application/json")(scope, receive, send)
        else:
            await guarded(scope, receive, send)

    return dispatch


async def serve_http(app: ASGIApp, listen_socket: socket.socket, on_start: Callable[[str], None]) -> None:
    """Serve on the socket until a signal; ``on_start`` is called with the URL."""
    host, port = listen_socket.getsockname()[:2]
    on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=30)
    await uvicorn.Server(config).serve([listen_socket])
