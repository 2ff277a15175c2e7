"""The bounded queue of a session's unsent messages.

Replies are never dropped: while too many bytes are unsent, the session reads no further requests. Progress may be
dropped (requirement PROG-01), and a new manifest replaces an unsent one (MANI-34). A client that does not read a
message within the time limit loses its session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

Send = Callable[[bytes], Awaitable[None]]
Kind = Literal["reply", "progress", "manifest"]
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Message:
    kind: Kind
    data: bytes


class Outbox:
    """Sends messages in order, in a task that runs while messages are unsent. ``timeout``: seconds for each message."""

    def __init__(self, send: Send, max_bytes: int, timeout: float) -> None:
        self._send = send
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._messages: deque[_Message] = deque()
        self._unsent_bytes = 0
        self._send_task: asyncio.Task[None] | None = None
        self.has_room = asyncio.Event()
        """Set while further requests may be read."""
        self.has_room.set()
        self.broken = asyncio.Event()
        """Set when the client is gone or does not read: no messages are sent any more."""

    def put(self, data: bytes, kind: Kind = "reply") -> None:
        """Add a message. Progress is dropped if there is no room, and a manifest replaces an unsent one."""
        if self.broken.is_set() or (kind == "progress" and not self.has_room.is_set()):
            return
        if kind == "manifest":
            for message in self._messages:
                if message.kind == "manifest":
                    self._unsent_bytes += len(data) - len(message.data)
                    message.data = data
                    return
        self._messages.append(_Message(kind, data))
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= self._max_bytes:
            self.has_room.clear()
        if self._send_task is None or self._send_task.done():
            self._send_task = asyncio.create_task(self._send_all())

    async def flush(self) -> None:
        """Wait until all messages are sent or the outbox is broken."""
        while self._send_task is not None and not self._send_task.done():
            await asyncio.wait((self._send_task,))

    def abort(self) -> None:
        """Discard all messages, and accept no more."""
        self._messages.clear()
        self._unsent_bytes = 0
        self.broken.set()
        self.has_room.set()
        if self._send_task is not None:
            self._send_task.cancel()

    async def _send_all(self) -> None:
        while self._messages:
            message = self._messages.popleft()  # a manifest that is being sent is not replaced
            try:
                async with asyncio.timeout(self._timeout):
                    await self._send(message.data)
            except Exception as error:  # TimeoutError, or an error of the connection
                _log.info("the session of a client that does not read is closed: %s", type(error).__name__)
                self.abort()
                return
            self._unsent_bytes -= len(message.data)
            if self._unsent_bytes < self._max_bytes:
                self.has_room.set()
