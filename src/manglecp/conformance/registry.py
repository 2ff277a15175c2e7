"""The checks: small functions, each with the requirements that it shows and where it applies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from manglecp.conformance.lines.line import Transport

if TYPE_CHECKING:
    from manglecp.conformance.bench import Bench

__all__ = ["HTTP", "SESSIONS", "STDIO", "WEBSOCKET", "Check", "check", "checks"]

ALL: Final[tuple[Transport, ...]] = ("http", "websocket", "stdio")
HTTP: Final[tuple[Transport, ...]] = ("http",)
SESSIONS: Final[tuple[Transport, ...]] = ("websocket", "stdio")
STDIO: Final[tuple[Transport, ...]] = ("stdio",)
WEBSOCKET: Final[tuple[Transport, ...]] = ("websocket",)
Run = Callable[["Bench"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check, with what it needs before it can run."""

    run: Run
    rows: tuple[str, ...]
    level: int
    transports: tuple[Transport, ...]
    access: bool
    """Does it need to be let in?"""
    patience: float
    """Times the usual seconds."""

    @property
    def name(self) -> str:
        """The first line of its docstring."""
        return (self.run.__doc__ or "").partition("\n")[0].rstrip(".")


_CHECKS: list[Check] = []


def check(
    *rows: str,
    level: int = 1,
    transports: tuple[Transport, ...] = ALL,
    access: bool = True,
    patience: float = 1.0,
) -> Callable[[Run], Run]:
    """Register a check; the first line of its text says what holds."""

    def register(run: Run) -> Run:
        _CHECKS.append(Check(run, rows, level, transports, access, patience))
        return run

    return register


def checks() -> tuple[Check, ...]:
    """All of them, in the order in which they are run."""
    import manglecp.conformance.checks  # noqa: F401 - they register themselves

    return tuple(_CHECKS)
