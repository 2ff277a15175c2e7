"""Diagnostics: errors in an input as data, with a code, a message, a location and a fix.

Every stage that refuses an input (language, wire, pack) collects all its diagnostics before it raises them as a
:class:`DiagnosticError`. :meth:`Diagnostic.render` formats a diagnostic for a terminal, and adds the source line with
carets if the location is a span of a source.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from manglecp.base.source import Span
from manglecp.base.text import truncate

Severity: TypeAlias = Literal["error", "warning"]

_MAX_LINE: Final = 160  # characters
_MAX_MESSAGE: Final = 2_000  # characters; a message may name facts and predicates, which can have any length
_MAX_STEPS: Final = 64  # steps of a path that are shown


class FileLocation(NamedTuple):
    """The known parts of a location in a file: line and column (counted from 1), or a JSON pointer."""

    file: str
    line: int | None = None
    column: int | None = None
    pointer: str = ""

    def __truediv__(self, step: str | int) -> FileLocation:
        """Return the location of the member or item ``step`` of the value at this location."""
        escaped = str(step).replace("~", "~0").replace("/", "~1")  # not base.json.escape_token: slow to import
        return self._replace(pointer=f"{self.pointer}/{escaped}")


class JsonPath(tuple[str | int, ...]):
    """The keys and indices that lead from the outermost JSON value to an inner value."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return a path such as ``$.args[1]``; long keys and paths are truncated."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{truncate(step)}" for step in self[:_MAX_STEPS])
        return "$" + "".join(steps) + ("…" if len(self) > _MAX_STEPS else "")


Location: TypeAlias = Span | FileLocation | JsonPath


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error or a warning. ``code`` is the stage or the kind of error, ``clause`` the text of the faulty clause."""

    code: str
    message: str
    location: Location | None = None
    clause: str | None = None
    fix: str | None = None
    severity: Severity = "error"

    @property
    def span(self) -> Span | None:
        """The location if it is a span, otherwise None."""
        return self.location if isinstance(self.location, Span) else None

    @property
    def file(self) -> str:
        """The name of the file, or ``""``."""
        if isinstance(self.location, Span):
            return self.location.source.name
        return self.location.file if isinstance(self.location, FileLocation) else ""

    @property
    def line(self) -> int | None:
        return None if self.location is None or isinstance(self.location, JsonPath) else self.location.line

    @property
    def column(self) -> int | None:
        return None if self.location is None or isinstance(self.location, JsonPath) else self.location.column

    @property
    def place(self) -> str:
        """The known parts of ``file:line:column: /pointer``, or the path in a JSON value."""
        if isinstance(self.location, JsonPath):
            return str(self.location)
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part not in (None, ""))
        return f"{place}: {self.pointer}" if self.pointer else place

    @property
    def pointer(self) -> str:
        """The JSON pointer to a value in a file, or ``""``."""
        return self.location.pointer if isinstance(self.location, FileLocation) else ""

    def render(self) -> str:
        """Return ``error[code]: file:line:column: message``, the source line, carets, the clause and the fix."""
        place = f"{_to_printable(self.place)}: " if self.place else ""
        lines = [f"{self.severity}[{self.code}]: {place}{_to_printable(self.message)}"]
        if self.span is not None:
            lines += _excerpt(self.span)
        if self.clause is not None:
            lines.append(f"  in: {_to_printable(' '.join(self.clause.split()), _MAX_LINE)}")
        if self.fix is not None:
            lines.append(f"  fix: {_to_printable(self.fix)}")
        return "\n".join(lines)


class DiagnosticError(Exception):
    """An input was refused; ``diagnostics`` are the reasons."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        return "\n".join(diagnostic.render() for diagnostic in self.diagnostics)


def _excerpt(span: Span) -> list[str]:
    """Return two lines: the first source line of the span, and below it carets that mark the span."""
    line_number, column = span.source.position(span.start)
    line = span.source.line_text(line_number)
    first = column - 1
    marked = range(first, max(column, min(first + span.end - span.start, len(line))))  # offsets in the line
    start, end = 0, len(line)
    if end > _MAX_LINE:  # show a part of the line that contains the start of the span
        start = max(0, min(marked.start - _MAX_LINE // 3, end - _MAX_LINE))
        end = start + _MAX_LINE
    excerpt = "\t".join(map(_to_printable, line[start:end].split("\t")))
    if start > 0:
        excerpt = "…" + excerpt[1:]
    if end < len(line):
        excerpt = excerpt[:-1] + "…"
    indent = marked.start - start
    carets = "".join("^" * len(_blank(c)) for c in excerpt[indent : marked.stop - start]) or "^"
    margin = f"{line_number} | "
    return [f"  {margin}{excerpt}", f"  {' ' * (len(margin) - 2)}| {''.join(map(_blank, excerpt[:indent]))}{carets}"]


def _blank(character: str) -> str:
    """Return white space that is as wide on a screen as the character."""
    if character == "\t":
        return character
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "


def _to_printable(text: str, max_length: int = _MAX_MESSAGE) -> str:
    """Return the text, shortened, with U+FFFD for characters that are not printable, such as terminal controls."""
    short = text if len(text) <= max_length else text[: max_length - 1] + "…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in short)
