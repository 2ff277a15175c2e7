"""The ASGI application: HTTP and WebSocket on one message core.

An HTTP request is a session of its own, and its task does the work. Every refusal is an error message (TRANS-14), in
this order: upgrade, host and origin, path, method, media types, size, and then the checks of the message core. A client
that closes its connection has cancelled (TRANS-40).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from manglecp.server.auth import challenge, credential_of
from manglecp.server.config import Network
from manglecp.server.core import Core
from manglecp.server.middleware import (
    HEADERS,
    JSON,
    NOT_CACHED,
    GuardMiddleware,
    Guards,
    Header,
    refuse_websocket,
    send_error,
    send_response,
)
from manglecp.server.pending import Reply, failure
from manglecp.server.sessions import Session
from manglecp.server.tracing import TRACE_PARENT, join_trace
from manglecp.server.websocket import WebSocketEndpoint
from manglecp.wire import MANIFEST_PATH, Code, WireError, malformed, too_large

if TYPE_CHECKING:
    from manglecp.server.metrics import Metrics

__all__ = ["App", "Disconnected", "read_body", "trusted_hosts"]

METRICS_PERMISSION: Final = "read_metrics"
_BODY_SECONDS: Final = 30.0
_READ_LIMIT: Final = 4
"""Times the size limit: a body up to here is read to its end, so that the client receives the refusal."""
_UNWATCHED_SECONDS: Final = 0.02
"""Most replies are sent before it is worth while to watch for a disconnect."""
_EXPOSED: Final = ("ETag", "Retry-After", "WWW-Authenticate")
_ALLOWED_HEADERS: Final = ("Accept", "Authorization", "Content-Type", "If-None-Match", "X-MangleCP-API-Key")
_NOT_FOUND: Final = Code(404, False, "there is nothing at this path")
_METHOD: Final = Code(405, False, "the path does not take this method")
_UPGRADE: Final = Code(426, False, "there are WebSockets at this path, and this is none")
_MEDIA_TYPE: Final = Code(415, False, "the body is in another form than JSON")
_ACCEPT: Final = Code(406, False, "the client takes no JSON")


class App:
    """Made on the event loop that serves it. Its caller opens and closes the core."""

    def __init__(
        self,
        core: Core,
        guards: Guards | None = None,
        *,
        metrics: Metrics | None = None,
        metadata: tuple[str, bytes] | None = None,
        max_age: int | None = None,
    ) -> None:
        """``metadata`` is the address and the content of the resource's metadata document (RFC 9728).

        ``max_age``: seconds that the manifest may be cached; None if it may change at any time (MANI-35).
        """
        guards = guards or Guards(auth=core.auth.required)
        self.core = core
        self._metrics = metrics
        self._metadata = metadata
        self._cache_control = b"no-cache" if max_age is None else b"max-age=%d" % max_age
        self._websockets = WebSocketEndpoint(core)
        base = core.settings.base
        routes = [
            Route(f"{base}/invoke", _Endpoint(partial(self._message, "invoke_request"), "POST")),
            Route(f"{base}/evaluate", _Endpoint(partial(self._message, "intent_request"), "POST")),
            Route(MANIFEST_PATH, _Endpoint(self._manifest, "GET", "HEAD")),
            Route("/health", _Endpoint(self._health, "GET", "HEAD")),
            Route("/ready", _Endpoint(self._ready, "GET", "HEAD")),
            Route(f"{base}/skills/{{skill:path}}", _Endpoint(self._skill, "GET", "HEAD")),
            Route(f"{base}/ws", _Endpoint(self._no_websocket, "GET", "HEAD")),
            *(WebSocketRoute(path, self._websockets) for path in {f"{base}/ws", f"{base}/", base or "/"}),
        ]
        if metrics is not None:
            routes.append(Route("/metrics", _Endpoint(self._exposed, "GET", "HEAD")))
        if metadata is not None:
            routes.append(Route(urlsplit(metadata[0]).path, _Endpoint(self._resource_metadata, "GET", "HEAD")))
        app: ASGIApp = Router(routes, redirect_slashes=False, default=_not_found)
        if guards.origins:
            app = CORSMiddleware(
                app,
                allow_origins=guards.origins,
                allow_methods=("GET", "HEAD", "POST", "OPTIONS"),
                allow_headers=_ALLOWED_HEADERS,
                expose_headers=_EXPOSED,
            )
        app = GuardMiddleware(app, guards)
        if core.settings.trusted_proxies:
            app = ProxyHeadersMiddleware(app, trusted_hosts(core.settings.trusted_proxies))  # type: ignore[arg-type, assignment]
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def drain(self, grace: float | None = None) -> bool:
        """Drain the core, then close all WebSockets. Returns whether all requests ended in time."""
        drained = await self.core.drain(grace)
        await self._websockets.end()
        return drained

    # --- messages ----------------------------------------------------------------------------------------------------

    async def _message(self, type_: str, request: _Request) -> None:
        began_ns = time.time_ns()
        session = self._session(request)
        try:
            _check_media_types(request.headers)
            body = await read_body(request.receive, request.headers, self.core.max_message_bytes, _BODY_SECONDS)
        except WireError as error:
            reply = failure(error, None)
            self.core.handled(session, None, began_ns, reply)
            await self._reply(request, reply, (b"connection", b"close"))  # the rest of the body is not read
            return
        watch = _DisconnectWatch(request.receive, session.cancel_all)
        try:
            if TRACE_PARENT in request.headers:
                with join_trace(request.headers):
                    answer = await session.handle(body, (type_,))
            else:
                answer = await session.handle(body, (type_,))
        finally:
            watch.stop()
        if answer is None:  # a cancel message by request key: the reply goes to the request that it cancels
            await request.send(204, b"", NOT_CACHED)
        else:
            await self._reply(request, answer)

    async def _reply(self, request: _Request, reply: Reply, *headers: Header) -> None:
        if reply.retry_after_ms is not None:
            headers = (*headers, (b"retry-after", b"%d" % -(-reply.retry_after_ms // 1_000)))
        if reply.status == 401:
            url = None if self._metadata is None else self._metadata[0]
            headers = (*headers, (b"www-authenticate", challenge(reply.code, url)))
        await request.send(reply.status, reply.data, JSON, NOT_CACHED, *headers)

    def _session(self, request: _Request) -> Session:
        session = self.core.session("http", peer=request.peer)
        credential = credential_of(request.headers, self.core.auth)
        if credential is not None:
            session.present(*credential)
        return session

    async def _authorized(self, request: _Request, permission: str | None = None) -> bool:
        """Check the credential of a request that is no message; if it is refused, send the refusal."""
        try:
            self.core.admission.charge_peer(request.peer)
            identity = await self._session(request).identify()
            if permission is not None and self.core.auth.required and permission not in identity.permissions:
                raise WireError("auth_insufficient", f"The permission {permission} is missing")
        except WireError as error:
            await self._reply(request, failure(error, None))
            return False
        return True

    async def _no_websocket(self, request: _Request) -> None:
        error = WireError("x-upgrade_required", "Connect with a WebSocket here: ws:// or wss://", row=_UPGRADE)
        await request.refuse(error, (b"upgrade", b"websocket"), (b"connection", b"upgrade"))

    # --- documents ---------------------------------------------------------------------------------------------------

    async def _manifest(self, request: _Request) -> None:
        document = self.core.manifest(http=True)
        # Booting and draining are over soon.
        cache_control = self._cache_control if document.status in ("ready", "degraded") else b"no-cache"
        await request.send_document(document.data, JSON, document.etag.encode(), (b"cache-control", cache_control))

    async def _skill(self, request: _Request) -> None:
        if not await self._authorized(request):
            return
        with self.core.revisions.use() as revision:
            skill = revision.domain.pack.skills.get(request.path_param("skill"))
        if skill is None:
            raise WireError("x-not_found", "There is no skill of that id", row=_NOT_FOUND)
        body = skill.content.encode()
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
        kind = (b"content-type", f"{skill.content_type}; charset=utf-8".encode("latin-1", "replace"))
        headers = ((b"cache-control", b"private, no-cache"), (b"x-content-type-options", b"nosniff"))
        await request.send_document(body, kind, etag, *headers)

    async def _resource_metadata(self, request: _Request) -> None:
        assert self._metadata is not None
        await request.send(200, self._metadata[1], JSON, (b"cache-control", b"max-age=300"))

    # --- operations --------------------------------------------------------------------------------------------------

    async def _health(self, request: _Request) -> None:
        """The process is alive and its event loop turns."""
        await self._state(request, 200)

    async def _ready(self, request: _Request) -> None:
        """Requests should be sent here."""
        await self._state(request, 200 if self.core.revisions.status in ("ready", "degraded") else 503)

    async def _state(self, request: _Request, status: int) -> None:
        await request.send(status, b'{"status":"%s"}' % self.core.revisions.status.encode(), JSON, NOT_CACHED)

    async def _exposed(self, request: _Request) -> None:
        assert self._metrics is not None
        if await self._authorized(request, METRICS_PERMISSION):
            kind, body = self._metrics.exposed(self.core)
            await request.send(200, body, (b"content-type", kind.encode()), NOT_CACHED)


class _Request:
    __slots__ = ("_scope", "_send", "headers", "peer", "receive")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers: Mapping[bytes, bytes] = scope[HEADERS]
        self.receive = receive
        self.peer: str | None = scope["client"][0] if scope.get("client") else None
        self._scope = scope
        self._send = send

    def path_param(self, name: str) -> str:
        return str(self._scope["path_params"][name])

    async def send(self, status: int, body: bytes, *headers: Header) -> None:
        await send_response(self._scope, self._send, status, body, headers)

    async def send_document(self, body: bytes, kind: Header, etag: bytes, *headers: Header) -> None:
        """304 if the client has it already."""
        known = self.headers.get(b"if-none-match", b"")
        if known == b"*" or etag in (one.strip().removeprefix(b"W/") for one in known.split(b",")):
            await self.send(304, b"", (b"etag", etag), *headers)
        else:
            await self.send(200, body, kind, (b"etag", etag), *headers)

    async def refuse(self, error: WireError, *headers: Header) -> None:
        await send_error(self._scope, self._send, error, *headers)


class _Endpoint:
    """A handler as an ASGI application: methods are checked here, and errors become messages."""

    def __init__(self, handler: Callable[[_Request], Awaitable[None]], *methods: str) -> None:
        self._handler = handler
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _Request(scope, receive, send)
        if scope["method"] in self._methods:
            try:
                await self._handler(request)
            except WireError as error:
                await request.refuse(error)
            except Disconnected:
                return
            return
        allowed = ", ".join((*self._methods, "OPTIONS"))
        if scope["method"] == "OPTIONS":
            await request.send(204, b"", (b"allow", allowed.encode()))
        else:
            refusal = WireError("x-method_not_allowed", f"This path takes {allowed}", row=_METHOD)
            await request.refuse(refusal, (b"allow", allowed.encode()))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        error = WireError("x-not_found", "There is no WebSocket at this path", row=_NOT_FOUND)
        await refuse_websocket(receive, send, error)
    else:
        await send_error(scope, send, WireError("x-not_found", "There is nothing at this path", row=_NOT_FOUND))


class _DisconnectWatch:
    """Calls ``disconnected`` when the client closes the connection before :meth:`stop`."""

    __slots__ = ("_disconnected", "_receive", "_task", "_timer")

    def __init__(self, receive: Receive, disconnected: Callable[[], None]) -> None:
        self._receive = receive
        self._disconnected = disconnected
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._begin)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._disconnected()


# --- bodies ----------------------------------------------------------------------------------------------------------


class Disconnected(Exception):
    """The client closed the connection before the end of the body."""


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int, seconds: float) -> bytes:
    """Read at most ``limit`` bytes within ``seconds``.

    Raises ``message_too_large``, ``malformed_message`` for a body that does not arrive in time, and Disconnected.
    """
    announced = _content_length(headers)
    if announced is not None and announced > _READ_LIMIT * limit:
        raise too_large(announced, limit)
    body, length, more = bytearray(), 0, True
    try:
        async with asyncio.timeout(seconds):
            while more:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise Disconnected
                part, more = event.get("body", b""), event.get("more_body", False)
                length += len(part)
                if length <= limit:
                    body += part
                else:
                    body.clear()
                    if length > _READ_LIMIT * limit:
                        break
    except TimeoutError:
        raise malformed(f"The message did not arrive within {seconds:g} seconds", "$") from None
    if length > limit:
        raise too_large(length, limit)
    return bytes(body)


def _content_length(headers: Mapping[bytes, bytes]) -> int | None:
    try:
        return int(headers[b"content-length"])
    except (KeyError, ValueError):
        return None


def _check_media_types(headers: Mapping[bytes, bytes]) -> None:
    """Messages are JSON in both directions (TRANS-13)."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise WireError("x-unsupported_media_type", "A message has the content type application/json", row=_MEDIA_TYPE)
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise WireError("x-unsupported_media_type", "A message is sent as it is, not compressed", row=_MEDIA_TYPE)
    accept = headers.get(b"accept")
    if accept is not None and not any(map(_accepts_json, accept.lower().split(b","))):
        raise WireError("x-not_acceptable", "Answers have the content type application/json", row=_ACCEPT)


def _accepts_json(part: bytes) -> bool:
    kind, *params = (one.strip() for one in part.split(b";"))
    if kind not in (b"application/json", b"application/*", b"*/*"):
        return False
    return not any(one.startswith(b"q=") and _is_zero(one[2:]) for one in params)


def _is_zero(weight: bytes) -> bool:
    try:
        return float(weight) == 0.0
    except ValueError:
        return False


def trusted_hosts(networks: tuple[Network, ...]) -> list[str]:
    """The networks for the proxy middleware, also in IPv4-mapped form: a dual-stack socket has such peers."""
    mapped = [f"::ffff:{one.network_address}/{96 + one.prefixlen}" for one in networks if one.version == 4]
    return [*map(str, networks), *mapped]
