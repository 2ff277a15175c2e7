"""What is wrong with the documents of a package: all of it at once, each with its file and JSON pointer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from manglecp.base.diagnostic import Diagnostic, DiagnosticError, FileLocation

__all__ = ["PolicyError", "Problems"]


class PolicyError(DiagnosticError, ValueError):
    """Documents that are no policy."""


class Problems:
    """Collects diagnostics while documents are read; they sort by file and place."""

    def __init__(self) -> None:
        self._found: list[Diagnostic] = []

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(sorted(self._found, key=lambda found: (found.file, found.pointer, found.message)))

    def add(self, place: FileLocation, message: str) -> None:
        """Add an error at this place."""
        self._found.append(Diagnostic("policy", message, place))

    def unknown(self, place: FileLocation, what: str, name: str, known: Iterable[str]) -> None:
        """Add an unknown name, with the closest known one."""
        from manglecp.base.suggestions import did_you_mean  # only needed when something is wrong

        self.add(place, f"{what} {name!r} is unknown; {did_you_mean(name, known)}")

    def refuse(self) -> None:
        """Raise :class:`PolicyError` if there are any."""
        if self._found:
            raise PolicyError(tuple(self))
