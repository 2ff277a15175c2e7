"""The transport over standard streams: the server is a subprocess, and each line is one message.

The end of its standard error is kept for error messages. To end the server, its standard input is closed. A server that
has not exited after a time limit gets SIGTERM, and after the same time again SIGKILL, with its process group.
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
from manglecp.client.errors import ConnectionLost, InvalidResponse, RequestRefused
from manglecp.client.transports.session import MAX_RESPONSE_BYTES, SessionTransport

_MAX_STDERR_BYTES: Final = 65_536
_CHUNK_BYTES: Final = 4_096
_PIPE_SECONDS: Final = 1.0  # time limit for reading a pipe to its end: a child of the server may keep it open


class StdioTransport(SessionTransport):
    """A transport that runs ``command`` without a shell, with ``env`` added to the environment of this process."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        connect_seconds: float = 30.0,
        close_seconds: float = 10.0,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> None:
        if not command:
            raise RequestRefused("bad_address", "the command is empty")
        super().__init__(max_response_bytes=max_response_bytes, connect_seconds=connect_seconds)
        self._command = tuple(command)
        self._close_seconds = close_seconds
        self._cwd = cwd
        self._env = None if env is None else {**os.environ, **env}
        self._on_stderr = on_stderr
        self.process: asyncio.subprocess.Process | None = None
        self._stderr_task: asyncio.Task[None] | None = None
        self._stderr = bytearray()

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to its standard error."""
        return self._stderr.decode(errors="replace")

    async def open_stream(self) -> None:
        self._stderr.clear()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=self.max_response_bytes + 1,
                cwd=self._cwd,
                env=self._env,
                start_new_session=True,  # Ctrl-C in this terminal must not reach the server
            )
        except OSError as error:
            program = truncate(self._command[0], 200)
            raise RequestRefused("bad_address", f"the server {program} cannot be started: {error.strerror}") from None
        self.process = process
        self._stderr_task = asyncio.create_task(self._read_stderr(process))

    async def read_message(self) -> bytes:
        assert self.process is not None
        assert self.process.stdout is not None
        try:
            line = await self.process.stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            raise InvalidResponse(f"the response is longer than {self.max_response_bytes:,} bytes") from None
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ConnectionLost(f"the server closed its output{await self._stderr_suffix()}") from error
        return line[:-1]

    async def write_message(self, data: bytes) -> None:
        process = self.process
        if process is None or process.stdin is None:
            raise ConnectionLost("the server is not running")
        try:
            process.stdin.write(data + b"\n")
            await process.stdin.drain()
        except (OSError, RuntimeError):
            raise ConnectionLost("the server closed its input") from None

    async def close_stream(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        stdout_task = asyncio.create_task(_discard_stdout(process))  # a full pipe would keep the server from ending
        try:
            assert process.stdin is not None
            process.stdin.close()
            for signal_number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), self._close_seconds)
                _signal(process, signal_number)  # does nothing if the server has exited
            await process.wait()
        except BaseException:
            _signal(process, signal.SIGKILL)
            raise
        finally:
            await _stop_reading(stdout_task)
            if self._stderr_task is not None:
                await _stop_reading(self._stderr_task)

    async def _stderr_suffix(self) -> str:
        """Return the last line on stderr, as the end of an error message; an empty text if there is none."""
        if self._stderr_task is not None:
            await asyncio.wait([self._stderr_task], timeout=_PIPE_SECONDS)
        lines = self.stderr.strip().splitlines()
        return f"; its last line on stderr: {truncate(lines[-1], 500)}" if lines else ""

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(_CHUNK_BYTES):
            self._stderr += chunk
            del self._stderr[:-_MAX_STDERR_BYTES]
            if self._on_stderr is not None:
                self._on_stderr(chunk)


async def _discard_stdout(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(_CHUNK_BYTES):
        pass


async def _stop_reading(task: asyncio.Task[None]) -> None:
    """Wait until the task has read its pipe to the end, for a limited time, then cancel it."""
    await asyncio.wait([task], timeout=_PIPE_SECONDS)
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


def _signal(process: asyncio.subprocess.Process, signal_number: signal.Signals) -> None:
    """Signal the process group of the server, unless the server has exited: then another group may have the same id."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal_number)
