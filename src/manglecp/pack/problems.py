"""What is wrong with a pack: all of it at once, each with its place and what would fix it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from manglecp.mangle.errors import Diagnostic

__all__ = ["PackError", "Problem"]


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

    @classmethod
    def of(cls, diagnostic: Diagnostic) -> Problem:
        """What the language says about a rule file."""
        span = diagnostic.span
        lines = diagnostic.render().splitlines()
        excerpt = "\n".join(line for line in lines[1:] if not line.startswith("  fix: ")) or None
        if span is None:
            return cls("", diagnostic.message, fix=diagnostic.fix, severity=diagnostic.severity, excerpt=excerpt)
        line, column = span.source.position(span.start)
        return cls(span.source.name, diagnostic.message, line, column, diagnostic.fix, diagnostic.severity, excerpt)

    @property
    def place(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part not in (None, ""))

    def render(self) -> str:
        lines = [f"{self.severity}: {self.place + ': ' if self.place else ''}{self.message}"]
        if self.excerpt is not None:
            lines.append(self.excerpt)
        if self.fix is not None:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


class PackError(Exception):
    """A pack that cannot be used."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(problem.render() for problem in self.problems)
