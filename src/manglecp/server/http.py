"""HTTP: a request in, a message out. Each request is a session of its own.

Everything that is refused is refused with a message (TRANS-14), in this order: host and origin, path, method, the form
of the request, its size, and then what the message core has against it. A client that closes its connection has
cancelled (TRANS-40).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http.client import responses
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from manglecp.server.asgi import Connection, Header, Receive, Scope, Send, headers_of, respond
from manglecp.server.bodies import Gone, read_body, whole_body
from manglecp.server.core import Core
from manglecp.server.credentials import challenge, present
from manglecp.server.guards import Guards
from manglecp.server.replies import Reply, failure
from manglecp.server.sessions import Session
from manglecp.server.steps import Steps
from manglecp.server.tracing import PARENT, joined
from manglecp.wire import MANIFEST_PATH, Code, WireError

if TYPE_CHECKING:
    from manglecp.server.metrics import Metrics

__all__ = ["Http"]

METRICS_PERMISSION: Final = "read_metrics"
_JSON: Final = (b"content-type", b"application/json")
_BODY_SECONDS: Final = 30.0
_UNWATCHED_SECONDS: Final = 0.02
_NOT_FOUND: Final = Code(404, False, "there is nothing at this path")
_METHOD: Final = Code(405, False, "the path does not take this method")
_UPGRADE: Final = Code(426, False, "there are WebSockets at this path, and this is none")
_FORM: Final = Code(415, False, "the body is in another form than JSON")
_ACCEPT: Final = Code(406, False, "the client takes no JSON")
_NOT_CACHED: Final = (b"cache-control", b"no-store")

Handler = Callable[["_Request"], Steps[None]]


class _Request:
    __slots__ = ("_cors", "_send", "connection", "headers", "method", "peer", "receive")

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        connection: Connection | None,
        headers: Mapping[bytes, bytes],
        cors: list[Header],
    ) -> None:
        self.method: str = scope["method"]
        self.headers = headers
        self.receive = receive
        self.peer: str | None = scope["client"][0] if scope.get("client") else None
        self.connection = connection
        self._send = send
        self._cors = cors

    def answer(self, status: int, body: bytes, *headers: Header) -> Steps[None]:
        head = self.method == "HEAD"
        yield respond(self._send, status, body, (*headers, *self._cors), head=head)

    def refuse(self, error: WireError, *headers: Header) -> Steps[None]:
        return self.reply(failure(error, None), *headers)

    def reply(self, reply: Reply, *headers: Header) -> Steps[None]:
        waiting = reply.retry_after_ms
        usual = self.method == "POST" and waiting is None and not headers and not self._cors
        if usual and self.connection is not None:
            head = _head(reply.status) + b"content-length: %d\r\n" % len(reply.data)
            if self.connection.answer(head, reply.data):
                return
        more = [] if waiting is None else [(b"retry-after", b"%d" % -(-waiting // 1_000))]
        yield from self.answer(reply.status, reply.data, _JSON, _NOT_CACHED, *more, *headers)


class Http:
    """Everything but WebSocket."""

    def __init__(
        self,
        core: Core,
        guards: Guards,
        *,
        metrics: Metrics | None = None,
        metadata: tuple[str, bytes] | None = None,
        max_age: int | None = None,
    ) -> None:
        """``metadata`` is the address of the document about this resource and the document (RFC 9728).

        ``max_age``: seconds that the manifest may be kept; None if it may change at any time (MANI-35).
        """
        self._core = core
        self._guards = guards
        self._metrics = metrics
        self._metadata = metadata
        self._cache = b"no-cache" if max_age is None else b"max-age=%d" % max_age
        base = core.settings.base
        self._routes: dict[str, tuple[tuple[str, ...], Handler]] = {
            MANIFEST_PATH: (("GET", "HEAD"), self._manifest),
            f"{base}/evaluate": (("POST",), lambda request: self._message(request, "intent_request")),
            f"{base}/invoke": (("POST",), lambda request: self._message(request, "invoke_request")),
            f"{base}/ws": (("GET", "HEAD"), self._session),
            "/health": (("GET", "HEAD"), self._health),
            "/ready": (("GET", "HEAD"), self._ready),
        }
        if metrics is not None:
            self._routes["/metrics"] = (("GET", "HEAD"), self._exposed)
        if metadata is not None:
            self._routes[_path(metadata[0])] = (("GET", "HEAD"), self._described)
        self._skills = f"{base}/skills/"

    def steps(self, scope: Scope, receive: Receive, send: Send, connection: Connection | None) -> Steps[None]:
        """From the headers of a request to its answer."""
        headers = headers_of(scope)
        origin = headers.get(b"origin")
        request = _Request(scope, receive, send, connection, headers, [])
        try:
            self._guards.check(headers.get(b"host"), origin, scope["scheme"])
            if origin is not None:
                request = _Request(scope, receive, send, connection, headers, self._guards.cors(origin))
            yield from self._route(request, scope["path"])
        except WireError as error:
            yield from request.refuse(error)
        except Gone:
            return

    def _route(self, request: _Request, path: str) -> Steps[None]:
        methods, handler = self._routes.get(path, (None, None))
        if handler is None and path.startswith(self._skills):
            methods, handler = ("GET", "HEAD"), lambda one: self._skill(one, path[len(self._skills) :])
        if methods is None or handler is None:
            raise WireError("x-not_found", "There is nothing at this path", row=_NOT_FOUND)
        if request.method in methods:
            return handler(request)
        if request.method == "OPTIONS":
            return request.answer(204, b"", *self._guards.preflight())
        allowed = ", ".join((*methods, "OPTIONS"))
        error = WireError("x-method_not_allowed", f"This path takes {allowed}", row=_METHOD)
        return request.refuse(error, (b"allow", allowed.encode()))

    # --- messages ----------------------------------------------------------------------------------------------------

    def _message(self, request: _Request, type_: str) -> Steps[None]:
        began_ns = time.time_ns()
        session = self._core.session("http", peer=request.peer)
        present(session, request.headers, self._core.auth)
        try:
            _fits(request.headers)
            most = self._core.max_message_bytes
            body = whole_body(request.connection, most)
            if body is None:
                body = yield read_body(request.receive, request.headers, most, _BODY_SECONDS)
        except WireError as error:
            reply = failure(error, None)
            self._core.handled(session, None, began_ns, reply)
            yield from request.reply(reply, (b"connection", b"close"))  # the rest of it is not read
            return
        when_gone = (request.connection or _Watched(request.receive)).when_gone
        when_gone(session.cancel_all)
        try:
            if PARENT in request.headers:
                answer = yield _traced(session, body, type_, request.headers)
            else:
                answer = yield from session.answering(body, (type_,))
        finally:
            when_gone(None)
        if answer is None:  # the run of a key was cancelled, which is told where it was asked for
            yield from request.answer(204, b"", _NOT_CACHED)
        else:
            yield from self._reply(request, answer)

    def _reply(self, request: _Request, reply: Reply) -> Steps[None]:
        if reply.status != 401:
            return request.reply(reply)
        url = None if self._metadata is None else self._metadata[0]
        return request.reply(reply, (b"www-authenticate", challenge(reply.code, url)))

    def _known(self, request: _Request, permission: str | None = None) -> Steps[bool]:
        """May whoever asks see what is not a message? If not, they are told so here."""
        session = self._core.session("http", peer=request.peer)
        present(session, request.headers, self._core.auth)
        try:
            self._core.admission.charge_peer(request.peer)
            identity = yield from session.who()
            if permission is not None and self._core.auth.required and permission not in identity.permissions:
                raise WireError("auth_insufficient", f"The permission {permission} is missing")
        except WireError as error:
            yield from self._reply(request, failure(error, None))
            return False
        return True

    def _session(self, request: _Request) -> Steps[None]:
        error = WireError("x-upgrade_required", "Connect with a WebSocket here: ws:// or wss://", row=_UPGRADE)
        return request.refuse(error, (b"upgrade", b"websocket"), (b"connection", b"upgrade"))

    # --- documents ---------------------------------------------------------------------------------------------------

    def _manifest(self, request: _Request) -> Steps[None]:
        document = self._core.manifest(http=True)
        # Booting and draining are over soon.
        steady = document.status in ("ready", "degraded")
        headers = ((b"etag", document.etag.encode()), (b"cache-control", self._cache if steady else b"no-cache"))
        return _document(request, document.data, _JSON, document.etag.encode(), *headers)

    def _skill(self, request: _Request, skill_id: str) -> Steps[None]:
        if not (yield from self._known(request)):
            return
        with self._core.serving.use() as edition:
            skill = edition.domain.pack.skills.get(skill_id)
        if skill is None:
            raise WireError("x-not_found", "There is no skill of that id", row=_NOT_FOUND)
        body = skill.content.encode()
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
        kind = (b"content-type", f"{skill.content_type}; charset=utf-8".encode("latin-1", "replace"))
        extra = ((b"etag", etag), (b"cache-control", b"private, no-cache"), (b"x-content-type-options", b"nosniff"))
        yield from _document(request, body, kind, etag, *extra)

    def _described(self, request: _Request) -> Steps[None]:
        assert self._metadata is not None
        return request.answer(200, self._metadata[1], _JSON, (b"cache-control", b"max-age=300"))

    # --- for whoever runs it -----------------------------------------------------------------------------------------

    def _health(self, request: _Request) -> Steps[None]:
        """The process is alive and its event loop turns."""
        return self._state(request, 200)

    def _ready(self, request: _Request) -> Steps[None]:
        """Requests should be sent here."""
        status = self._core.serving.status
        return self._state(request, 200 if status in ("ready", "degraded") else 503)

    def _state(self, request: _Request, status: int) -> Steps[None]:
        body = b'{"status":"%s"}' % self._core.serving.status.encode()
        return request.answer(status, body, _JSON, _NOT_CACHED)

    def _exposed(self, request: _Request) -> Steps[None]:
        assert self._metrics is not None
        if (yield from self._known(request, METRICS_PERMISSION)):
            kind, body = self._metrics.exposed(self._core)
            yield from request.answer(200, body, (b"content-type", kind.encode()), _NOT_CACHED)


async def _traced(session: Session, body: bytes, type_: str, headers: Mapping[bytes, bytes]) -> Reply | None:
    """A trace is joined by a task: whatever else is done meanwhile has no part in it."""
    with joined(headers):
        return await session.handle(body, (type_,))


class _Watched:
    """A connection under a listener that is not ours. Most answers are there before it is worth while to look whether
    anybody waits for them."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def when_gone(self, told: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if told is not None:
            self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._begin, told)

    def _begin(self, told: Callable[[], None]) -> None:
        self._task = asyncio.create_task(self._watch(told))

    async def _watch(self, told: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        told()


def _document(request: _Request, body: bytes, kind: Header, etag: bytes, *headers: Header) -> Steps[None]:
    known = request.headers.get(b"if-none-match", b"")
    if known == b"*" or etag in (one.strip().removeprefix(b"W/") for one in known.split(b",")):
        return request.answer(304, b"", *headers)
    return request.answer(200, body, kind, *headers)


@lru_cache(maxsize=64)
def _head(status: int) -> bytes:
    """The beginning of what nearly every message is answered with."""
    lines = (b"HTTP/1.1 %d %s" % (status, responses.get(status, "").encode()), *map(b": ".join, (_JSON, _NOT_CACHED)))
    return b"".join(line + b"\r\n" for line in lines)


def _fits(headers: Mapping[bytes, bytes]) -> None:
    """The form of a request (TRANS-13)."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise WireError("x-unsupported_media_type", "A message has the content type application/json", row=_FORM)
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise WireError("x-unsupported_media_type", "A message is sent as it is, not compressed", row=_FORM)
    accept = headers.get(b"accept")
    if accept is not None and not any(map(_takes_json, accept.lower().split(b","))):
        raise WireError("x-not_acceptable", "Answers have the content type application/json", row=_ACCEPT)


def _takes_json(part: bytes) -> bool:
    kind, *params = (one.strip() for one in part.split(b";"))
    if kind not in (b"application/json", b"application/*", b"*/*"):
        return False
    return not any(one.startswith(b"q=") and _is_zero(one[2:]) for one in params)


def _is_zero(weight: bytes) -> bool:
    try:
        return float(weight) == 0.0
    except ValueError:
        return False


def _path(url: str) -> str:
    return urlsplit(url).path
