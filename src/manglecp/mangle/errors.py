"""What can be wrong with a program, as data (D28).

    MangleError                 one or more diagnostics of one stage
    ├── ParseError              the text is not Mangle
    ├── AnalysisError           names, declarations, safety, types
    ├── StratificationError     negation or aggregation through recursion
    └── EvalError               a run-time error
        └── LimitError          more facts, intervals or time than allowed

A stage reports everything it finds before it stops. A diagnostic knows where it is, what is wrong, and what would fix
it where that is known; :meth:`Diagnostic.render` writes it with the line and a caret under the place.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from manglecp.mangle.source import Span

Stage = Literal["parse", "analysis", "stratification", "eval"]

_WIDEST_LINE = 160
_LONGEST_MESSAGE = 2_000  # it may name facts and predicates, and those can have any length


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that is wrong, where it is, and what would fix it."""

    stage: Stage
    message: str
    span: Span | None = None
    clause: str | None = None
    fix: str | None = None
    severity: Literal["error", "warning"] = "error"

    def render(self) -> str:
        """``error[stage]: file:line:column: message``, the line, a caret, the clause and the fix."""
        head = f"{self.severity}[{self.stage}]: "
        if self.span is None:
            lines = [head + _cut(self.message)]
        else:
            number, column = self.span.source.position(self.span.start)
            lines = [f"{head}{_cut(self.span.source.name)}:{number}:{column}: {_cut(self.message)}"]
            lines += _excerpt(self.span, number, column)
        if self.clause is not None:
            lines.append(f"  in: {_shorten(self.clause)}")
        if self.fix is not None:
            lines.append(f"  fix: {_cut(self.fix)}")
        return "\n".join(lines)


def _excerpt(span: Span, number: int, column: int) -> list[str]:
    """The line, and a caret under each character of the place."""
    text = span.source.line(number)
    place = range(column - 1, max(column, min(column - 1 + span.end - span.start, len(text))))
    first, last = 0, len(text)
    if last > _WIDEST_LINE:  # a window around the place
        first = max(0, min(place.start - _WIDEST_LINE // 3, last - _WIDEST_LINE))
        last = first + _WIDEST_LINE
    shown = "\t".join(map(_printable, text[first:last].split("\t")))
    if first > 0:
        shown = "…" + shown[1:]
    if last < len(text):
        shown = shown[:-1] + "…"
    at = place.start - first
    carets = "".join("^" * len(_blank(c)) for c in shown[at : place.stop - first]) or "^"
    margin = f"{number} | "
    return [f"  {margin}{shown}", f"  {' ' * (len(margin) - 2)}| {''.join(map(_blank, shown[:at]))}{carets}"]


def _blank(character: str) -> str:
    """White space as wide as a character is on a screen."""
    if character == "\t":
        return character
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "


def _shorten(text: str) -> str:
    return _cut(" ".join(text.split()), _WIDEST_LINE)


def _cut(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    return _printable(text if len(text) <= longest else text[: longest - 1] + "…")


def _printable(text: str) -> str:
    """Without what would speak to a terminal; texts of programs may hold any character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


class MangleError(Exception):
    """A program was refused, or its evaluation stopped."""

    stage: ClassVar[Stage]

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """All diagnostics as text, each with its line of the program."""
        return "\n".join(d.render() for d in self.diagnostics)


class ParseError(MangleError):
    """The text is no Mangle program, or a fact file cannot be read as the declarations say."""

    stage = "parse"


class AnalysisError(MangleError):
    """It is one, but a name, a variable, a declaration or a type is wrong."""

    stage = "analysis"


class StratificationError(MangleError):
    """A predicate depends on its own negation or aggregate."""

    stage = "stratification"


class EvalError(MangleError):
    """The program was accepted, and failed while running."""

    stage = "eval"


class LimitError(EvalError):
    """A limit was passed; nothing of the evaluation remains."""

    def __init__(self, limit: float, consumed: float, unit: str, span: Span | None = None) -> None:
        self.limit = limit
        self.consumed = consumed
        self.unit = unit
        message = f"limit of {limit} {unit} passed ({consumed} reached)"
        super().__init__([Diagnostic("eval", message, span, fix="raise the limit, or bound the recursion")])


class ValueFault(Exception):
    """A function, built-in predicate or reducer met a value it cannot take.

    It says what is wrong; whoever evaluates the clause adds where, and raises :class:`EvalError`.
    """
