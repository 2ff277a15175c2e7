"""Standard streams: any bytes as one line to a process of ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Final

from manglecp.conformance.lines.line import Closed, Garbled, Transport, Watch
from manglecp.conformance.lines.session import SessionLine

__all__ = ["StdioLine"]

_LONGEST: Final = 64 << 20
_LEAVE: Final = 2.0
"""Seconds to end, once nothing more comes."""


class StdioLine(SessionLine):
    """A line to a process that is started for it."""

    transport: Transport = "stdio"

    def __init__(self, command: Sequence[str], watch: Watch) -> None:
        super().__init__(watch)
        self._command = tuple(command)
        self._process: asyncio.subprocess.Process | None = None

    async def _connect(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_LONGEST,
                start_new_session=True,
            )
        except OSError as error:
            raise Closed(f"{self._command[0]} cannot be started: {error.strerror}") from None

    async def _read(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Garbled("TRANS-23", "lines that end in a line feed", repr(error.partial[:200])) from None
            raise Closed("the server closed its output") from None
        except (asyncio.LimitOverrunError, OSError) as error:
            raise Closed(str(error)) from None
        if not line.lstrip().startswith(b"{"):
            raise Garbled("TRANS-24", "messages of the protocol only on standard output", repr(line[:200]))
        return line[:-1]

    async def write(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data + b"\n")
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            raise Closed("the server closed its input") from None

    def end_input(self) -> None:
        """Close its standard input, which tells a server to end."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def exit_status(self) -> int:
        """Wait for its end."""
        assert self._process is not None
        return await self._process.wait()

    async def _hang_up(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            with contextlib.suppress(OSError):
                self.end_input()
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None and process.returncode is None:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LEAVE):
                        await process.wait()
                        return
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
