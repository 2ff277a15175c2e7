"""Talking to a program that answers and ends: its words come while it speaks, and nothing is kept on a disk.

Both ways are served in turn, so neither waits for the other, however long question and answer are. Whoever has heard
enough stops listening, and the program is ended.
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

__all__ = ["Talk", "TookTooLong"]

_CHUNK: Final = 1 << 16
_ERRORS: Final = 8_192


class TookTooLong(Exception):
    """It was ended before its end."""


class Talk:
    """One program from its start to its end. Iterating gives its answer in pieces; then ``code`` is its status."""

    def __init__(
        self, argv: Sequence[str], *, folder: str, environ: Mapping[str, str], stdin: bytes, seconds: float
    ) -> None:
        self.code = 0
        self.errors = b""
        """The end of what it wrote to standard error."""
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
                except BaseException:  # also of whoever has heard enough
                    process.kill()
                    raise
        finally:
            self.code = process.returncode

    def _pieces(self, waiting: selectors.BaseSelector) -> Iterator[bytes]:
        process = self._process
        given, said, errors = (cast("IO[bytes]", each) for each in (process.stdin, process.stdout, process.stderr))
        waiting.register(given, selectors.EVENT_WRITE)
        for stream in (said, errors):
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            left = self._until - time.monotonic()
            if left <= 0:
                raise TookTooLong
            for key, _ in waiting.select(left):
                if key.fileobj is given:
                    if not self._tell(key.fd):
                        _over(waiting, given)
                    continue
                piece = os.read(key.fd, _CHUNK)
                if not piece:
                    _over(waiting, said if key.fileobj is said else errors)
                elif key.fileobj is said:
                    yield piece
                else:
                    self.errors = (self.errors + piece)[-_ERRORS:]

    def _tell(self, descriptor: int) -> bool:
        """Some of what it is to be told; whether there is more."""
        try:
            told = os.write(descriptor, self._stdin[: select.PIPE_BUF]) if self._stdin else 0
        except BrokenPipeError:  # it does not want to know
            return False
        self._stdin = self._stdin[told:]
        return bool(self._stdin)


def _over(waiting: selectors.BaseSelector, stream: IO[bytes]) -> None:
    waiting.unregister(stream)
    with suppress(OSError):
        stream.close()
