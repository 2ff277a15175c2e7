"""Standard input and output, hidden from actions.

An action that prints must not write into the answers; one that reads must not consume requests. So the real streams
move to private descriptors with high numbers (some code closes all low ones) that no child inherits. In their place are
standard error for output, and the null device for input. ``sys.stdout`` and ``sys.stderr`` are unbuffered: a host exits
without flushing.

Lines are taken from a buffer of this module, so that no byte of a request is lost if a plugin's signal handler raises.
"""

from __future__ import annotations

import os
import sys
from fcntl import F_DUPFD_CLOEXEC, fcntl
from io import TextIOWrapper
from typing import Any, Final

from manglecp.toolhost.host.messages import MAX_REQUEST_BYTES

_CHUNK_BYTES: Final = 1 << 16
_LOWEST_PRIVATE: Final = (512, 128, 3)  # least numbers of private descriptors; RLIMIT_NOFILE may forbid the first two


class Oversize(Exception):
    """A request that is too long. It was consumed, so that the next one can be read."""


class PipeLost(Exception):
    """The pipe is unusable. Only the plugin can have closed the descriptor of this process (EBADF)."""

    def __init__(self, error: OSError) -> None:
        from errno import EBADF

        super().__init__(error.strerror)
        self.is_closed_by_plugin = error.errno == EBADF


def open_standard_descriptors() -> None:
    """Open standard descriptors that the parent has closed, so that no other file gets their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            os.set_inheritable(number, True)
    sys.stderr = _unbuffered(2)


def high_descriptor(descriptor: int) -> int:
    """Return a copy of a descriptor, with a high number; no program that is started inherits the copy."""
    *preferred, last = _LOWEST_PRIVATE
    for lowest in preferred:
        try:
            return fcntl(descriptor, F_DUPFD_CLOEXEC, lowest)
        except (OSError, ValueError):
            continue
    return fcntl(descriptor, F_DUPFD_CLOEXEC, last)


class Streams:
    """The private ends of the protocol."""

    def __init__(self) -> None:
        self.input: Final = high_descriptor(0)
        self._output: Final = high_descriptor(1)
        self._pending = bytearray()  # bytes that were read and not yet returned
        self._searched = 0  # the length of the beginning of _pending that has no newline
        self._oversize = False  # the beginning of the current line was dropped: it is too long
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        sys.stdout = _unbuffered(1)

    def close_in_children(self) -> None:
        """Make every forked child close both descriptors: a child must not answer, nor keep the pipe open."""
        os.register_at_fork(after_in_child=self._close)

    def read_line(self) -> bytes:
        """Return the next line without its newline; empty at the end of the input, as for an empty line.

        Raises :class:`Oversize` or :class:`PipeLost`.
        """
        while (line := self.buffered_line()) is None:
            if not self.fill():
                self._pending += b"\n"
        return line

    def fill(self) -> bool:
        """Read a chunk into the buffer; return False at the end of the input."""
        chunk = self._read()
        self._pending += chunk
        return bool(chunk)

    def buffered_line(self) -> bytes | None:
        """Return the next line of the buffer without its newline; None if it is incomplete. Raises Oversize."""
        pending = self._pending
        end = pending.find(b"\n", self._searched)
        if end < 0:
            if len(pending) > MAX_REQUEST_BYTES:
                self._oversize = True
                pending.clear()
            self._searched = len(pending)
            return None
        line = bytes(memoryview(pending)[:end])
        del pending[: end + 1]
        self._searched = 0
        if self._oversize or end > MAX_REQUEST_BYTES:
            self._oversize = False
            raise Oversize
        return line

    def read_all(self) -> bytes:
        """Return the whole input; raises :class:`Oversize`."""
        data = bytearray()
        while chunk := self._read():
            if len(data) <= MAX_REQUEST_BYTES + 1:  # what follows is consumed and dropped
                data += chunk
        if len(data) - data.endswith(b"\n") > MAX_REQUEST_BYTES:  # a final newline is not counted
            raise Oversize
        return bytes(data)

    def write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._output, data) :]
        except OSError as error:
            raise PipeLost(error) from error

    def _read(self) -> bytes:
        try:
            return os.read(self.input, _CHUNK_BYTES)
        except OSError as error:
            if error.errno is None:  # not an error of the pipe: a signal handler of the plugin has raised it
                raise
            raise PipeLost(error) from error

    def _close(self) -> None:
        for descriptor in (self.input, self._output):
            try:
                os.close(descriptor)
            except OSError:
                continue


def _unbuffered(descriptor: int) -> Any:
    raw = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115  # lives as long as the process
    return TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)  # as python -u does
