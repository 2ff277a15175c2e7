"""The standard streams of this process, taken for the protocol alone.

What anything else prints goes to standard error (TRANS-24). Needs nothing that takes long to load: the manifest can be
written before the rest is there.
"""

from __future__ import annotations

import os
import select

__all__ = ["Streams"]


class Streams:
    """The two streams of the protocol, as descriptors that nothing else has."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink

    @classmethod
    def claim(cls) -> Streams:
        """Those of this process. Whoever prints afterwards prints to standard error, and finds nothing to read."""
        source, sink = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)
        return cls(source, sink)

    def write(self, data: bytes) -> None:
        """One line; blocks until it is taken."""
        left = memoryview(data + b"\n")
        while left:
            try:
                left = left[os.write(self.sink, left) :]
            except BlockingIOError:  # others have the stream as well, and set it so
                select.select([], [self.sink], [])
