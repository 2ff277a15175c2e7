"""What a session has to send, in order, bounded, and no faster than its client takes it.

Answers are never dropped: while too much is unsent, nothing more is read, so that no more answers arise than there are
unanswered requests. Progress may be dropped (PROG-01), and of several manifests only the newest counts (MANI-34). A
client that takes nothing for too long has lost its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Outbox", "Send"]

Send = Callable[[bytes], Awaitable[None]]
Kind = Literal["answer", "progress", "manifest"]
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Letter:
    kind: Kind
    data: bytes


class Outbox:
    """Made on the event loop; sends until it is closed or broken."""

    def __init__(self, send: Send, most: int, timeout: float) -> None:
        self._send = send
        self._most = most
        self._timeout = timeout
        self._letters: deque[_Letter] = deque()
        self._bytes = 0
        self._closing = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.broken = asyncio.Event()
        """The client is gone or takes nothing: nothing is sent any more."""
        self._task = asyncio.create_task(self._run())

    def put(self, data: bytes, kind: Kind = "answer") -> None:
        """Add a message. Progress is dropped where there is no room, a manifest replaces one that waits."""
        if self.broken.is_set() or self._closing or (kind == "progress" and not self._room.is_set()):
            return
        if kind == "manifest":
            for letter in self._letters:
                if letter.kind == "manifest":
                    self._bytes += len(data) - len(letter.data)
                    letter.data = data
                    return
        self._letters.append(_Letter(kind, data))
        self._bytes += len(data)
        self._empty.clear()
        self._news.set()
        if self._bytes >= self._most:
            self._room.clear()

    async def room(self) -> None:
        """Wait until more may be read."""
        await self._room.wait()

    async def flushed(self) -> None:
        """Wait until everything is sent, or nothing can be."""
        await self._empty.wait()

    async def close(self) -> None:
        """Send what there is, and end."""
        self._closing = True
        self._news.set()
        await self._task

    def abort(self) -> None:
        """Send nothing more."""
        self._break()
        self._task.cancel()

    async def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                while self._letters:
                    letter = self._letters.popleft()  # a manifest that is being sent is not replaced
                    try:
                        async with asyncio.timeout(self._timeout):
                            await self._send(letter.data)
                    except Exception as error:  # also after the time limit
                        _log.info("a client is given up: %s", type(error).__name__)
                        self._break()
                        return
                    self._bytes -= len(letter.data)
                    if self._bytes < self._most:
                        self._room.set()
                self._empty.set()
                if self._closing:
                    return
                self._news.clear()
                await self._news.wait()

    def _break(self) -> None:
        self._letters.clear()
        self._bytes = 0
        self.broken.set()
        self._room.set()
        self._empty.set()
