"""The standard streams of this process, reserved for the protocol.

All other output goes to standard error (requirement TRANS-24). The module imports little, so that the manifest can be
written before the rest of the server is imported.
"""

from __future__ import annotations

import os
import select


class Streams:
    """The file descriptors of the protocol's input and output."""

    def __init__(self, input_fd: int, output_fd: int) -> None:
        self.input_fd = input_fd
        self.output_fd = output_fd

    @classmethod
    def claim(cls) -> Streams:
        """Return the standard streams of this process, and put an empty input and stderr in their place."""
        input_fd, output_fd = os.dup(0), os.dup(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.dup2(2, 1)
        os.close(empty)
        return cls(input_fd, output_fd)

    def write(self, data: bytes) -> None:
        """Write a line; blocks while the pipe is full."""
        unwritten = memoryview(data + b"\n")
        while unwritten:
            try:
                unwritten = unwritten[os.write(self.output_fd, unwritten) :]
            except BlockingIOError:  # another process has made the stream non-blocking
                select.select([], [self.output_fd], [])
