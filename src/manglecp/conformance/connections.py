"""Connections to a server under test, which send any bytes, and decode each received message strictly."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urljoin

import httpx
from websockets.exceptions import ConnectionClosed

from manglecp.client import ConnectionLost, StdioTransport, WebSocketTransport
from manglecp.wire import MANIFEST_PATH, Fault, decode, read_instant

TransportName = Literal["http", "websocket", "stdio"]
Headers: TypeAlias = Mapping[str, str] | None
Endpoint = Literal["evaluate", "invoke", "approvals"]
_BOM: Final = b"\xef\xbb\xbf"
_MAX_MESSAGE_BYTES: Final = 64 << 20  # a longer message ends the connection
_EXIT_SECONDS: Final = 2.0  # the time in which a server has to exit after the end of its input, and after SIGTERM
_LATE_SECONDS: Final = 0.01  # the time to wait for a message after the last expected message


class InvalidMessage(Exception):
    """The server sent bytes that are not a message. ``row`` is the id of the violated requirement."""

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


def comparable(answer: ServerMessage) -> list[list[str]]:
    """Return macro_id, detail level and score of each tool, sorted; the lists for equal requests must be equal."""
    return sorted(
        [str(tool.get("macro_id")), str(tool.get("disclosure_level")), str((tool.get("metadata") or {}).get("score"))]
        for tool in answer.tools
    )


OnMessage = Callable[[ServerMessage], None]


def parse_instant(text: object) -> float | None:
    """Return the Unix time in seconds of an RFC 3339 timestamp; None for any other value."""
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
        message = decode(data)
    except Fault as fault:
        row = "WIRE-24" if fault.message.startswith("not UTF-8") else "WIRE-16"
        raise InvalidMessage(row, "JSON in UTF-8", f"{fault.message}: {data[:200]!r}") from None
    if not isinstance(message, dict):
        raise InvalidMessage("WIRE-01", "a JSON object", repr(data[:200]))
    return message


class _StrictStdio(StdioTransport):
    """Standard streams on which the server must write messages in complete lines, and no other output."""

    async def read_message(self) -> bytes:
        try:
            line = await super().read_message()
        except ConnectionLost as lost:
            if isinstance(lost.__cause__, asyncio.IncompleteReadError) and (rest_bytes := lost.__cause__.partial):
                raise InvalidMessage("TRANS-23", "lines that end in a line feed", repr(rest_bytes[:200])) from None
            raise
        if not line.lstrip().startswith(b"{"):
            raise InvalidMessage("TRANS-24", "messages of the protocol only on standard output", repr(line[:200]))
        return line


class _StrictWebSocket(WebSocketTransport):
    """A WebSocket on which the server must send each message as one text frame."""

    async def read_message(self) -> bytes:
        assert self.connection is not None
        try:
            frames = [frame async for frame in self.connection.recv_streaming()]
        except ConnectionClosed as error:
            raise ConnectionLost(f"the connection was closed: {error}") from None
        if len(frames) != 1:
            raise InvalidMessage("TRANS-05", "one frame for each message", f"a message in {len(frames)} frames")
        if isinstance(frames[0], bytes):
            raise InvalidMessage("TRANS-04", "a text frame", f"a binary frame of {len(frames[0])} bytes")
        return frames[0].encode()


class SessionConnection:
    """A connection that stays open, over standard streams or a WebSocket.

    A terminal message is any message except a manifest and progress: it ends the request with its id. All methods raise
    ``ClientError`` if the connection fails, and :class:`InvalidMessage` for bytes that are not a message.
    """

    def __init__(self, target: str | Sequence[str], on_message: OnMessage) -> None:
        """``target`` is a URL, or the command that starts the server."""
        self.stream: StdioTransport | WebSocketTransport
        if isinstance(target, str):
            self.stream = _StrictWebSocket(target, insecure=True, max_response_bytes=_MAX_MESSAGE_BYTES)
        else:
            self.stream = _StrictStdio(target, close_seconds=_EXIT_SECONDS, max_response_bytes=_MAX_MESSAGE_BYTES)
        self._on_message = on_message
        self._progress: dict[Any, list[dict[str, Any]]] = {}  # progress messages by request id
        self.manifests: list[ServerMessage] = []
        self._finished_ids: set[str] = set()  # ids whose terminal message was received
        self.late_progress: list[dict[str, Any]] = []  # progress messages after the terminal message with the same id
        self._repeated: list[ServerMessage] = []  # second terminal messages for a finished id

    async def open(self) -> ServerMessage:
        """Connect, and return the first message."""
        await self.stream.open_stream()
        return await self._receive()

    async def write(self, data: bytes) -> None:
        """Send one message."""
        await self.stream.write_message(data)

    async def request(self, data: bytes, endpoint: Endpoint = "evaluate") -> ServerMessage:  # noqa: ARG002  HTTP needs it
        """Send a message and return the next terminal message, whatever its id."""
        await self.write(data)
        return await self.next()

    async def next(self) -> ServerMessage:
        """Return the next terminal message."""
        while True:
            message = await self._receive()
            if message.type in ("manifest", "progress"):
                continue
            if isinstance(message.id, str) and message.id in self._finished_ids:
                self._repeated.append(message)
                continue
            if isinstance(message.id, str):
                self._finished_ids.add(message.id)
            return message

    async def unexpected(self) -> list[ServerMessage]:
        """Return the terminal messages that no request waits for: new messages, and earlier repetitions."""
        arrived_messages = []
        with suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(_LATE_SECONDS):
                while True:
                    arrived_messages.append(await self.next())
        return [*arrived_messages, *self._repeated]

    async def _receive(self) -> ServerMessage:
        data = await self.stream.read_message()
        envelope = read_message(data)
        id_ = envelope.get("id")
        request_id = id_ if isinstance(id_, str) else None
        message = ServerMessage(envelope, data, progress=tuple(self._progress.get(request_id, ())))
        self._on_message(message)
        if message.type == "manifest":
            self.manifests.append(message)
        elif message.type == "progress":
            if request_id in self._finished_ids:
                self.late_progress.append(envelope)
            self._progress.setdefault(request_id, []).append(envelope)
        return message

    async def close(self) -> None:
        await self.stream.close_stream()


_JSON_HEADERS: Final = {"content-type": "application/json", "accept": "application/json"}
_MANIFEST_MEMBERS: Final[Mapping[Endpoint, str]] = {  # the member of ``endpoints`` in the manifest
    "evaluate": "intent_eval",
    "invoke": "macro_invoke",
    "approvals": "x-approvals",
}


class HttpConnection:
    """A client without a session: each message is the body of an HTTP request or response.

    ``url`` is the address of the manifest if it ends in ``.json``; otherwise the manifest is at its well-known path.
    """

    def __init__(self, url: str, on_message: OnMessage, credentials: Headers = None) -> None:
        self.manifest_url = url if url.endswith(".json") else urljoin(url, MANIFEST_PATH)
        self._on_message = on_message
        self._credentials = dict(credentials or {})  # request headers
        # Use the system's certificates, as for a WebSocket; a .netrc must not supply credentials.
        self._client = httpx.AsyncClient(timeout=None, trust_env=False, verify=ssl.create_default_context())
        self._endpoints: dict[str, str] = {}  # URLs by manifest member

    async def open(self) -> ServerMessage:
        """Fetch the manifest and read its endpoints."""
        response = await self.http_request("GET", self.manifest_url, headers={"accept": "application/json"})
        if response.status_code != 200:
            raise ConnectionLost(f"{self.manifest_url}: the response has the status {response.status_code}")
        manifest = self._read(response)
        endpoints = manifest.payload.get("endpoints")
        if isinstance(endpoints, dict):
            urls = {name: url for name, url in endpoints.items() if isinstance(url, str)}
            self._endpoints = {name: urljoin(self.manifest_url, url) for name, url in urls.items()}
        return manifest

    def endpoint_url(self, endpoint: Endpoint) -> str:
        """Return the URL that the manifest has for the endpoint, or the default URL (TRANS-12)."""
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
        """Send an HTTP request with only these headers. Raises :class:`ConnectionLost` if there is no response."""
        try:
            return await self._client.request(method, url, content=content, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionLost(f"{method} {url}: {str(error) or type(error).__name__}") from None

    def _read(self, response: httpx.Response) -> ServerMessage:
        envelope = read_message(response.content)
        message = ServerMessage(envelope, response.content, response.status_code, dict(response.headers))
        self._on_message(message)
        return message

    async def close(self) -> None:
        await self._client.aclose()


Connection: TypeAlias = HttpConnection | SessionConnection
