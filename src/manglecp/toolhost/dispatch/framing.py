"""Lines out of a pipe: bytes in, whole lines out, never more in memory than one line may have.

A line ends at byte 0x0A and nowhere else: U+2028, a carriage return or a form feed inside a text is content. A line
that outgrows the limit is given up *while* it is read, not afterwards. What follows it cannot be told from its tail, so
the stream is over: :attr:`Lines.overflowed` stays true and nothing more is kept.

No I/O here. Whoever owns the pipe feeds what it read, in whatever pieces it came.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_OUTPUT", "Lines"]

MAX_OUTPUT: Final = 1_048_576
"""Bytes that one answer may have, its newline not counted (IPC-36)."""


class Lines:
    """The lines of one stream."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self.limit = limit
        self.overflowed = False
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next piece; the lines that it completes, without their newlines."""
        if self.overflowed:
            return []
        *ends, rest = data.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            if self._size + len(end) > self.limit:
                self._give_up()
                return lines
            if self._pieces:
                self._pieces.append(end)
                end = b"".join(self._pieces)
                self._pieces.clear()
                self._size = 0
            lines.append(end)
        if self._size + len(rest) > self.limit:
            self._give_up()
        elif rest:
            self._pieces.append(rest)
            self._size += len(rest)
        return lines

    def half(self) -> bytes:
        """What has come of a line that is not complete; at the end of a stream, the line its writer never finished."""
        return b"".join(self._pieces)

    def _give_up(self) -> None:
        self.overflowed = True
        self._pieces.clear()
        self._size = 0
