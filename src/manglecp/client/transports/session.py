"""The interface of transports, the base class of those with a session, and the checks of addresses.

In a session, responses arrive in any order and are matched by id. Messages with an unknown id are dropped: the request
may have been cancelled. A message that cannot be decoded ends the connection, because the client does not know which
request waits for that message.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import SplitResult, urljoin, urlsplit

from manglecp.base.text import truncate
from manglecp.client.errors import ClientError, ConnectionLost, InvalidResponse, RequestRefused, ServerError
from manglecp.wire import WireError, encode, messages, receive_from_server

Request: TypeAlias = (
    messages.IntentRequest
    | messages.InvokeRequest
    | messages.Authenticate
    | messages.ApprovalMessage
    | messages.DecideRequest
    | messages.SkillMessage
    | messages.FactsMessage
)
_RESPONSES: Final[Mapping[type[messages.Message], type[messages.Message]]] = {
    messages.IntentRequest: messages.IntentResponse,
    messages.InvokeRequest: messages.InvokeResponse,
    messages.Authenticate: messages.AuthenticateResponse,
    messages.ApprovalMessage: messages.ApprovalResponse,
    messages.DecideRequest: messages.DecideResponse,
    messages.SkillMessage: messages.SkillResponse,
    messages.FactsMessage: messages.FactsResponse,
}
OnProgress: TypeAlias = Callable[[messages.ProgressPayload], object]
OnManifest: TypeAlias = Callable[[messages.Manifest], None]
MAX_RESPONSE_BYTES: Final = 1 << 24
_CANCEL_SECONDS: Final = 5.0  # time limit for sending a cancel message
_TLS_SCHEMES: Final = frozenset({"https", "wss"})
_DEFAULT_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_MAX_SHOWN_LENGTH: Final = 200  # characters of an address in a message
_log = logging.getLogger(__name__)


class Transport(Protocol):
    """A connection to one server."""

    @property
    def is_persistent(self) -> bool:
        """Whether the connection is a session, with an identity, progress, cancel messages and new manifests."""

    @property
    def connected(self) -> bool:
        """Whether a request can be sent now."""

    async def connect(self, on_manifest: OnManifest) -> messages.Manifest:
        """Connect and return the first manifest; ``on_manifest`` is called with each later one."""

    async def request(
        self, message: Request, data: bytes, headers: dict[str, str], on_progress: OnProgress | None = None
    ) -> messages.ServerMessage:
        """Send a request and return its response, which may be an error. Cancelling the task cancels the request.

        ``data`` is the encoded ``message``. ``headers`` have the credential; a session has been authenticated instead.
        """

    async def close(self) -> None:
        """End the connection, and the server process if the transport started one."""


class _UnknownMessage(InvalidResponse):
    """A message of a type that no server sends; ``id`` is its id."""

    id: str | None = None


def decode_message(data: bytes, max_bytes: int) -> messages.ServerMessage:
    """Return the message. Raises :class:`InvalidResponse`."""
    try:
        return receive_from_server(data, max_bytes)
    except WireError as error:
        failure = (_UnknownMessage if error.code == "invalid_type" else InvalidResponse)(
            f"the message of the server cannot be decoded: {error.message}"
        )
        if isinstance(failure, _UnknownMessage):
            failure.id = error.id
        raise failure from None


def require_response(message: Request, response: messages.ServerMessage) -> messages.ServerMessage:
    """Return the response if its type fits the request. Raises :class:`InvalidResponse`."""
    if not isinstance(response, (_RESPONSES[type(message)], messages.ErrorMessage)):
        raise InvalidResponse("the server responded with a message of another type")
    return response


def cancel_message(request_id: str, request_key: str | None = None) -> bytes:
    """Return the encoded message that cancels a request. With the key of a run, any replica can cancel the run."""
    return encode(messages.Cancel(payload=messages.CancelPayload(request_id=request_id, request_key=request_key)))


class CancelSender:
    """Sends cancel messages in the background, and ignores errors."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, sending: Awaitable[object]) -> None:
        """Await ``sending``, which sends one message, in a task with a time limit."""
        task = asyncio.create_task(_ignore_errors(sending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until all messages are sent: if one were lost, its run would continue."""
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _ignore_errors(sending: Awaitable[object]) -> None:
    with suppress(ClientError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await sending


class _PendingRequest(NamedTuple):
    response: asyncio.Future[messages.ServerMessage]
    on_progress: OnProgress | None


class SessionTransport(ABC):
    """The base class of transports with a session. Subclasses implement the byte stream that the session needs."""

    is_persistent: Final = True

    def __init__(self, *, max_response_bytes: int = MAX_RESPONSE_BYTES, connect_seconds: float = 30.0) -> None:
        self.max_response_bytes = max_response_bytes
        self._connect_seconds = connect_seconds
        self._on_manifest: OnManifest | None = None
        self._first_manifest: asyncio.Future[messages.Manifest] | None = None  # requests are sent after it
        self._end_error: ClientError | None = ConnectionLost("there is no connection")  # None during a connection
        self._pending: dict[str, _PendingRequest] = {}  # by request id
        self._reader: asyncio.Task[None] | None = None
        self._cancel_sender = CancelSender()

    @abstractmethod
    async def open_stream(self) -> None:
        """Connect to the server. Raises :class:`ClientError`."""

    @abstractmethod
    async def read_message(self) -> bytes:
        """Return the bytes of the next message. Raises :class:`ClientError`."""

    @abstractmethod
    async def write_message(self, data: bytes) -> None:
        """Send the bytes of a message. Raises :class:`ConnectionLost`."""

    @abstractmethod
    async def close_stream(self) -> None:
        """Disconnect from the server; without a connection, do nothing."""

    @property
    def connected(self) -> bool:
        return self._end_error is None

    async def connect(self, on_manifest: OnManifest) -> messages.Manifest:
        await self.close()
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self.open_stream()
                self._on_manifest = on_manifest
                first_manifest = self._first_manifest = asyncio.get_running_loop().create_future()
                self._end_error = None
                self._reader = asyncio.create_task(self._listen())
                return await asyncio.shield(first_manifest)
        except TimeoutError:
            await self.close()
            seconds = f"{self._connect_seconds:g} seconds"
            raise ConnectionLost(f"no manifest within {seconds}: a slow server, or none of MangleCP") from None
        except BaseException:
            await self.close()
            raise

    async def request(
        self,
        message: Request,
        data: bytes,
        headers: dict[str, str],  # noqa: ARG002 - the session is authenticated
        on_progress: OnProgress | None = None,
    ) -> messages.ServerMessage:
        if self._end_error is not None:
            raise ConnectionLost(str(self._end_error))
        response: asyncio.Future[messages.ServerMessage] = asyncio.get_running_loop().create_future()
        self._pending[message.id] = _PendingRequest(response, on_progress)
        try:
            await self.write_message(data)
            return require_response(message, await response)
        finally:
            # The request is still pending if the caller's task was cancelled, or if sending failed.
            if self._pending.pop(message.id, None) is not None and self.connected:
                self._cancel_sender.start(self.write_message(cancel_message(message.id)))

    async def close(self) -> None:
        await self._cancel_sender.wait()
        self._end(ConnectionLost("the connection was closed"))
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])
        await self.close_stream()

    async def _listen(self) -> None:
        try:
            while True:
                self._handle(await self.read_message())
        except ClientError as error:
            self._end(error)
        except Exception as error:
            self._end(ConnectionLost(f"reading failed: {type(error).__name__}"))

    def _handle(self, data: bytes) -> None:
        """Handle one message of the server. Raises :class:`InvalidResponse`."""
        assert self._first_manifest is not None
        assert self._on_manifest is not None
        try:
            message = decode_message(data, self.max_response_bytes)
        except _UnknownMessage as unknown:
            if unknown.id in self._pending or not self._first_manifest.done():
                raise
            _log.warning("%s", unknown)
            return
        if not self._first_manifest.done():
            if not isinstance(message, messages.Manifest):
                raise InvalidResponse("the first message of the server is not its manifest")
            self._first_manifest.set_result(message)
        elif isinstance(message, messages.Manifest):
            self._on_manifest(message)
        elif isinstance(message, messages.ProgressMessage):
            pending = self._pending.get(message.id)
            if pending is not None and pending.on_progress is not None:
                try:
                    pending.on_progress(message.payload)
                except Exception:
                    _log.exception("the progress callback failed")
        elif message.id is None:
            assert isinstance(message, messages.ErrorMessage)
            _log.warning("the server sent an error without a request id: %s", ServerError.from_payload(message.payload))
        elif (pending := self._pending.pop(message.id, None)) is not None and not pending.response.done():
            pending.response.set_result(message)

    def _end(self, error: ClientError) -> None:
        """Mark the connection as ended, and raise ``error`` in all tasks that wait for a message."""
        if self._end_error is not None:
            return
        self._end_error = error
        futures: list[asyncio.Future[Any]] = [pending.response for pending in self._pending.values()]
        for future in (*futures, self._first_manifest):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved, so that asyncio logs nothing if no task waits for it
        self._pending.clear()


def check_address(url: str, schemes: Collection[str], *, insecure: bool) -> str:
    """Return the URL. Raises :class:`RequestRefused` if it is malformed, has credentials, or lacks TLS on a network."""
    parts = _split(url)
    if parts.scheme not in schemes or not parts.hostname:
        raise RequestRefused(
            "bad_address", f"{display_address(url)} is not an address with {' or '.join(sorted(schemes))}"
        )
    if parts.username is not None or parts.password is not None:
        raise RequestRefused("bad_address", "an address must not contain credentials; pass them as token")
    if parts.scheme not in _TLS_SCHEMES and not insecure and not _is_loopback(parts.hostname):
        raise RequestRefused(
            "insecure",
            f"{parts.scheme} is not encrypted, and {truncate(parts.hostname, 100)} is not this machine: "
            f"use {parts.scheme}s, or insecure=True if you trust the network",
        )
    return url


def resolve_address(
    base: str, address: str, schemes: Collection[str], *, hosts: Collection[str], insecure: bool
) -> str:
    """Return the URL of an address that the server sent, relative to ``base``, the URL of the message with the address.

    Raises :class:`RequestRefused` for a host that is neither that of ``base`` nor in ``hosts``, or without TLS.
    """
    url = check_address(urljoin(base, address), schemes, insecure=insecure)
    old, new = _split(base), _split(url)
    if old.scheme in _TLS_SCHEMES and new.scheme not in _TLS_SCHEMES:
        raise RequestRefused("insecure", f"the server refers from {old.scheme} to {new.scheme}")
    is_same_server = origin(url)[1:] == origin(base)[1:]  # the same host and port
    if not is_same_server and new.hostname not in hosts and not _is_tls_upgrade(old, new):
        raise RequestRefused(
            "other_host", f"the server refers to another host, {display_address(url)}; list it in hosts to allow it"
        )
    return url


def unreachable_message(url: str, error: Exception) -> str:
    """Return a message that describes why there is no connection."""
    _, host, port = origin(url)
    address = f"{truncate(host, 100)}:{port}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {address} is not valid: {truncate(cause.verify_message, 200)}"
        if isinstance(cause, ssl.SSLError):
            return f"the TLS handshake with {address} failed; does the server use TLS?"
        if isinstance(cause, socket.gaierror):
            return f"there is no host {truncate(host, 100)}"
        if isinstance(cause, ConnectionRefusedError):
            return f"{address} refuses connections: is the server running, and is that its port?"
        cause = cause.__cause__ or cause.__context__
    return f"the connection to {address} failed: {type(error).__name__}"


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port, so that two addresses of one server compare equal."""
    parts = _split(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def _is_tls_upgrade(old: SplitResult, new: SplitResult) -> bool:
    """Return whether the address changes from the default port without TLS to the one with TLS, on the same host."""
    is_upgrade = old.scheme not in _TLS_SCHEMES and new.scheme in _TLS_SCHEMES
    return is_upgrade and old.hostname == new.hostname and old.port in (None, 80) and new.port in (None, 443)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname  # these properties raise ValueError for an invalid port or host
    except ValueError:
        raise RequestRefused("bad_address", f"{display_address(url)} is not an address") from None
    return parts


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def display_address(url: str) -> str:
    """Return the URL for messages, without the parts that may be secret: credentials, query, fragment."""
    return truncate(url.split("?")[0].split("#")[0].rsplit("@", 1)[-1], _MAX_SHOWN_LENGTH)
