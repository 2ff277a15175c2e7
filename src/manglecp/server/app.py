"""The ASGI application: HTTP and WebSocket on one message core.

Each HTTP request has a :class:`Session` object of its own, and is handled in the task that uvicorn starts for it.
Every refusal is an error message (requirement TRANS-14). The checks run in this order: upgrade, host and origin, path,
method, media types, size, then the checks of the message core. A client cancels its request by closing the connection
(TRANS-40).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from manglecp.intent import Identity
from manglecp.server.auth import CREDENTIAL_HEADERS, challenge, credential_of
from manglecp.server.config import Network
from manglecp.server.core import Core, strong_etag
from manglecp.server.middleware import (
    HEADERS,
    JSON,
    NOT_CACHED,
    GuardMiddleware,
    Guards,
    Header,
    refuse_websocket,
    retry_after,
    send_error,
    send_response,
)
from manglecp.server.pending import Reply, error_reply, internal_error, json_rpc_refusal
from manglecp.server.sessions import Session
from manglecp.server.tracing import use_trace_context
from manglecp.server.websocket import WebSocketEndpoint
from manglecp.store import StoreError
from manglecp.wire import MANIFEST_PATH, CodeRow, WireError, malformed, too_large
from manglecp.wire.messages import VERSION

if TYPE_CHECKING:
    from manglecp.server.auth_config import ResourceMetadata
    from manglecp.server.metrics import Metrics

_METRICS_PERMISSION: Final = "read_metrics"
_BODY_SECONDS: Final = 30.0  # time limit for reading a body
_WATCH_AFTER_SECONDS: Final = 0.02  # most requests end before that, and need no task that waits for a disconnect
_READ_FACTOR: Final = 4
"""A body over the limit is read up to this multiple of it: many clients read no response before they have sent all."""
_EXPOSED_HEADERS: Final = ("ETag", "Retry-After", "WWW-Authenticate")  # response headers that pages may read
_ALLOWED_HEADERS: Final = ("Accept", "Authorization", "Content-Type", "If-None-Match", "X-MangleCP-API-Key")
_ZERO_WEIGHT: Final = re.compile(rb"q=0(?:\.0*)?")  # marks a media range as not accepted (RFC 9110)
# Errors of HTTP only: status, whether a client may retry, and description.
_NOT_FOUND: Final = CodeRow(404, False, "there is nothing at this path")
_METHOD_NOT_ALLOWED: Final = CodeRow(405, False, "the path does not support this method")
_UPGRADE_REQUIRED: Final = CodeRow(426, False, "the path serves WebSockets only")
_NOT_JSON: Final = CodeRow(415, False, "the body is not plain JSON")
_NOT_ACCEPTABLE: Final = CodeRow(406, False, "the client does not accept JSON")


class App:
    """An ASGI application for a core that its caller opens and closes."""

    def __init__(
        self,
        core: Core,
        guards: Guards | None = None,
        *,
        metrics: Metrics | None = None,
        metadata: ResourceMetadata | None = None,
        max_age: int | None = None,
    ) -> None:
        """Create the routes; call this on the event loop that serves them.

        ``metadata`` is served to clients that need an access token. ``max_age`` is the number of seconds that clients
        may cache the manifest; None if it may change at any time (MANI-35).
        """
        guards = guards or Guards(auth_required=core.auth.required)
        self.core = core
        self._metadata_url = None if metadata is None else metadata.url
        self._websockets = WebSocketEndpoint(core)
        base, read_methods = core.settings.base, ("GET", "HEAD")
        routes = [
            self._route(f"{base}/invoke", partial(self._handle_message, "invoke_request"), "POST"),
            self._route(f"{base}/evaluate", partial(self._handle_message, "intent_request"), "POST"),
            self._route(f"{base}/approvals", partial(self._handle_message, "x-approval_request"), "POST"),
            self._route(f"{base}/decide", partial(self._handle_message, "x-decide_request"), "POST"),
            self._route(f"{base}/skills", partial(self._handle_message, "x-skill_request"), "POST"),
            self._route(f"{base}/facts", partial(self._handle_message, "x-facts_request"), "POST"),
            self._route(f"{base}/facts/{{source}}", self._put_facts, "PUT"),
            self._route(MANIFEST_PATH, partial(self._send_manifest, max_age), *read_methods),
            self._route("/health", partial(self._send_status, must_be_ready=False), *read_methods),
            self._route("/ready", partial(self._send_status, must_be_ready=True), *read_methods),
            self._route(f"{base}/skills/{{skill:path}}", self._send_skill, *read_methods),
            self._route(f"{base}/ws", self._refuse_plain_http, *read_methods),
            # A set, because without a base the last two paths are the same.
            *(WebSocketRoute(path, self._websockets) for path in {f"{base}/ws", f"{base}/", base or "/"}),
        ]
        if metrics is not None:
            routes.append(self._route("/metrics", partial(self._send_metrics, metrics), *read_methods))
        if metadata is not None:
            routes.append(
                self._route(urlsplit(metadata.url).path, partial(self._send_metadata, metadata.document), *read_methods)
            )
        app: ASGIApp = Router(routes, redirect_slashes=False, default=_not_found)
        if guards.origins:
            app = CORSMiddleware(
                app,
                allow_origins=guards.origins,
                allow_methods=("GET", "HEAD", "POST", "PUT", "OPTIONS"),
                allow_headers=_ALLOWED_HEADERS,
                expose_headers=_EXPOSED_HEADERS,
            )
        app = GuardMiddleware(app, guards)
        if core.settings.trusted_proxies:
            app = ProxyHeadersMiddleware(app, proxy_addresses(core.settings.trusted_proxies))  # type: ignore[arg-type, assignment]
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def drain(self, grace: float | None = None) -> bool:
        """Drain the core, then close all WebSockets. Returns whether all requests ended within ``grace`` seconds."""
        all_ended = await self.core.drain(grace)
        await self._websockets.end()
        return all_ended

    def _route(self, path: str, handler: _Handler, *methods: str) -> Route:
        return Route(path, _Endpoint(handler, self._send_reply, methods))

    async def _handle_message(
        self, type_: str, request: _Request, message_of: Callable[[bytes], bytes] | None = None
    ) -> None:
        began_ns = time.time_ns()
        session = self._open_session(request)
        try:
            _check_media_types(request.headers)
            limit = self.core.pack_settings.limits.max_message_bytes
            body = await read_body(request.receive, request.headers, limit, _BODY_SECONDS)
            if message_of is not None:
                body = await asyncio.to_thread(message_of, body)
        except WireError as error:
            reply = error_reply(error)
            self.core.report_handled(session, None, began_ns, reply)
            await self._send_reply(request, reply)
            return
        watchers: list[asyncio.Task[None]] = []
        watch = partial(_watch, request.receive, session, watchers)
        timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, watch)
        try:
            if b"traceparent" in request.headers:
                with use_trace_context(request.headers):
                    response = await session.handle(body, (type_,))
            else:
                response = await session.handle(body, (type_,))
        finally:
            timer.cancel()
            for watcher in watchers:
                watcher.cancel()
        if response is None:  # a cancel message has no reply; the request that it cancels has one
            await request.send(204, b"", NOT_CACHED)
        else:
            await self._send_reply(request, response)

    async def _send_reply(self, request: _Request, reply: Reply, *headers: Header) -> None:
        headers = (*headers, *retry_after(reply))
        if reply.status == 401:
            headers = (*headers, (b"www-authenticate", challenge(reply.code, self._metadata_url)))
        await request.send(reply.status, reply.data, JSON, NOT_CACHED, *headers)

    def _open_session(self, request: _Request) -> Session:
        session = self.core.session("http", peer=request.peer)
        if not CREDENTIAL_HEADERS.isdisjoint(request.headers):
            credential = credential_of(request.headers, self.core.auth)
            if credential is not None:
                session.set_credential(*credential)
        return session

    async def _authorize(self, request: _Request, permission: str | None = None) -> Identity:
        """Check the credential of a request that is not a message, and return its identity. Raises WireError."""
        self.core.request_limits.charge_peer(request.peer)
        identity = await self._open_session(request).identify()
        # A server without authentication grants every permission: its clients have none of their own.
        if permission is not None and self.core.auth.required and permission not in identity.permissions:
            raise WireError("auth_insufficient", f"The permission {permission} is missing")
        return identity

    async def _refuse_plain_http(self, request: _Request) -> None:
        error = WireError("x-upgrade_required", "Connect with a WebSocket here: ws:// or wss://", row=_UPGRADE_REQUIRED)
        await self._send_reply(request, error_reply(error), (b"upgrade", b"websocket"), (b"connection", b"upgrade"))

    async def _send_manifest(self, max_age: int | None, request: _Request) -> None:
        document = self.core.manifest(http=True)
        cache_control = b"no-cache"
        if max_age is not None and document.status in ("ready", "degraded"):  # other statuses change soon
            cache_control = b"max-age=%d" % max_age
        await request.send_document(document.data, JSON, document.etag, (b"cache-control", cache_control))

    async def _send_skill(self, request: _Request) -> None:
        identity = await self._authorize(request)
        try:
            with self.core.revisions.use() as revision:
                (skill,) = await revision.offers.skills(identity, request.path_param("skill"))
        except StoreError as error:
            self.core.revisions.store_failed(error, {})
            raise internal_error() from None
        body, media_type = skill.content.encode(), skill.content_type or "text/markdown"
        content_type = (b"content-type", f"{media_type}; charset=utf-8".encode("latin-1", "replace"))
        headers = ((b"cache-control", b"private, no-cache"), (b"x-content-type-options", b"nosniff"))
        await request.send_document(body, content_type, strong_etag(body), *headers)

    async def _put_facts(self, request: _Request) -> None:
        """Replace the facts of a source with a JSON array of fact objects, or with Mangle text (``text/plain``)."""
        source, headers = request.path_param("source"), request.headers
        if not headers.get(b"content-type", b"").lower().startswith(b"text/plain"):
            await self._handle_message("x-facts_request", request, partial(_facts_message, source, "facts"))
            return
        request.headers = {**headers, b"content-type": b"application/json"}  # that of the message made from the body
        await self._handle_message("x-facts_request", request, partial(_facts_message, source, "text"))

    async def _send_metadata(self, document: bytes, request: _Request) -> None:
        await request.send(200, document, JSON, (b"cache-control", b"max-age=300"))

    async def _send_status(self, request: _Request, *, must_be_ready: bool) -> None:
        status = self.core.revisions.status
        code = 503 if must_be_ready and status not in ("ready", "degraded") else 200
        await request.send(code, b'{"status":"%s"}' % status.encode(), JSON, NOT_CACHED)

    async def _send_metrics(self, metrics: Metrics, request: _Request) -> None:
        await self._authorize(request, _METRICS_PERMISSION)
        content_type, body = metrics.render(self.core)
        await request.send(200, body, (b"content-type", content_type.encode()), NOT_CACHED)


class _Request:
    """An HTTP request, and the means to respond to it. ``peer`` is the client's network address."""

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

    async def send_document(self, body: bytes, content_type: Header, etag: str, *headers: Header) -> None:
        """Send the document, or 304 if the client has it already."""
        if_none_match = self.headers.get(b"if-none-match", b"").decode("latin-1")  # ETags, separated by commas
        cached_etags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]  # W/ marks a weak tag
        if if_none_match == "*" or etag in cached_etags:
            await self.send(304, b"", (b"etag", etag.encode()), *headers)
        else:
            await self.send(200, body, content_type, (b"etag", etag.encode()), *headers)


_Handler = Callable[[_Request], Awaitable[None]]


class _Endpoint:
    """An ASGI application around a handler: checks the method, and turns a WireError into a reply."""

    def __init__(self, handler: _Handler, send_reply: Callable[..., Awaitable[None]], methods: tuple[str, ...]) -> None:
        self._handler = handler
        self._send_reply = send_reply
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _Request(scope, receive, send)
        try:
            if scope["method"] in self._methods:
                await self._handler(request)
                return
            supported = ", ".join((*self._methods, "OPTIONS"))
            allow = (b"allow", supported.encode())
            if scope["method"] == "OPTIONS":
                await request.send(204, b"", allow)
            else:
                text = f"This path supports {supported}"
                refusal = WireError("x-method_not_allowed", text, row=_METHOD_NOT_ALLOWED)
                await self._send_reply(request, error_reply(refusal), allow)
        except WireError as error:
            await self._send_reply(request, error_reply(error))
        except Disconnected:
            return


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        error = WireError("x-not_found", "There is no WebSocket at this path", row=_NOT_FOUND)
        await refuse_websocket(receive, send, error)
    elif b"text/event-stream" in scope[HEADERS].get(b"accept", b""):  # a client of MCP
        await send_response(scope, send, 404, json_rpc_refusal(None), (JSON, NOT_CACHED))
    else:
        text = f"There is nothing at this path; the manifest is at {MANIFEST_PATH}"
        await send_error(scope, send, WireError("x-not_found", text, row=_NOT_FOUND))


def _facts_message(source: str, member: str, body: bytes) -> bytes:
    """Return the message of a request to ``/facts/SOURCE``. Raises ``malformed_message``."""
    try:
        # Decoded first: a body that is no array could add members to the message.
        content = msgspec.json.decode(body, type=list[msgspec.Raw]) if member == "facts" else body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        expected = "a JSON array of facts" if member == "facts" else "text in UTF-8"
        raise malformed(f"The body is not {expected}", "$") from None
    message = {"type": "x-facts_request", "id": "put", "manglecp": VERSION}
    return msgspec.json.encode({**message, "payload": {"source": source, member: content}})


def _watch(receive: Receive, session: Session, watchers: list[asyncio.Task[None]]) -> None:
    """Start a task that disconnects the session if the client closes the connection; add it to ``watchers``."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        session.disconnect()

    watchers.append(asyncio.create_task(watch()))


class Disconnected(Exception):
    """The client closed the connection before the end of the body."""


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int, seconds: float) -> bytes:
    """Read a body of at most ``limit`` bytes within ``seconds``.

    Raises ``message_too_large``, ``malformed_message`` for a body that does not arrive in time, and Disconnected.
    """
    content_length = headers.get(b"content-length", b"")
    if content_length.isdigit() and int(content_length) > _READ_FACTOR * limit:
        raise too_large(int(content_length), limit)
    body, length, more = bytearray(), 0, True
    # A timer, because asyncio.timeout takes five times as long, and most bodies have arrived already.
    task, timed_out = asyncio.current_task(), False

    def expire() -> None:
        nonlocal timed_out
        timed_out = True
        task.cancel()  # type: ignore[union-attr]  # a coroutine runs in a task

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        while more and length <= _READ_FACTOR * limit:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise Disconnected
            part, more = event.get("body", b""), event.get("more_body", False)
            length += len(part)
            if length <= limit:
                body += part
            else:  # beyond the limit only the length is counted
                body.clear()
    except asyncio.CancelledError:
        # Cancelled by other code, alone or as well as by expire().
        if task is None or not timed_out or task.uncancel() > 0:
            raise
        raise malformed(f"The message did not arrive within {seconds:g} seconds", "$") from None
    finally:
        timer.cancel()
    if length > limit:
        raise too_large(length, limit)
    return bytes(body)


def _check_media_types(headers: Mapping[bytes, bytes]) -> None:
    """Raise WireError unless the message is JSON and the client accepts JSON (TRANS-13)."""
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json":
        raise WireError("x-unsupported_media_type", "A message has the content type application/json", row=_NOT_JSON)
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise WireError("x-unsupported_media_type", "Send the message uncompressed", row=_NOT_JSON)
    accept = headers.get(b"accept")
    if accept is not None and not any(map(_accepts_json, accept.lower().split(b","))):
        raise WireError("x-not_acceptable", "Responses have the content type application/json", row=_NOT_ACCEPTABLE)


def _accepts_json(media_range: bytes) -> bool:
    media_type, *params = (part.strip() for part in media_range.split(b";"))
    matches = media_type in (b"application/json", b"application/*", b"*/*")
    return matches and not any(map(_ZERO_WEIGHT.fullmatch, params))


def proxy_addresses(networks: tuple[Network, ...]) -> list[str]:
    """Return the networks, and the IPv4 ones in IPv6 form too: a dual-stack socket reports IPv4 peers in that form."""
    mapped_networks = [f"::ffff:{net.network_address}/{96 + net.prefixlen}" for net in networks if net.version == 4]
    return [*map(str, networks), *mapped_networks]
