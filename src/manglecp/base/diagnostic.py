"""Diagnostics: errors in an input as data, with a code, a message, a location and a fix.

Every stage that refuses an input (language, wire, pack) reports all it finds before it stops, as a tuple of these.
:meth:`Diagnostic.render` writes one for a terminal, with the line and a caret under the place where the text is known.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from manglecp.base.source import Span
from manglecp.base.text import truncate

Severity: TypeAlias = Literal["error", "warning"]

_MAX_LINE: Final = 160
_MAX_MESSAGE: Final = 2_000  # it may name facts and predicates, and those can have any length
_MAX_STEPS: Final = 64


class FileLocation(NamedTuple):
    """A place in a file, as far as it is known: line and column from 1, JSON pointer."""

    file: str
    line: int | None = None
    column: int | None = None
    pointer: str = ""

    def __truediv__(self, step: str | int) -> FileLocation:
        """Return the location of a part of the value here."""
        escaped = str(step).replace("~", "~0").replace("/", "~1")
        return self._replace(pointer=f"{self.pointer}/{escaped}")


class JsonPath(tuple[str | int, ...]):
    """The keys and indices that lead from the outermost JSON value to a part of it."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return a path such as ``$.args[1]``; long keys and paths are truncated."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{truncate(step)}" for step in self[:_MAX_STEPS])
        return "$" + "".join(steps) + ("…" if len(self) > _MAX_STEPS else "")


Location: TypeAlias = Span | FileLocation | JsonPath


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error. ``code`` names the stage or the kind of error, ``clause`` the clause that contains it."""

    code: str
    message: str
    location: Location | None = None
    clause: str | None = None
    fix: str | None = None
    severity: Severity = "error"

    @property
    def span(self) -> Span | None:
        """The location, where it is a stretch of a text."""
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
        """Return ``error[code]: file:line:column: message``, the line, a caret, the clause and the fix."""
        place = f"{_cut(self.place)}: " if self.place else ""
        lines = [f"{self.severity}[{self.code}]: {place}{_cut(self.message)}"]
        if self.span is not None:
            lines += _excerpt(self.span)
        if self.clause is not None:
            lines.append(f"  in: {_cut(' '.join(self.clause.split()), _MAX_LINE)}")
        if self.fix is not None:
            lines.append(f"  fix: {_cut(self.fix)}")
        return "\n".join(lines)


class DiagnosticError(Exception):
    """An input was refused, for these reasons."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        return "\n".join(diagnostic.render() for diagnostic in self.diagnostics)


def _excerpt(span: Span) -> list[str]:
    """Return the line, and a caret under each character of the place."""
    number, column = span.source.position(span.start)
    text = span.source.line(number)
    place = range(column - 1, max(column, min(column - 1 + span.end - span.start, len(text))))
    first, last = 0, len(text)
    if last > _MAX_LINE:  # a window around the place
        first = max(0, min(place.start - _MAX_LINE // 3, last - _MAX_LINE))
        last = first + _MAX_LINE
    excerpt = "\t".join(map(_printable, text[first:last].split("\t")))
    if first > 0:
        excerpt = "…" + excerpt[1:]
    if last < len(text):
        excerpt = excerpt[:-1] + "…"
    at = place.start - first
    carets = "".join("^" * len(_blank(c)) for c in excerpt[at : place.stop - first]) or "^"
    margin = f"{number} | "
    return [f"  {margin}{excerpt}", f"  {' ' * (len(margin) - 2)}| {''.join(map(_blank, excerpt[:at]))}{carets}"]


def _blank(character: str) -> str:
    """Return white space as wide as a character is on a screen."""
    if character == "\t":
        return character
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "


def _cut(text: str, longest: int = _MAX_MESSAGE) -> str:
    return _printable(text if len(text) <= longest else text[: longest - 1] + "…")


def _printable(text: str) -> str:
    """Return the text without control characters, which a terminal would interpret."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
