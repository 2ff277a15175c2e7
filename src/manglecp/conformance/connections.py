"""Connections to a server under test: they send any bytes, and keep and strictly decode each received message."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypeAlias
from urllib.parse import urljoin

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from manglecp.wire import Fault, read_instant

Transport = Literal["http", "websocket", "stdio"]
Headers: TypeAlias = Mapping[str, str] | None
Endpoint = Literal["evaluate", "invoke", "approvals"]
_BOM: Final = b"\xef\xbb\xbf"


class Disconnected(Exception):
    """The server cannot be reached, or closed the connection."""


class InvalidMessage(Exception):
    """The server sent bytes that are no message. ``row`` is the id of the violated requirement."""

    def __init__(self, row: str, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}, seen {seen}")
        self.row, self.expected, self.seen = row, expected, seen


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """A message of the server, which may violate the protocol: ``id``, ``type`` and ``code`` can be any JSON value.

    ``data`` are the received bytes; ``status`` and ``headers`` are those of the HTTP response, if there is one;
    ``progress`` are the earlier progress messages with the same id.
    """

    envelope: dict[str, Any]
    data: bytes
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    progress: tuple[dict[str, Any], ...] = ()

    @property
    def id(self) -> Any:
        return self.envelope.get("id")

    @property
    def has_null_id(self) -> bool:
        return "id" in self.envelope and self.id is None

    @property
    def type(self) -> Any:
        return self.envelope.get("type")

    @property
    def payload(self) -> dict[str, Any]:
        payload = self.envelope.get("payload")
        return payload if isinstance(payload, dict) else {}

    @property
    def code(self) -> Any:
        return self.payload.get("code") if self.type == "error" else None

    @property
    def details(self) -> dict[str, Any]:
        details = self.payload.get("details")
        return details if isinstance(details, dict) else {}

    @property
    def violations(self) -> list[dict[str, Any]]:
        return get_objects(self.details, "violations")

    @property
    def tools(self) -> list[dict[str, Any]]:
        return get_objects(self.payload, "macro_tools")

    def __str__(self) -> str:
        if self.type == "error":
            status = "" if self.status is None else f" with status {self.status}"
            return f"error {self.code}{status} ({self.payload.get('message')}), id {self.id!r}"
        return f"{self.type}, id {self.id!r}"


OnMessage = Callable[[ServerMessage], None]


def parse_instant(text: object) -> float | None:
    """Return the Unix time in seconds of an RFC 3339 timestamp; None for anything else."""
    try:
        return read_instant(text) / 1e9 if isinstance(text, str) else None
    except Fault:
        return None


def get_path(node: Any, *path: str) -> Any:
    """Return the value at a path of member names in nested JSON objects; None if a member is missing."""
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def get_objects(node: Any, *path: str) -> list[dict[str, Any]]:
    """Return the objects in the list at a path; an empty list if there is no list."""
    items = get_path(node, *path)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def read_message(data: bytes) -> dict[str, Any]:
    """Decode one JSON object, strictly by RFC 8259 and without repeated keys. Raises :class:`InvalidMessage`."""
    if data.startswith(_BOM):
        raise InvalidMessage("WIRE-24", "UTF-8 without a byte order mark", "a byte order mark")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessage("WIRE-24", "UTF-8", f"{error.reason} at byte {error.start}") from None
    try:
        message = json.loads(text, object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("WIRE-16", "JSON", f"{error}: {text[:200]!r}") from None
    if not isinstance(message, dict):
        raise InvalidMessage("WIRE-01", "a JSON object", text[:200])
    return message


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a key twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidMessage("WIRE-18", "JSON numbers", name)


class SessionConnection(ABC):
    """A connection that stays open; a background task receives all messages, also those that no request waits for.

    A terminal message is any message except a manifest and progress: it ends the request with its id.
    """

    transport: Transport

    def __init__(self, on_message: OnMessage) -> None:
        self._on_message = on_message
        self.unread: deque[ServerMessage] = deque()  # terminal messages that next() has not returned
        self._progress: dict[str | None, list[dict[str, Any]]] = {}  # by request id
        self.manifests: list[ServerMessage] = []
        self.first: ServerMessage | None = None  # the first message of the connection
        self._finished_ids: set[str] = set()  # ids whose terminal message was received
        self.late_progress: list[dict[str, Any]] = []  # received after the terminal message with the same id
        self.repeated: list[ServerMessage] = []  # further terminal messages with the same id
        self._changed = asyncio.Condition()
        self._end_error: Exception | None = None  # why no more messages are received
        self._receiver: asyncio.Task[None] | None = None

    @abstractmethod
    async def _connect(self) -> None: ...

    @abstractmethod
    async def _read(self) -> bytes:
        """Return the bytes of the next message. Raises :class:`Disconnected` or :class:`InvalidMessage`."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send one message. Raises :class:`Disconnected`."""

    @abstractmethod
    async def _disconnect(self) -> None: ...

    async def open(self) -> ServerMessage:
        """Connect, start the background task, and return the first message."""
        await self._connect()
        data = await self._read()
        self.first = ServerMessage(read_message(data), data)
        self._on_message(self.first)
        if self.first.type == "manifest":
            self.manifests.append(self.first)
        self._receiver = asyncio.create_task(self._receive())
        return self.first

    async def request(self, data: bytes, endpoint: Endpoint = "evaluate") -> ServerMessage:  # noqa: ARG002  as on HTTP
        """Send a message and return the next terminal message, whatever its id."""
        await self.write(data)
        return await self.next()

    async def next(self) -> ServerMessage:
        """Return the next terminal message. Raises the error that ended the connection if none is left."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.unread or self._end_error is not None)
        if not self.unread:
            assert self._end_error is not None
            raise self._end_error
        return self.unread.popleft()

    async def wait_closed(self) -> None:
        """Wait until the server closes the connection. Raises :class:`InvalidMessage` if an invalid message arrives."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._end_error is not None)
        if isinstance(self._end_error, InvalidMessage):
            raise self._end_error

    async def close(self) -> None:
        try:
            await self._disconnect()
        finally:
            if self._receiver is not None:
                self._receiver.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._receiver

    async def _receive(self) -> None:
        while self._end_error is None:
            try:
                data = await self._read()
                self._dispatch(data, read_message(data))
            except (Disconnected, InvalidMessage) as error:
                self._end_error = error
            async with self._changed:
                self._changed.notify_all()

    def _dispatch(self, data: bytes, envelope: dict[str, Any]) -> None:
        id_ = envelope.get("id")
        request_id = id_ if isinstance(id_, str) else None
        progress = () if request_id is None else tuple(self._progress.get(request_id, ()))
        received = ServerMessage(envelope, data, progress=progress)
        self._on_message(received)
        if received.type == "manifest":
            self.manifests.append(received)
        elif received.type == "progress":
            if request_id in self._finished_ids:
                self.late_progress.append(envelope)
            self._progress.setdefault(request_id, []).append(envelope)
        elif request_id in self._finished_ids:
            self.repeated.append(received)
        else:
            if request_id is not None:
                self._finished_ids.add(request_id)
            self.unread.append(received)


MANIFEST_PATH: Final = "/.well-known/manglecp/manifest.json"
_JSON_HEADERS: Final = {"content-type": "application/json", "accept": "application/json"}
_MANIFEST_MEMBERS: Final[Mapping[Endpoint, str]] = {  # the names in the member ``endpoints`` of the manifest
    "evaluate": "intent_eval",
    "invoke": "macro_invoke",
    "approvals": "x-approvals",
}


class HttpConnection:
    """A client without a session: each message is the body of an HTTP request or response.

    ``url`` is the address of the manifest if it ends in ``.json``; otherwise the manifest is at its well-known path.
    """

    transport: Transport = "http"

    def __init__(self, url: str, on_message: OnMessage, credentials: Headers = None) -> None:
        self.manifest_url = url if url.endswith(".json") else urljoin(url, MANIFEST_PATH)
        self._on_message = on_message
        self._credentials = dict(credentials or {})  # request headers
        # Use the system's certificates, as on a WebSocket; a .netrc must not supply credentials.
        self._client = httpx.AsyncClient(timeout=None, trust_env=False, verify=ssl.create_default_context())
        self._endpoints: dict[str, str] = {}  # URLs by manifest member

    async def open(self) -> ServerMessage:
        """Fetch the manifest and read its endpoints."""
        response = await self.http_request("GET", self.manifest_url, headers={"accept": "application/json"})
        if response.status_code != 200:
            raise Disconnected(f"{self.manifest_url}: the response has the status {response.status_code}")
        manifest = self._read(response)
        endpoints = manifest.payload.get("endpoints")
        if isinstance(endpoints, dict):
            urls = {name: url for name, url in endpoints.items() if isinstance(url, str)}
            self._endpoints = {name: urljoin(self.manifest_url, url) for name, url in urls.items()}
        return manifest

    def endpoint_url(self, endpoint: Endpoint) -> str:
        """Return the URL in the manifest, or the default (TRANS-12)."""
        return self._endpoints.get(_MANIFEST_MEMBERS[endpoint]) or urljoin(self.manifest_url, f"/{endpoint}")

    async def request(
        self, data: bytes, endpoint: Endpoint = "evaluate", *, headers: Headers = None, credentials: Headers = None
    ) -> ServerMessage:
        """Post a message; ``credentials`` are headers that replace those of the connection."""
        credentials = self._credentials if credentials is None else credentials
        all_headers = {**_JSON_HEADERS, **credentials, **(headers or {})}
        url = self.endpoint_url(endpoint)
        return self._read(await self.http_request("POST", url, content=data, headers=all_headers))

    async def http_request(
        self, method: str, url: str, *, content: bytes | None = None, headers: Headers = None
    ) -> httpx.Response:
        """Send an HTTP request, without credentials. Raises :class:`Disconnected` if there is no response."""
        try:
            return await self._client.request(method, url, content=content, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Disconnected(f"{method} {url}: {str(error) or type(error).__name__}") from None

    def _read(self, response: httpx.Response) -> ServerMessage:
        envelope = read_message(response.content)
        received = ServerMessage(envelope, response.content, response.status_code, dict(response.headers))
        self._on_message(received)
        return received

    async def close(self) -> None:
        await self._client.aclose()


_MAX_LINE_BYTES: Final = 64 << 20  # a longer line ends the connection
_EXIT_SECONDS: Final = 2.0  # how long a server may take to exit after the end of its input, and after SIGTERM


class StdioConnection(SessionConnection):
    """Starts the server as a subprocess, and is connected to its standard streams."""

    transport: Transport = "stdio"
    _process: asyncio.subprocess.Process | None = None
    _stdin: asyncio.StreamWriter
    _stdout: asyncio.StreamReader

    def __init__(self, command: Sequence[str], on_message: OnMessage) -> None:
        super().__init__(on_message)
        self._command = tuple(command)

    async def _connect(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_MAX_LINE_BYTES,
                start_new_session=True,  # a process group of its own, for _signal
            )
        except OSError as error:
            raise Disconnected(f"{self._command[0]} cannot be started: {error.strerror}") from None
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    async def _read(self) -> bytes:
        try:
            line = await self._stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise InvalidMessage("TRANS-23", "lines that end in a line feed", repr(error.partial[:200])) from None
            raise Disconnected("the server closed its output") from None
        except (asyncio.LimitOverrunError, OSError) as error:
            raise Disconnected(str(error)) from None
        if not line.lstrip().startswith(b"{"):
            raise InvalidMessage("TRANS-24", "messages of the protocol only on standard output", repr(line[:200]))
        return line[:-1]

    async def write(self, data: bytes) -> None:
        try:
            self._stdin.write(data + b"\n")
            await self._stdin.drain()
        except (OSError, RuntimeError):
            raise Disconnected("the server closed its input") from None

    def end_input(self) -> None:
        """Close the server's standard input; the server must then exit."""
        self._stdin.close()

    async def exit_status(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def _disconnect(self) -> None:
        """Close the server's input; if it does not exit in time, terminate it, and at last kill it."""
        if self._process is None:
            return
        try:
            with contextlib.suppress(OSError):
                self.end_input()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _EXIT_SECONDS)
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _EXIT_SECONDS)
        finally:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the process group of the server, unless the server has exited: the group id may then be reused."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


class WebSocketConnection(SessionConnection):
    transport: Transport = "websocket"
    _connection: ClientConnection | None = None

    def __init__(self, url: str, on_message: OnMessage) -> None:
        super().__init__(on_message)
        self._url = url

    async def _connect(self) -> None:
        try:
            self._connection = await connect(self._url, proxy=None, max_size=None, open_timeout=None, close_timeout=2.0)
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise Disconnected(f"{self._url}: {error}") from None

    async def _read(self) -> bytes:
        assert self._connection is not None
        try:
            frames = [frame async for frame in self._connection.recv_streaming()]
        except ConnectionClosed as error:
            raise Disconnected(f"the connection was closed: {error}") from None
        if len(frames) != 1:
            raise InvalidMessage("TRANS-05", "one frame for each message", f"a message in {len(frames)} frames")
        if isinstance(frames[0], bytes):
            raise InvalidMessage("TRANS-04", "a text frame", f"a binary frame of {len(frames[0])} bytes")
        return frames[0].encode()

    async def write(self, data: bytes) -> None:
        assert self._connection is not None
        try:
            await self._connection.send(data, text=True)
        except ConnectionClosed as error:
            raise Disconnected(f"the connection was closed: {error}") from None

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()


Connection: TypeAlias = HttpConnection | SessionConnection
