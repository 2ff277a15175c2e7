"""Diagnostics of a pack, collected while it is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from manglecp.base.diagnostic import Diagnostic, DiagnosticError, FileLocation, Severity

if TYPE_CHECKING:  # import cycle: pack.model imports governance, which imports this module
    from manglecp.pack.model import Pack

_MAX_REPORTED: Final = 200  # diagnostics in one PackError


class PackError(DiagnosticError):
    """A pack that was refused. ``partial`` is the part that could be read, for further checks."""

    def __init__(self, diagnostics: Iterable[Diagnostic], partial: Pack | None = None) -> None:
        super().__init__(diagnostics)
        self.partial = partial

    @classmethod
    def at(cls, file: str, message: str, *, fix: str | None = None) -> PackError:
        """Return an error with one diagnostic; ``file`` is empty for the whole pack."""
        return cls([pack_problem(file, message, fix=fix)])


def pack_problem(
    file: str,
    message: str,
    line: int | None = None,
    column: int | None = None,
    *,
    fix: str | None = None,
    severity: Severity = "error",
) -> Diagnostic:
    """Return a diagnostic; ``file`` is relative to the folder of the pack, or empty for the whole pack."""
    return Diagnostic("pack", message, FileLocation(file, line, column) if file else None, fix=fix, severity=severity)


class Problems:
    """Collects diagnostics while a pack is read."""

    def __init__(self) -> None:
        self._diagnostics: list[Diagnostic] = []

    def add(
        self, file: str, message: str, *, line: int | None = None, column: int | None = None, fix: str | None = None
    ) -> None:
        """Add an error."""
        self._diagnostics.append(pack_problem(file, message, line, column, fix=fix))

    def warn(self, file: str, message: str, *, fix: str | None = None) -> None:
        self._diagnostics.append(pack_problem(file, message, fix=fix, severity="warning"))

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        self._diagnostics += diagnostics

    @property
    def any_error(self) -> bool:
        return any(diagnostic.severity == "error" for diagnostic in self._diagnostics)

    def has_error(self, file: str) -> bool:
        return any(diagnostic.file == file and diagnostic.severity == "error" for diagnostic in self._diagnostics)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        return tuple(diagnostic for diagnostic in self._sorted() if diagnostic.severity == "warning")

    def raise_if_errors(self, partial: Pack | None = None) -> None:
        """Raise :class:`PackError` with all diagnostics if one is an error."""
        if self.any_error:
            diagnostics = self._sorted()
            if (excess := len(diagnostics) - _MAX_REPORTED) > 0:
                diagnostics[_MAX_REPORTED:] = [pack_problem("", f"and {excess} more")]
            raise PackError(diagnostics, partial)

    def _sorted(self) -> list[Diagnostic]:
        return sorted(self._diagnostics, key=lambda problem: (problem.file, problem.line or 0, problem.column or 0))
