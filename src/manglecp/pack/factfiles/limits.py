"""How much is read before a file is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileLimits:
    """N pass, N + 1 is an error. ``bytes`` counts what a file unpacks to, ``facts`` those of all files together."""

    bytes: int = 1 << 30
    facts: int = 20_000_000
    line: int = 1 << 20
    """Characters of one line, where a line is a record."""
    errors: int = 20
    """How many errors of one file are reported."""
