"""Standard streams: one message per line (requirement TRANS-23), for the parent process.

The manifest is written before any input is read (TRANS-25). Until the pack is loaded, requests are refused with
``server_not_ready``; a manifest with another status follows. After the end of the input, replies to pending requests
are still written (TRANS-27), unless the client has closed the output, too: then its requests are cancelled.

Threads do the blocking reads and writes: an event loop would make the streams non-blocking for every process that
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

_CHUNK_BYTES: Final = 65_536
_MAX_CHUNKS: Final = 16
"""The number of chunks that are read ahead."""
_POLL_SECONDS: Final = 0.1
"""The pause between two checks whether the client has closed the output."""
_READ_FACTOR: Final = 4
"""Lines are truncated at this multiple of the size limit of messages, and still refused as too long."""


async def serve_stdio(
    core: Core, streams: Streams, *, sent_manifest: bytes | None = None, stop: asyncio.Event | None = None
) -> None:
    """Serve until the input ends or ``stop`` is set. A manifest equal to ``sent_manifest`` is not sent again."""
    writer = ThreadPoolExecutor(1, thread_name_prefix="manglecp-stdout")
    loop = asyncio.get_running_loop()

    async def send(data: bytes) -> None:
        nonlocal sent_manifest
        is_sent, sent_manifest = data == sent_manifest, None  # only the first message is compared
        if is_sent:
            return
        if len(data) < select.PIPE_BUF and select.select([], [streams.output_fd], [], 0)[1]:  # the write does not block
            streams.write(data)
        else:
            await loop.run_in_executor(writer, streams.write, data)

    stop = stop or asyncio.Event()
    session = core.session("stdio", send=send)
    try:
        async with session:
            read_task = asyncio.create_task(_receive_all(core, session, streams.input_fd))
            stop_task = asyncio.create_task(stop.wait())
            lost_task = asyncio.create_task(session.lost.wait())
            done_tasks, _ = await asyncio.wait((read_task, stop_task, lost_task), return_when=asyncio.FIRST_COMPLETED)
            stop_task.cancel()
            lost_task.cancel()
            if read_task in done_tasks:
                read_task.result()  # raises the exception of the task, if any
                await _drain(session, streams.output_fd)
            else:
                read_task.cancel()
                if session.lost.is_set():
                    session.disconnect()
                await core.drain()
                if not session.lost.is_set():
                    await session.drain()
    finally:
        writer.shutdown(wait=False)


async def _receive_all(core: Core, session: Session, input_fd: int) -> None:
    """Pass each message of the input to the session until the end. Raises PackError if the pack cannot be loaded."""

    async def read() -> None:
        with contextlib.suppress(ConnectionResetError):
            async for line in _lines(_Input(input_fd), _READ_FACTOR * core.pack_settings.limits.max_message_bytes):
                await session.receive(line)
        core.sessions.discard(session)  # stops the sending of new manifests

    load_task, read_task = asyncio.create_task(core.revisions.wait_until_loaded()), asyncio.create_task(read())
    try:
        await asyncio.wait((load_task, read_task), return_when=asyncio.FIRST_COMPLETED)
        if load_task.done():
            load_task.result()
        await read_task
    finally:
        load_task.cancel()
        read_task.cancel()


async def _drain(session: Session, output_fd: int) -> None:
    """Wait for the replies to pending requests; a client that is not gone may still read the replies (TRANS-27)."""
    drain_task = asyncio.create_task(session.drain())
    poll = select.poll()
    poll.register(output_fd, 0)  # 0: only POLLERR and POLLHUP, which report that the client has closed its end
    while not drain_task.done():
        if poll.poll(0):
            session.disconnect()
        await asyncio.wait((drain_task,), timeout=_POLL_SECONDS)
    drain_task.result()


async def _lines(stream: _Input, max_length: int) -> AsyncIterator[bytes]:
    """Yield the lines that are not blank, truncated to ``max_length`` bytes."""
    unfinished = bytearray()
    async for chunk in stream.chunks():
        *line_ends, last_piece = chunk.split(b"\n")
        for line_end in line_ends:
            line = bytes(unfinished) + line_end[: max_length - len(unfinished)]
            unfinished.clear()
            if line.strip(b" \t\r"):
                yield line
        unfinished += last_piece[: max_length - len(unfinished)]
    if unfinished.strip(b" \t\r"):
        yield bytes(unfinished)


class _Input:
    """The chunks of a stream, read ahead by a daemon thread: a blocking read cannot be interrupted."""

    def __init__(self, input_fd: int) -> None:
        self._fd = input_fd
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()  # an empty chunk is the end
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_MAX_CHUNKS)  # counts the chunks that may still be read ahead
        threading.Thread(target=self._read, name="manglecp-stdin", daemon=True).start()

    async def chunks(self) -> AsyncIterator[bytes]:
        while data := await self._queue.get():
            yield data
            self._room.release()

    def _read(self) -> None:
        data = b"\n"  # any value except b"", which is the end of the input
        while data:
            self._room.acquire()
            try:
                data = os.read(self._fd, _CHUNK_BYTES)
            except BlockingIOError:  # another process has made the stream non-blocking
                select.select([self._fd], [], [])
                self._room.release()
                continue
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._queue.put_nowait, data)
            except RuntimeError:  # the loop is closed
                return
