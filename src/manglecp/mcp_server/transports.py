"""MCP over standard streams and over Streamable HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.authentication import AuthCredentials
from starlette.datastructures import Headers
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from manglecp.mcp_server.handlers import VerifiedToken
from manglecp.mcp_server.subscriptions import end_subscriptions
from manglecp.server import AuthConfig, Guards, RequestLimits, json_rpc_refusal, send_error
from manglecp.server.auth import Auth
from manglecp.wire import WireError

PATH: Final = "/mcp"
_DIRECTIONS: Final = json_rpc_refusal(
    None, f"MCP hosts connect to {PATH} of this server, with POST; `manglecp serve` serves MangleCP clients"
)


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


class _Authentication(BearerAuthBackend):
    """Limits the invalid tokens from an address, as our own server does; valid ones are not limited."""

    def __init__(self, auth: Auth, limits: RequestLimits) -> None:
        super().__init__(_Verifier(auth))
        self._limits = limits

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, AuthenticatedUser] | None:
        """Return the user of the token, or None without a valid one. Raises :class:`WireError`: ``rate_limited``."""
        found: tuple[AuthCredentials, AuthenticatedUser] | None = await super().authenticate(conn)
        if found is None and "authorization" in conn.headers:
            self._limits.charge_failed_attempt(None if conn.client is None else conn.client.host)
        return found


def http_app(server: Server[Any], auth: AuthConfig, guards: Guards, limits: RequestLimits) -> ASGIApp:
    """Return the ASGI application of MCP, at ``/mcp``, without sessions: any replica serves any request.

    ``guards`` check the hosts and origins of requests, and ``limits`` count invalid access tokens. With authentication
    each request needs an access token; the metadata of the resource (RFC 9728) names its issuer, if there is one.
    """
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the guards protect
    app = server.streamable_http_app(streamable_http_path=PATH, stateless_http=True, transport_security=security)
    metadata = auth.metadata
    metadata_url = None if metadata is None else AnyHttpUrl(metadata.url)
    endpoint: ASGIApp = app
    if auth.auth is not None:
        endpoint = AuthenticationMiddleware(
            AuthContextMiddleware(RequireAuthMiddleware(app, [], metadata_url)),
            backend=_Authentication(auth.auth, limits),
        )

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        is_endpoint = scope["path"] == PATH
        if is_endpoint and (scope["method"] != "GET" or "text/event-stream" in Headers(scope=scope).get("accept", "")):
            await endpoint(scope, receive, send)
        elif metadata is not None and scope["path"] == urlsplit(metadata.url).path:
            await Response(metadata.document, media_type="application/json")(scope, receive, send)
        else:
            status = 406 if is_endpoint else 404
            await Response(_DIRECTIONS, status, media_type="application/json")(scope, receive, send)

    routes: ASGIApp = route
    if guards.origins:
        methods = ("GET", "POST", "DELETE")
        exposed = ("WWW-Authenticate",)
        routes = CORSMiddleware(route, guards.origins, methods, allow_headers=("*",), expose_headers=exposed)

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        try:
            guards.check(headers.get(b"host"), headers.get(b"origin"), scope["scheme"])
            await routes(scope, receive, send)
        except WireError as error:  # of the guards or the limits: no response was begun
            await send_error(scope, send, error)

    return check


class _HttpServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, server: Server[Any]) -> None:
        super().__init__(config)
        self._server = server

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        end_subscriptions(self._server)  # uvicorn waits for open streams
        await super().shutdown(sockets)


async def serve_http(
    server: Server[Any], app: ASGIApp, listen_socket: socket.socket, on_start: Callable[[str], None]
) -> None:
    """Serve ``app``, the server's application, on the socket until a signal; ``on_start`` is called with the URL."""
    host, port = listen_socket.getsockname()[:2]
    on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
    # httptools would keep the space at the end of a header's value, which then differs from the value in the message
    config = uvicorn.Config(app, http="h11", ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=30)
    await _HttpServer(config, server).serve([listen_socket])
