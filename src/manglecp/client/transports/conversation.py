"""The requests under way on one connection that lasts, and what comes back for each of them.

Answers come in any order and find their request by id (TRANS-33). Progress and answers for ids that nobody waits for
are skipped (PROG-07): the request may have been given up. A message that cannot be read ends the connection, because
nobody knows for whom it was.
"""

from __future__ import annotations

import asyncio
import logging

from manglecp.client.errors import ClientError, ConnectionLost, ServerError, Unreadable
from manglecp.client.transports.protocol import OnManifest, OnProgress, Request
from manglecp.wire import WireError, encode, receive_from_server
from manglecp.wire.messages import (
    Authenticate,
    AuthenticateResponse,
    Cancel,
    CancelPayload,
    ErrorMessage,
    IntentRequest,
    IntentResponse,
    InvokeResponse,
    Manifest,
    Progress,
    ServerMessage,
)

__all__ = ["Conversation", "cancellation", "read", "require_answer"]

_log = logging.getLogger(__name__)


class Conversation:
    """What is said on one connection. The transport feeds it, and tells it when the connection ends."""

    def __init__(self, max_bytes: int, on_manifest: OnManifest) -> None:
        self._max_bytes = max_bytes
        self._on_manifest = on_manifest
        self._first: asyncio.Future[Manifest] = asyncio.get_running_loop().create_future()
        self._pending: dict[str, tuple[asyncio.Future[ServerMessage], OnProgress | None]] = {}
        self._ended: ClientError | None = None

    @property
    def ended(self) -> bool:
        """Will no further message come?"""
        return self._ended is not None

    async def manifest(self) -> Manifest:
        """The first message, which is the manifest; nothing is sent before it is here (TRANS-03)."""
        return await asyncio.shield(self._first)

    def begin(self, request: str, on_progress: OnProgress | None) -> asyncio.Future[ServerMessage]:
        """The answer to come."""
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        answer: asyncio.Future[ServerMessage] = asyncio.get_running_loop().create_future()
        self._pending[request] = answer, on_progress
        return answer

    def forget(self, request: str) -> bool:
        """Nobody waits for it any more; was it still under way?"""
        return self._pending.pop(request, None) is not None

    def feed(self, data: bytes) -> None:
        """One message of the server; :class:`Unreadable` if it is none."""
        message = read(data, self._max_bytes)
        if not self._first.done():
            if not isinstance(message, Manifest):
                raise Unreadable("the first message of the server is not its manifest")
            self._first.set_result(message)
        elif isinstance(message, Manifest):
            self._on_manifest(message)
        elif isinstance(message, Progress):
            _, on_progress = self._pending.get(message.id, (None, None))
            if on_progress is not None:
                _tell(on_progress, message)
        elif message.id is None:
            assert isinstance(message, ErrorMessage)
            _log.warning("the server reports an error that belongs to no request: %s", ServerError.of(message.payload))
        else:
            answer, _ = self._pending.pop(message.id, (None, None))
            if answer is not None and not answer.done():
                answer.set_result(message)

    def end(self, reason: ClientError) -> None:
        """The connection is over; everybody who waits hears why."""
        if self._ended is not None:
            return
        self._ended = reason
        if not self._first.done():
            self._first.set_exception(reason)
            self._first.exception()  # perhaps nobody asks
        for answer, _ in self._pending.values():
            if not answer.done():
                answer.set_exception(reason)
                answer.exception()
        self._pending.clear()


def read(data: bytes, max_bytes: int) -> ServerMessage:
    """The message that the server sent."""
    try:
        return receive_from_server(data, max_bytes)
    except WireError as error:
        raise Unreadable(f"the server sent something that cannot be read: {error.message}") from None


def require_answer(message: Request, answer: ServerMessage) -> ServerMessage:
    """The answer, if it is one to this request."""
    if isinstance(message, IntentRequest):
        wanted: type = IntentResponse
    else:
        wanted = AuthenticateResponse if isinstance(message, Authenticate) else InvokeResponse
    if not isinstance(answer, wanted | ErrorMessage):
        raise Unreadable("the server answered with a message of another kind")
    return answer


def cancellation(request: str, request_key: str | None = None) -> bytes:
    """The message that asks the server to stop a request (TRANS-36)."""
    return encode(Cancel(payload=CancelPayload(request_id=request, request_key=request_key)))


def _tell(on_progress: OnProgress, message: Progress) -> None:
    try:
        on_progress(message.payload)
    except Exception:
        _log.exception("what was to be told of progress failed")
