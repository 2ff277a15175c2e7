"""The standard streams of this process, reserved for the protocol.

All other output goes to standard error (requirement TRANS-24). The module imports little, so that the manifest can be
written before the rest of the server is imported.
"""

from __future__ import annotations

import os
import select


class Streams:
    """The file descriptors of the protocol's input and output."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink

    @classmethod
    def claim(cls) -> Streams:
        """Return the standard streams of this process, and put an empty input and stderr in their place."""
        source, sink = os.dup(0), os.dup(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.dup2(2, 1)
        os.close(empty)
        return cls(source, sink)

    def write(self, data: bytes) -> None:
        """Write a line; blocks while the pipe is full."""
        rest = memoryview(data + b"\n")
        while rest:
            try:
                rest = rest[os.write(self.sink, rest) :]
            except BlockingIOError:  # another process has made the stream non-blocking
                select.select([], [self.sink], [])
