"""Standard input and output, hidden from actions.

An action that prints must not write into the answers; one that reads must not consume requests. So the real streams
move to private descriptors with high numbers (some code closes all low ones) that no child inherits. In their place are
standard error for output, and the null device for input. Python's streams are unbuffered: a host exits without
flushing.

Lines are taken from a buffer of our own, so that an exception of a plugin's signal handler costs no byte of a request.
"""

from __future__ import annotations

import os
import sys
from fcntl import F_DUPFD_CLOEXEC, fcntl
from io import TextIOWrapper
from typing import Any, Final

from manglecp.toolhost.host.messages import MAX_REQUEST

_CHUNK: Final = 1 << 16
_HIGH: Final = (512, 128, 3)  # where private descriptors begin; lower where a limit of the process wants it


class Oversize(Exception):
    """A request that is too long. It was consumed, so that the next one can be read."""


class Lost(Exception):
    """The pipe is unusable. ``closed``: our end of it was closed in this process."""

    def __init__(self, error: OSError) -> None:
        from errno import EBADF

        super().__init__(error.strerror)
        self.closed = error.errno == EBADF


def standard_descriptors() -> None:
    """Open standard descriptors that the parent has closed, so that no other file gets their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            os.set_inheritable(number, True)
    sys.stderr = _unbuffered(2)


def high_descriptor(descriptor: int) -> int:
    """Return a copy with a high number that no program inherits."""
    for least in _HIGH:
        try:
            return fcntl(descriptor, F_DUPFD_CLOEXEC, least)
        except (OSError, ValueError):
            if least == _HIGH[-1]:
                raise
    raise AssertionError("unreachable")


class Streams:
    """The private ends of the protocol."""

    def __init__(self) -> None:
        self._input: Final = high_descriptor(0)
        self._output: Final = high_descriptor(1)
        self._pending = bytearray()
        self._searched = 0
        self._oversize = False
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        sys.stdout = _unbuffered(1)

    def close_in_children(self) -> None:
        """Have every forked child close both: it must not answer, nor keep the pipe open."""
        os.register_at_fork(after_in_child=self._close)

    def line(self) -> bytes:
        """Return the next line without its newline; empty at the end of the input, as for an empty line."""
        pending = self._pending
        while (end := pending.find(b"\n", self._searched)) < 0:
            if len(pending) > MAX_REQUEST:
                self._oversize = True
                pending.clear()
            self._searched = len(pending)
            chunk = self._read()
            if not chunk:
                end = len(pending)
                break
            pending += chunk
        line = bytes(memoryview(pending)[:end])
        del pending[: end + 1]
        self._searched = 0
        if self._oversize or end > MAX_REQUEST:
            self._oversize = False
            raise Oversize
        return line

    def read_all(self) -> bytes:
        """Return the whole input; raises :class:`Oversize`."""
        data = bytearray()
        while chunk := self._read():
            if len(data) <= MAX_REQUEST + 1:
                data += chunk
        if len(data) > MAX_REQUEST + data.endswith(b"\n"):
            raise Oversize
        return bytes(data)

    def write(self, data: bytes) -> None:
        try:
            written = os.write(self._output, data)
            while written < len(data):
                data = data[written:]
                written = os.write(self._output, data)
        except OSError as error:
            raise Lost(error) from error

    def _read(self) -> bytes:
        try:
            return os.read(self._input, _CHUNK)
        except OSError as error:
            if error.errno is None:  # not the pipe's: a signal handler of the plugin has raised it
                raise
            raise Lost(error) from error

    def _close(self) -> None:
        for descriptor in (self._input, self._output):
            try:
                os.close(descriptor)
            except OSError:
                continue


def _unbuffered(descriptor: int) -> Any:
    raw = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115  # lives as long as the process
    return TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)  # as -u does
