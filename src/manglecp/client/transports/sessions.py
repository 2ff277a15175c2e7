"""What transports with a connection that lasts have in common: they differ in how bytes come and go.

One task reads, whoever asks writes. When a caller is cancelled while it waits, the server is told (TRANS-36).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final

from manglecp.client.errors import ClientError, ConnectionLost
from manglecp.client.transports.conversation import Conversation, cancellation, require_answer
from manglecp.client.transports.protocol import MAX_ANSWER_BYTES, OnManifest, OnProgress, Request
from manglecp.wire.messages import Manifest, ServerMessage

__all__ = ["SessionTransport"]

_CANCELLING_SECONDS: Final = 5.0


class SessionTransport(ABC):
    """A transport whose subclass opens, reads, writes and closes."""

    session: Final = True

    def __init__(self, *, max_answer_bytes: int = MAX_ANSWER_BYTES, connect_seconds: float = 30.0) -> None:
        self.max_answer_bytes = max_answer_bytes
        self._connect_seconds = connect_seconds
        self._conversation: Conversation | None = None
        self._reader: asyncio.Task[None] | None = None
        self._cancelling: set[asyncio.Task[None]] = set()

    # --- for subclasses --------------------------------------------------------------------------------------------

    @abstractmethod
    async def _open(self) -> None:
        """Open the connection anew."""

    @abstractmethod
    async def _read(self) -> bytes:
        """The next message; :class:`ConnectionLost` when there will be none."""

    @abstractmethod
    async def _write(self, data: bytes) -> None:
        """Send a message; :class:`ConnectionLost` if that cannot be."""

    @abstractmethod
    async def _shut(self) -> None:
        """Close what :meth:`_open` opened, whatever state it is in."""

    # --- the transport ---------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._conversation is not None and not self._conversation.ended

    async def connect(self, on_manifest: OnManifest) -> Manifest:
        await self.close()
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self._open()
                conversation = Conversation(self.max_answer_bytes, on_manifest)
                self._conversation = conversation
                self._reader = asyncio.create_task(self._listen(conversation))
                return await conversation.manifest()
        except TimeoutError:
            await self.close()
            raise ConnectionLost(f"no manifest within {self._connect_seconds:g} seconds") from None
        except BaseException:
            await self.close()
            raise

    async def request(
        self,
        message: Request,
        data: bytes,
        headers: dict[str, str],  # noqa: ARG002 - a session knows who asks
        on_progress: OnProgress | None = None,
    ) -> ServerMessage:
        conversation = self._conversation
        if conversation is None:
            raise ConnectionLost("there is no connection")
        answer = conversation.begin(message.id, on_progress)
        try:
            await self._write(data)
            return require_answer(message, await answer)
        finally:
            if conversation.forget(message.id) and not conversation.ended:
                self._cancel(message.id)

    async def close(self) -> None:
        if self._cancelling and self.connected:  # a run that was given up must not go on because nobody said so
            await asyncio.wait(self._cancelling, timeout=_CANCELLING_SECONDS)
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.end(ConnectionLost("the connection was closed"))
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])
        for task in tuple(self._cancelling):
            task.cancel()
        await self._shut()

    # --- inside ----------------------------------------------------------------------------------------------------

    async def _listen(self, conversation: Conversation) -> None:
        try:
            while True:
                conversation.feed(await self._read())
        except ClientError as reason:
            conversation.end(reason)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            conversation.end(ConnectionLost(f"reading failed: {type(error).__name__}"))

    def _cancel(self, request: str) -> None:
        """Whoever gave up does not wait for the server to hear of it."""
        task = asyncio.create_task(self._tell(cancellation(request)))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _tell(self, data: bytes) -> None:
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_CANCELLING_SECONDS):
                await self._write(data)
