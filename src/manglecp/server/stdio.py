"""Standard streams: one message a line (TRANS-23), for whoever started this process.

The manifest is written before any input is read (TRANS-25), and what is said is taken when the pack is loaded, so that
a client which does not wait is answered all the same. At the end of the input only what is pending is answered
(TRANS-27): whoever goes before the pack is loaded, and has said nothing, is not told that it is.

Reading and writing may block, and the streams belong to others as well, who would not expect them to be changed. So a
stream is read when there is something to read, and written when it certainly takes what there is; a thread reads what
cannot tell (a file), and writes what is longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from manglecp.server.core import Core
from manglecp.server.sessions import Session
from manglecp.server.streams import Streams

__all__ = ["serve_stdio"]

_CHUNK: Final = 65_536
_CHUNKS: Final = 16
"""How many are read ahead."""
_AT_ONCE: Final = select.PIPE_BUF
"""A pipe that can be written takes so much without waiting."""
_LONGEST: Final = 4
"""Times the limit: what is longer is not kept."""


async def serve_stdio(
    core: Core, streams: Streams, *, said: bytes | None = None, stop: asyncio.Event | None = None
) -> None:
    """Until the input ends or ``stop`` is set. ``said`` is the manifest that was written already."""
    writer = ThreadPoolExecutor(1, thread_name_prefix="manglecp-stdout")
    loop = asyncio.get_running_loop()
    first = said

    async def send(data: bytes) -> None:
        nonlocal first
        known, first = first, None
        if data == known:
            return
        if len(data) < _AT_ONCE and select.select([], [streams.sink], [], 0)[1]:
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
    given = _Input(source, over=lambda: core.closed(session))  # nothing is told any more
    try:
        if not await _wanted(core, given):
            return
        most = _LONGEST * core.max_message_bytes
        with contextlib.suppress(ConnectionResetError):
            async for line in _lines(given, most):
                await session.receive(line)
    finally:
        given.close()


async def _wanted(core: Core, given: _Input) -> bool:
    """Wait until the pack is loaded, for as long as there is somebody to answer."""
    loaded, silent = asyncio.create_task(core.revisions.ready()), asyncio.create_task(given.silent.wait())
    try:
        await asyncio.wait((loaded, silent), return_when=asyncio.FIRST_COMPLETED)
        if loaded.done():
            loaded.result()
        return loaded.done()
    finally:
        loaded.cancel()
        silent.cancel()


async def _lines(given: _Input, most: int) -> AsyncIterator[bytes]:
    """Those that are not empty. What is longer than ``most`` is cut, which is long enough to be refused."""
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
    """What is said, in the pieces that it comes in; read from the beginning."""

    def __init__(self, source: int, over: Callable[[], None]) -> None:
        """``over`` is called as soon as the end was read, whatever is left to be taken."""
        self.silent = asyncio.Event()
        """It ended, and there was nothing before."""
        self._source = source
        self._over = over
        self._anything = False
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_CHUNKS)
        """For the thread, if there has to be one."""
        self._listening = False
        self._bell = _bell_of(source)
        if self._bell is None:
            threading.Thread(target=self._read, name="manglecp-stdin", daemon=True).start()
        else:
            self._listen(self._bell)

    async def chunks(self) -> AsyncIterator[bytes]:
        while data := await self._queue.get():
            yield data
            if self._bell is None:
                self._room.release()
            elif not self._listening:
                self._listen(self._bell)

    def close(self) -> None:
        """Nothing more is read."""
        if self._bell is not None:
            self._pause(self._bell)
            self._bell.close()

    # --- what can be waited for: a pipe, a socket, a terminal -----------------------------------------------------

    def _listen(self, bell: select.epoll) -> None:
        self._listening = True
        self._loop.add_reader(bell.fileno(), self._ready)

    def _pause(self, bell: select.epoll) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(bell.fileno())

    def _ready(self) -> None:
        try:
            data = os.read(self._source, _CHUNK)
        except BlockingIOError:  # somebody else has read it
            return
        except OSError:
            data = b""
        self._take(data)
        if self._bell is not None and (not data or self._queue.qsize() >= _CHUNKS):
            self._pause(self._bell)

    # --- what cannot: a file --------------------------------------------------------------------------------------

    def _read(self) -> None:
        data = b"\n"
        while data:
            self._room.acquire()
            try:
                data = os.read(self._source, _CHUNK)
            except BlockingIOError:  # there may be nothing that rings, and others who set it so
                select.select([self._source], [], [])
                self._room.release()
                continue
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._take, data)
            except RuntimeError:  # the loop is closed, and nobody listens
                return

    def _take(self, data: bytes) -> None:
        self._queue.put_nowait(data)
        if data:
            self._anything = True
            return
        self._over()
        if not self._anything:
            self.silent.set()


def _bell_of(source: int) -> select.epoll | None:
    """What rings when there is something to read; None where that cannot be told. An event loop may set what it listens
    to so that it never blocks, and with it the stream for everybody who has it: so it listens to this."""
    try:
        bell = select.epoll()
    except (AttributeError, OSError):  # another system, or too many open files
        return None
    try:
        bell.register(source, select.EPOLLIN)
    except OSError:
        bell.close()
        return None
    return bell
