"""Stream the output of a program while its input is written, without temporary files.

Standard input, output and error are served by one selector, so large input and output cannot deadlock. If the caller
stops iterating, the program is killed.
"""

from __future__ import annotations

import os
import select
import selectors
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, cast

__all__ = ["ProcessStream", "ProcessTimeout"]

_CHUNK: Final = 1 << 16
_ERRORS: Final = 8_192


class ProcessTimeout(Exception):
    """The program was killed because its time was over."""


class ProcessStream:
    """A running program. Iterate over its output once; after that, ``code`` is its exit status."""

    def __init__(
        self, argv: Sequence[str], *, folder: str, environ: Mapping[str, str], stdin: bytes, seconds: float
    ) -> None:
        self.code = 0
        self.errors = b""
        """The end of standard error."""
        self._stdin = memoryview(stdin)
        self._until: Final = time.monotonic() + seconds
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, cwd=folder, env=dict(environ), stdin=pipe, stdout=pipe, stderr=pipe)

    def __iter__(self) -> Generator[bytes]:
        process = self._process
        try:
            with process, selectors.PollSelector() as waiting:
                try:
                    yield from self._pieces(waiting)
                except BaseException:  # GeneratorExit too, when the caller stops iterating
                    process.kill()
                    raise
        finally:
            self.code = process.returncode

    def _pieces(self, waiting: selectors.BaseSelector) -> Iterator[bytes]:
        process = self._process
        stdin, stdout, stderr = (cast("IO[bytes]", each) for each in (process.stdin, process.stdout, process.stderr))
        waiting.register(stdin, selectors.EVENT_WRITE)
        for stream in (stdout, stderr):
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            left = self._until - time.monotonic()
            if left <= 0:
                raise ProcessTimeout
            for key, _ in waiting.select(left):
                if key.fileobj is stdin:
                    if not self._write(key.fd):
                        _close(waiting, stdin)
                    continue
                piece = os.read(key.fd, _CHUNK)
                if not piece:
                    _close(waiting, stdout if key.fileobj is stdout else stderr)
                elif key.fileobj is stdout:
                    yield piece
                else:
                    self.errors = (self.errors + piece)[-_ERRORS:]

    def _write(self, descriptor: int) -> bool:
        """Write a part of the input; return whether there is more."""
        try:
            count = os.write(descriptor, self._stdin[: select.PIPE_BUF]) if self._stdin else 0
        except BrokenPipeError:  # the program closed its standard input
            return False
        self._stdin = self._stdin[count:]
        return bool(self._stdin)


def _close(waiting: selectors.BaseSelector, stream: IO[bytes]) -> None:
    waiting.unregister(stream)
    with suppress(OSError):
        stream.close()
