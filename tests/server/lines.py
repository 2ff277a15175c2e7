"""One way to ask a server on a real socket, whichever way that is: a request over HTTP, or a message of a session."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, Protocol

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.server.desk import PATIENCE, encoded

__all__ = ["WAYS", "Line", "Way", "line"]

Way = Literal["http", "websocket"]
WAYS: Final[tuple[Way, ...]] = ("http", "websocket")
_PATHS: Final = {"intent_request": "/evaluate", "invoke_request": "/invoke", "x-approval_request": "/approvals"}


class Line(Protocol):
    heard: list[bytes]
    """Everything that came: headers and bodies, or frames."""

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The terminal message."""

    async def tools(self, name: str = "go", **payload: Any) -> dict[str, str]:
        """The ids of the tools by their names."""


class _Line(ABC):
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    @abstractmethod
    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]: ...

    async def tools(self, name: str = "go", **payload: Any) -> dict[str, str]:
        content = {"intent": {"name": name}, **payload}
        asked = {"type": "intent_request", "id": "tools", "manglecp": "2026-02-draft", "payload": content}
        answer = await self.ask(asked)
        return {tool["name"]: tool["macro_id"] for tool in answer["payload"]["macro_tools"]}


class _Http(_Line):
    def __init__(self, http: httpx.AsyncClient) -> None:
        super().__init__()
        self._http = http

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._http.post(_PATHS[message["type"]], content=encoded(message))
        self.heard += [str(answer.headers).encode(), answer.content]
        told: dict[str, Any] = answer.json()
        assert (answer.status_code == 200) == (told["type"] != "error")
        return told


class _Session(_Line):
    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self._socket = socket
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self) -> None:
        async for frame in self._socket:
            self.heard.append(frame.encode() if isinstance(frame, str) else frame)
            told = json.loads(frame)
            if told["type"] not in ("manifest", "progress"):
                self._waiting.pop(told["id"]).set_result(told)

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[message["id"]] = answer
        await self._socket.send(encoded(message).decode())
        async with asyncio.timeout(PATIENCE):
            return await answer


@asynccontextmanager
async def line(url: str, way: Way, token: str | None = None) -> AsyncIterator[Line]:
    known = {} if token is None else {"authorization": f"Bearer {token}"}
    if way == "http":
        headers = {"content-type": "application/json", **known}
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False, headers=headers) as http:
            yield _Http(http)
        return
    address = f"{url.replace('http', 'ws', 1)}/ws"
    async with connect(address, proxy=None, max_size=None, additional_headers=known) as socket:
        session = _Session(socket)
        listening = asyncio.create_task(session.listen())
        try:
            yield session
        finally:
            listening.cancel()
