"""How much of a log is read, and how far ahead, before it is refused or given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["NESTING", "LogLimits"]

NESTING: Final = 100
"""How deep JSON may be nested, also where it is the text of an argument or a result."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """N pass, N + 1 is an error; the last two bound what is remembered and refuse nothing."""

    line: int = 64 << 20
    """Bytes of one line, or of a document that spans lines."""
    total: int = 8 << 30
    """Bytes of the whole log."""
    nesting: int = NESTING
    horizon: int = 64
    """Turns that wait for what follows them: their results, and whether the results are used later."""
    searched: int = 1 << 16
    """Characters of one result that are looked for in later replies."""
