"""Standard streams: the server is a subprocess, one line is one message (companion, section 3.3).

The last of its stderr is kept for error messages. To end the server, its stdin is closed; after a time limit its
process group is terminated.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from manglecp.base.text import truncate
from manglecp.client.errors import ConnectionLost, Refused, Unreadable
from manglecp.client.transports.session import MAX_ANSWER_BYTES, SessionTransport

_KEPT: Final = 65_536  # bytes of stderr
_PIECE: Final = 4_096
_LAST_WORDS: Final = 1.0  # seconds to wait for the rest of stderr


class StdioTransport(SessionTransport):
    """``command`` is run without a shell; ``env`` is added to this process's environment."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        connect_seconds: float = 30.0,
        close_seconds: float = 10.0,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> None:
        if not command:
            raise Refused("bad_address", "a command has at least one word")
        super().__init__(max_answer_bytes=max_answer_bytes, connect_seconds=connect_seconds)
        self._command = tuple(command)
        self._close_seconds = close_seconds
        self._cwd = cwd
        self._env = None if env is None else {**os.environ, **env}
        self._on_stderr = on_stderr
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._stderr = bytearray()

    @property
    def stderr(self) -> str:
        return self._stderr.decode(errors="replace")

    async def _open(self) -> None:
        self._stderr.clear()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=self.max_answer_bytes + 1,
                cwd=self._cwd,
                env=self._env,
                start_new_session=True,  # a key pressed here is not meant for it
            )
        except OSError as error:
            program = truncate(self._command[0], 200)
            raise Refused("bad_address", f"the server {program} cannot be started: {error.strerror}") from None
        self._process = process
        self._listening = asyncio.create_task(self._listen_to_stderr(process))

    async def _read(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            raise Unreadable(f"the answer is longer than {self.max_answer_bytes:,} bytes") from None
        except (asyncio.IncompleteReadError, OSError):
            raise ConnectionLost(f"the server closed its output{await self._last_words()}") from None
        return line[:-1]

    async def _write(self, data: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise ConnectionLost("there is no server")
        try:
            process.stdin.write(data + b"\n")
            await process.stdin.drain()
        except (OSError, RuntimeError):
            raise ConnectionLost("the server closed its input") from None

    async def _shut(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        rest = asyncio.create_task(_discard(process))  # it may still have something to say before it can end
        try:
            assert process.stdin is not None
            process.stdin.close()
            if not await _ended(process, self._close_seconds):
                _signal(process, signal.SIGTERM)
                if not await _ended(process, self._close_seconds):
                    _signal(process, signal.SIGKILL)
            await process.wait()
        except BaseException:
            _signal(process, signal.SIGKILL)
            raise
        finally:
            await _over(rest)
            if self._listening is not None:
                await _over(self._listening)

    async def _last_words(self) -> str:
        if self._listening is not None:
            await asyncio.wait([self._listening], timeout=_LAST_WORDS)
        lines = self.stderr.strip().splitlines()
        return f", and said last: {truncate(lines[-1], 500)}" if lines else ""

    async def _listen_to_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while piece := await process.stderr.read(_PIECE):
            self._stderr += piece
            del self._stderr[:-_KEPT]
            if self._on_stderr is not None:
                self._on_stderr(piece)


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _discard(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(_PIECE):
        pass


async def _over(task: asyncio.Task[None]) -> None:
    """Let it read to the end, unless another process keeps the pipe open."""
    await asyncio.wait([task], timeout=1.0)
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal the process group of the server, while it runs and its id is not reused."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
