"""Source texts, and positions in source texts."""

from __future__ import annotations

import re
from bisect import bisect_right
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple


class Trust(IntEnum):
    """How much a rule file may decide; a smaller number is more trusted."""

    KERNEL = 0
    SCHEMA = 1
    POLICY = 2
    DOMAIN = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Source:
    """A named text with a trust level. Compared by identity."""

    def __init__(self, name: str, text: str, trust: Trust = Trust.DOMAIN) -> None:
        self.name = name
        self.text = text
        self.trust = trust

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {len(self.text)} characters, trust={self.trust.label})"

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(newline.end() for newline in re.finditer("\n", self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of a character offset, both counted from 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_start(self, line: int) -> int:
        """Return the offset of the first character of a line; lines are counted from 1."""
        return self._line_starts[line - 1]

    def line_text(self, line: int) -> str:
        """Return the text of a line, counted from 1, without its line end."""
        start = self._line_starts[line - 1]
        end = self._line_starts[line] if line < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")


class Span(NamedTuple):
    """A part of a source, by character offsets; ``end`` is exclusive."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]
