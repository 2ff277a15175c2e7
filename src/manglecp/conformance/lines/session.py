"""What WebSocket and standard streams have in common: messages come when they like, and one task takes them all."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from manglecp.conformance.lines.line import Answer, Closed, End, Garbled, Transport, Watch, read_message

__all__ = ["SessionLine"]


class SessionLine(ABC):
    """A line (:class:`.Line`) whose connection lasts. It notes what no question waits for."""

    transport: Transport

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._inbox: deque[Answer] = deque()
        """Terminal messages that nobody has taken."""
        self._progress: dict[Any, list[dict[str, Any]]] = {}
        self.manifests: list[Answer] = []
        self.first: Answer | None = None
        self.finished: set[str] = set()
        """Ids whose terminal message came."""
        self.late: list[dict[str, Any]] = []
        """Progress after the terminal message."""
        self.repeated: list[Answer] = []
        """Terminal messages for what had one already."""
        self._news = asyncio.Condition()
        self._end: Exception | None = None
        self._listening: asyncio.Task[None] | None = None

    # --- what a transport has -----------------------------------------------------------------------------------------

    @abstractmethod
    async def _connect(self) -> None:
        """Open it."""

    @abstractmethod
    async def _read(self) -> bytes:
        """The next message, as it comes."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send one message, whatever it is."""

    @abstractmethod
    async def _hang_up(self) -> None:
        """Close it."""

    # --- what checks use ---------------------------------------------------------------------------------------------

    async def open(self) -> Answer:
        await self._connect()
        self._listening = asyncio.create_task(self._listen())
        await self._until(lambda: self.first is not None)
        assert self.first is not None
        return self.first

    async def ask(self, data: bytes, end: End = "evaluate") -> Answer:  # noqa: ARG002
        await self.write(data)
        return await self.next()

    async def next(self) -> Answer:
        """The next terminal message."""
        await self._until(lambda: bool(self._inbox))
        return self._inbox.popleft()

    async def ended(self) -> None:
        """Until the server closes its side."""
        with contextlib.suppress(Closed):
            await self._until(lambda: False)

    @property
    def unread(self) -> list[Answer]:
        """Terminal messages that nobody has taken."""
        return list(self._inbox)

    async def close(self) -> None:
        try:
            await self._hang_up()
        finally:
            if self._listening is not None:
                self._listening.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._listening

    # --- listening ---------------------------------------------------------------------------------------------------

    async def _until(self, there: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(lambda: there() or self._end is not None)
        if not there():
            assert self._end is not None
            raise self._end

    async def _listen(self) -> None:
        try:
            while True:
                data = await self._read()
                self._take(data, read_message(data))
                async with self._news:
                    self._news.notify_all()
        except (Closed, Garbled) as error:
            self._end = error
            async with self._news:
                self._news.notify_all()

    def _take(self, data: bytes, message: dict[str, Any]) -> None:
        request = message.get("id")
        key = request if isinstance(request, str) else None
        progress = () if key is None else tuple(self._progress.get(key, ()))
        answer = Answer(message, data, progress=progress)
        self._watch(answer)
        if self.first is None:
            self.first = answer
            if answer.type == "manifest":
                self.manifests.append(answer)
        elif answer.type == "manifest":
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
