"""Everything that is wrong with one file, up to a cap."""

from __future__ import annotations

from typing import NoReturn

from manglecp.base.diagnostic import Diagnostic, FileLocation
from manglecp.base.source import Source, Span
from manglecp.mangle import ParseError


class Problems:
    """Errors of one file. The first one too many ends the reading."""

    def __init__(self, source: Source, most: int) -> None:
        self.source = source
        self.most = most
        self.found: list[Diagnostic] = []

    def add(self, message: str, start: int, end: int, fix: str | None = None) -> None:
        """Note what is wrong between two offsets of the text."""
        self.note(Diagnostic("parse", message, Span(self.source, start, max(end, start + 1)), fix=fix))

    def add_line(self, message: str, line: int, fix: str | None = None) -> None:
        """A mistake at a whole line."""
        start = self.source.offset(line)
        self.add(message, start, start + len(self.source.line(line)), fix)

    def note(self, diagnostic: Diagnostic) -> None:
        """A mistake; raises with all of them if it is the last that is told."""
        self.found.append(diagnostic)
        if len(self.found) >= self.most:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise with all that was found."""
        raise ParseError(self.found)

    def settle(self) -> None:
        """Refuse the file if anything is wrong with it."""
        if self.found:
            self.refuse()


def refuse(file: str, message: str, fix: str | None = None) -> NoReturn:
    """Refuse a file as a whole."""
    raise ParseError([Diagnostic("parse", message, FileLocation(file), fix=fix)])
