"""Standard streams: one message a line (TRANS-23), for the process that started this one.

The manifest is written before any input is read (TRANS-25), and messages are handled when the pack is loaded, so that a
client which does not wait is answered all the same. At the end of the input only pending requests are answered
(TRANS-27): a client that leaves before the pack is loaded, without a message, receives nothing more.

A thread reads, and writes what may block: an event loop would make the streams non-blocking for every process that
shares them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from manglecp.server.core import Core
from manglecp.server.sessions import Session
from manglecp.server.streams import Streams

__all__ = ["serve_stdio"]

_CHUNK: Final = 65_536
_CHUNKS: Final = 16
"""How many are read ahead."""
_LONGEST: Final = 4
"""Times the limit: the rest of a longer line is discarded."""


async def serve_stdio(
    core: Core, streams: Streams, *, said: bytes | None = None, stop: asyncio.Event | None = None
) -> None:
    """Serve until the input ends or ``stop`` is set. ``said`` is the manifest that was written already."""
    writer = ThreadPoolExecutor(1, thread_name_prefix="manglecp-stdout")
    loop = asyncio.get_running_loop()
    first = said

    async def send(data: bytes) -> None:
        nonlocal first
        known, first = first, None
        if data == known:
            return
        if len(data) < select.PIPE_BUF and select.select([], [streams.sink], [], 0)[1]:  # a pipe takes it at once
            streams.write(data)
        else:
            await loop.run_in_executor(writer, streams.write, data)

    stop = stop or asyncio.Event()
    session = core.session("stdio", send=send)
    try:
        async with session:
            reading = asyncio.create_task(_read(core, session, streams.source))
            stopping = asyncio.create_task(stop.wait())
            gone = asyncio.create_task(session.gone())
            done, _ = await asyncio.wait((reading, stopping, gone), return_when=asyncio.FIRST_COMPLETED)
            for task in (stopping, gone):
                task.cancel()
            if reading in done:
                reading.result()
                await session.drain()
            else:
                reading.cancel()
                await core.drain()
                if not session.lost:
                    await session.drain()
    finally:
        writer.shutdown(wait=False)


async def _read(core: Core, session: Session, source: int) -> None:
    given = _Input(source)

    async def end() -> None:
        await given.ended.wait()
        core.closed(session)  # it receives no further manifests
        if given.used:
            await asyncio.Event().wait()

    loaded, silent = asyncio.create_task(core.revisions.ready()), asyncio.create_task(end())
    try:
        await asyncio.wait((loaded, silent), return_when=asyncio.FIRST_COMPLETED)
        if not loaded.done():
            return
        loaded.result()
        with contextlib.suppress(ConnectionResetError):
            async for line in _lines(given, _LONGEST * core.max_message_bytes):
                await session.receive(line)
    finally:
        loaded.cancel()
        silent.cancel()


async def _lines(given: _Input, most: int) -> AsyncIterator[bytes]:
    """Yield the lines that are not empty. A longer one than ``most`` is cut, which is long enough to be refused."""
    begun = bytearray()
    async for chunk in given.chunks():
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line = bytes(begun) + part[: most - len(begun)]
            begun.clear()
            if line.strip(b" \t\r"):
                yield line
        begun += rest[: most - len(begun)]
    if begun.strip(b" \t\r"):
        yield bytes(begun)


class _Input:
    """The chunks of a stream, read ahead by a daemon thread: nothing can interrupt it while it blocks."""

    def __init__(self, source: int) -> None:
        self.ended = asyncio.Event()
        """The end was read, however much is left to be taken."""
        self.used = False
        """There was something before the end."""
        self._source = source
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_CHUNKS)
        threading.Thread(target=self._read, name="manglecp-stdin", daemon=True).start()

    async def chunks(self) -> AsyncIterator[bytes]:
        while data := await self._queue.get():
            yield data
            self._room.release()

    def _read(self) -> None:
        data = b"\n"
        while data:
            self._room.acquire()
            try:
                data = os.read(self._source, _CHUNK)
            except BlockingIOError:  # another process has made the stream non-blocking
                select.select([self._source], [], [])
                self._room.release()
                continue
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._take, data)
            except RuntimeError:  # the loop is closed
                return

    def _take(self, data: bytes) -> None:
        self._queue.put_nowait(data)
        if data:
            self.used = True
        else:
            self.ended.set()
