"""Connections to a server under test: they send any bytes, keep every byte that arrives, and decode strictly."""

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
End = Literal["evaluate", "invoke", "approvals"]
_BOM: Final = b"\xef\xbb\xbf"


class Disconnected(Exception):
    """The server cannot be reached, or closed the connection."""


class InvalidMessage(Exception):
    """Bytes that are no message. ``row`` is the violated requirement."""

    def __init__(self, row: str, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}, seen {seen}")
        self.row, self.expected, self.seen = row, expected, seen


@dataclass(frozen=True, slots=True)
class Answer:
    """A message of the server. ``status`` and ``headers`` on HTTP only; ``progress`` came before it."""

    message: dict[str, Any]
    data: bytes
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    progress: tuple[dict[str, Any], ...] = ()

    @property
    def type(self) -> Any:
        return self.message.get("type")

    @property
    def payload(self) -> dict[str, Any]:
        payload = self.message.get("payload")
        return payload if isinstance(payload, dict) else {}

    @property
    def code(self) -> Any:
        return self.payload.get("code") if self.type == "error" else None

    @property
    def details(self) -> dict[str, Any]:
        details = self.payload.get("details")
        return details if isinstance(details, dict) else {}

    def __str__(self) -> str:
        if self.type == "error":
            where = "" if self.status is None else f" with status {self.status}"
            return f"error {self.code}{where} ({self.payload.get('message')}), id {self.message.get('id')!r}"
        return f"{self.type}, id {self.message.get('id')!r}"


Watch = Callable[[Answer], None]


def parse_instant(text: object) -> float | None:
    """Return the seconds since 1970 of an instant of RFC 3339; None for anything else."""
    try:
        return read_instant(text) / 1e9 if isinstance(text, str) else None
    except Fault:
        return None


def member(node: Any, *path: str) -> Any:
    """Return the value at this path of member names; None where there is none."""
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return node


def read_message(data: bytes) -> dict[str, Any]:
    """Decode one JSON object, strictly by RFC 8259."""
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
    """A connection that lasts; one task receives all messages, also those that no request waits for."""

    transport: Transport

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._inbox: deque[Answer] = deque()
        self._progress: dict[Any, list[dict[str, Any]]] = {}
        self.manifests: list[Answer] = []
        self.first: Answer | None = None
        self.finished: set[str] = set()  # ids whose terminal message came
        self.late: list[dict[str, Any]] = []  # progress after the terminal message
        self.repeated: list[Answer] = []  # further terminal messages of one request
        self._changed = asyncio.Condition()
        self._end: Exception | None = None
        self._receiver: asyncio.Task[None] | None = None

    @abstractmethod
    async def _connect(self) -> None: ...

    @abstractmethod
    async def _read(self) -> bytes: ...

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send one message."""

    @abstractmethod
    async def _disconnect(self) -> None: ...

    async def open(self) -> Answer:
        """Connect, and return the first message."""
        await self._connect()
        data = await self._read()
        self.first = Answer(read_message(data), data)
        self._watch(self.first)
        if self.first.type == "manifest":
            self.manifests.append(self.first)
        self._receiver = asyncio.create_task(self._receive())
        return self.first

    async def ask(self, data: bytes, end: End = "evaluate") -> Answer:  # noqa: ARG002
        await self.write(data)
        return await self.next()

    async def next(self) -> Answer:
        """Return the next terminal message. Raises what ended the connection if none is left."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._inbox or self._end is not None)
        if not self._inbox:
            assert self._end is not None
            raise self._end
        return self._inbox.popleft()

    async def wait_closed(self) -> None:
        """Wait until the server closes the connection. Raises :class:`InvalidMessage`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._end is not None)
        if isinstance(self._end, InvalidMessage):
            raise self._end

    @property
    def unread(self) -> list[Answer]:
        return list(self._inbox)

    async def close(self) -> None:
        try:
            await self._disconnect()
        finally:
            if self._receiver is not None:
                self._receiver.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._receiver

    async def _receive(self) -> None:
        while self._end is None:
            try:
                data = await self._read()
                self._sort(data, read_message(data))
            except (Disconnected, InvalidMessage) as error:
                self._end = error
            async with self._changed:
                self._changed.notify_all()

    def _sort(self, data: bytes, message: dict[str, Any]) -> None:
        request = message.get("id")
        key = request if isinstance(request, str) else None
        progress = () if key is None else tuple(self._progress.get(key, ()))
        answer = Answer(message, data, progress=progress)
        self._watch(answer)
        if answer.type == "manifest":
            self.manifests.append(answer)
        elif answer.type == "progress":
            if key in self.finished:
                self.late.append(message)
            self._progress.setdefault(key, []).append(message)
        elif key in self.finished:
            self.repeated.append(answer)
        else:
            if key is not None:
                self.finished.add(key)
            self._inbox.append(answer)


MANIFEST_PATH: Final = "/.well-known/manglecp/manifest.json"
_JSON: Final = {"content-type": "application/json", "accept": "application/json"}
_MEMBERS: Final[Mapping[End, str]] = {
    "evaluate": "intent_eval",
    "invoke": "macro_invoke",
    "approvals": "x-approvals",
}


class HttpConnection:
    """A connection without a session: each message is an HTTP request."""

    transport: Transport = "http"

    def __init__(self, url: str, watch: Watch, credentials: Mapping[str, str] | None = None) -> None:
        self.manifest_url = url if url.endswith(".json") else urljoin(url, MANIFEST_PATH)
        self._watch = watch
        self._credentials = dict(credentials or {})
        # The system's certificates, as on a WebSocket; a .netrc must not supply credentials.
        self._client = httpx.AsyncClient(timeout=None, trust_env=False, verify=ssl.create_default_context())
        self._ends: dict[str, str] = {}

    async def open(self) -> Answer:
        response = await self.request("GET", self.manifest_url, headers={"accept": "application/json"})
        if response.status_code != 200:
            raise Disconnected(f"{self.manifest_url} was answered with {response.status_code}")
        answer = self._read(response)
        ends = answer.payload.get("endpoints")
        if isinstance(ends, dict):
            self._ends = {name: urljoin(self.manifest_url, end) for name, end in ends.items() if isinstance(end, str)}
        return answer

    def address(self, end: End) -> str:
        """Return the endpoint of the manifest, or the default (TRANS-12)."""
        return self._ends.get(_MEMBERS[end]) or urljoin(self.manifest_url, f"/{end}")

    async def ask(
        self,
        data: bytes,
        end: End = "evaluate",
        *,
        headers: Mapping[str, str] | None = None,
        credentials: Mapping[str, str] | None = None,
    ) -> Answer:
        credentials = self._credentials if credentials is None else credentials
        all_headers = {**_JSON, **credentials, **(headers or {})}
        return self._read(await self.request("POST", self.address(end), content=data, headers=all_headers))

    async def request(
        self, method: str, url: str, *, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send a request. Raises :class:`Disconnected` if there is no response."""
        try:
            return await self._client.request(method, url, content=content, headers=dict(headers or {}))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Disconnected(f"{method} {url}: {str(error) or type(error).__name__}") from None

    def _read(self, response: httpx.Response) -> Answer:
        message = read_message(response.content)
        answer = Answer(message, response.content, response.status_code, dict(response.headers))
        self._watch(answer)
        return answer

    async def close(self) -> None:
        await self._client.aclose()


_MAX_LINE_BYTES: Final = 64 << 20
_EXIT_SECONDS: Final = 2.0


class StdioConnection(SessionConnection):
    """A connection over the standard streams of a process that it starts."""

    transport: Transport = "stdio"
    _process: asyncio.subprocess.Process | None = None
    _stdin: asyncio.StreamWriter
    _stdout: asyncio.StreamReader

    def __init__(self, command: Sequence[str], watch: Watch) -> None:
        super().__init__(watch)
        self._command = tuple(command)

    async def _connect(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_MAX_LINE_BYTES,
                start_new_session=True,
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
        """Close the server's standard input, on which it has to end."""
        self._stdin.close()

    async def exit_status(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def _disconnect(self) -> None:
        if self._process is None:
            return
        try:
            with contextlib.suppress(OSError):
                self.end_input()
            if not await self._exits():
                self._signal(signal.SIGTERM)
                await self._exits()
        finally:
            self._signal(signal.SIGKILL)

    async def _exits(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_SECONDS):
                await self.exit_status()
                return True
        return False

    def _signal(self, number: signal.Signals) -> None:
        """Signal the process group of the server, while it runs and its id is not reused."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


class WebSocketConnection(SessionConnection):
    transport: Transport = "websocket"
    _connection: ClientConnection | None = None

    def __init__(self, url: str, watch: Watch) -> None:
        super().__init__(watch)
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
