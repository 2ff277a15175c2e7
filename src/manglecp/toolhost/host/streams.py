"""Standard input and output, out of the reach of tools.

A tool that prints, or whose child does, must not write into the answers; one that reads must not eat requests. So the
real streams move to descriptors that nobody else knows and no child inherits. What is left in their place is
standard error for output, and nothing for input.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from manglecp.toolhost.host.messages import MAX_REQUEST

__all__ = ["Oversize", "Streams"]

_CHUNK: Final = 1 << 20


class Oversize(Exception):
    """More than a request may have. It was read to its end, so that the next one can be."""


class Streams:
    """The private ends of the protocol."""

    def __init__(self) -> None:
        self._input = open(os.dup(0), "rb", buffering=_CHUNK)  # noqa: SIM115, PTH123  # lives as long as the process
        self._output: Final = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def line(self) -> bytes:
        """The next line without its newline, or nothing: the end of the input and an empty line mean the same."""
        line = self._input.readline(MAX_REQUEST + 1)
        if len(line) > MAX_REQUEST and not line.endswith(b"\n"):
            while (rest := self._input.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
            raise Oversize
        return line.removesuffix(b"\n")

    def everything(self) -> bytes:
        """All of the input."""
        data = self._input.read(MAX_REQUEST + 1)
        if len(data) > MAX_REQUEST:
            while self._input.read(_CHUNK):
                pass
            raise Oversize
        return data

    def write(self, data: bytes) -> None:
        """Write all of it; BrokenPipeError if nobody wants it any more."""
        written = os.write(self._output, data)
        while written < len(data):
            data = data[written:]
            written = os.write(self._output, data)
