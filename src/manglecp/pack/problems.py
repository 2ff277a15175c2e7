"""What is wrong with a pack: all of it at once, each with its place and what would fix it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from manglecp.mangle import Diagnostic

if TYPE_CHECKING:  # packs hold their warnings
    from manglecp.pack.model import Pack

__all__ = ["PackError", "Problem", "Problems"]

_MOST: Final = 200
"""Problems that are told. Who has more has one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """``file`` is relative to the pack; lines and columns count from 1."""

    file: str
    message: str
    line: int | None = None
    column: int | None = None
    fix: str | None = None
    severity: Literal["error", "warning"] = "error"
    excerpt: str | None = None
    """The line and a caret, where the place is in a rule file."""
    stage: str = "pack"
    """What found it: a stage of the language, or the reading of the pack."""
    end_line: int | None = None
    end_column: int | None = None
    """Behind the last character."""
    clause: str | None = None

    @classmethod
    def of(cls, diagnostic: Diagnostic) -> Problem:
        """What the language says about a rule file."""
        span = diagnostic.span
        lines = diagnostic.render().splitlines()
        excerpt = "\n".join(line for line in lines[1:] if not line.startswith("  fix: ")) or None
        file, line, column, end_line, end_column = "", None, None, None, None
        if span is not None:
            file = span.source.name
            line, column = span.source.position(span.start)
            end_line, end_column = span.source.position(span.end)
        return cls(
            file,
            diagnostic.message,
            line,
            column,
            diagnostic.fix,
            diagnostic.severity,
            excerpt,
            diagnostic.code,
            end_line,
            end_column,
            diagnostic.clause,
        )

    @property
    def place(self) -> str:
        """``file:line:column``, as much of it as is known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part not in (None, ""))

    def render(self) -> str:
        """Severity, place and message, then the line of the file and what would fix it, where they are known."""
        lines = [f"{self.severity}: {self.place + ': ' if self.place else ''}{self.message}"]
        if self.excerpt is not None:
            lines.append(self.excerpt)
        if self.fix is not None:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


class PackError(Exception):
    """A pack that cannot be used. ``partial`` is what could be read of it, for whoever looks for more that is wrong."""

    def __init__(self, problems: Iterable[Problem], partial: Pack | None = None) -> None:
        self.problems = tuple(problems)
        self.partial = partial
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(problem.render() for problem in self.problems)


class Problems:
    """Collects them while a pack is read."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(
        self, file: str, message: str, *, line: int | None = None, column: int | None = None, fix: str | None = None
    ) -> None:
        """One more error."""
        self._found.append(Problem(file, message, line, column, fix))

    def warn(self, file: str, message: str, *, line: int | None = None, fix: str | None = None) -> None:
        """Something that does not keep the pack from loading."""
        self._found.append(Problem(file, message, line, None, fix, "warning"))

    def note(self, diagnostics: Iterable[Diagnostic]) -> None:
        """What the language says."""
        self._found += map(Problem.of, diagnostics)

    @property
    def any_error(self) -> bool:
        """Is there more than warnings?"""
        return any(problem.severity == "error" for problem in self._found)

    def sound(self, file: str) -> bool:
        """Whether nothing is wrong with a file so far."""
        return not any(problem.file == file and problem.severity == "error" for problem in self._found)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """In the order of files and lines."""
        return tuple(problem for problem in self._sorted() if problem.severity == "warning")

    def refuse(self, partial: Pack | None = None) -> None:
        """Raise if there is an error. ``partial`` is what was read all the same."""
        if self.any_error:
            found = self._sorted()
            if len(found) > _MOST:
                found = [*found[:_MOST], Problem("", f"and {len(found) - _MOST} more")]
            raise PackError(found, partial)

    def _sorted(self) -> list[Problem]:
        return sorted(self._found, key=lambda problem: (problem.file, problem.line or 0, problem.column or 0))
