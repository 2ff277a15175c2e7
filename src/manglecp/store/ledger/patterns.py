"""Bodies that are alike are kept as what is their own, and once what they have in common.

The witness of a turn is long, and nearly all of it is the same in every run of a tool. So the row of an entry may have
a *frame* for its body: JSON with one sign in it, :data:`GAP`, that no JSON has. There a text belongs that is made of
the entry's ``names`` by its ``pattern`` (:mod:`manglecp.harness.patterns`), which has a row of its own.

That is how entries are stored, and nothing more. What an entry says, what its hash covers and what an export has is the
whole body. So a pattern that is lost or changed shows like any other change: the entries that need it are damaged.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from manglecp.harness import Parts, expanded, read_pattern
from manglecp.store.database import Dialect, Transaction
from manglecp.store.schema import ByDialect, append_only

__all__ = ["GAP", "PATTERNS", "Kept", "Patterns"]

PATTERNS: Final[tuple[str | ByDialect, ...]] = (
    "CREATE TABLE ledger_pattern (digest {blob} PRIMARY KEY, pattern TEXT NOT NULL) {strict}",
    append_only("ledger_pattern", "patterns of entries"),
    "ALTER TABLE ledger ADD COLUMN pattern {blob}",
    "ALTER TABLE ledger ADD COLUMN names {blob}",
)

GAP: Final = "\x1a"
"""Within a text JSON writes it as an escape, and elsewhere it may not stand."""

_WRITTEN: Final[dict[Dialect, str]] = {"sqlite": "CAST(pattern AS BLOB)", "postgresql": "convert_to(pattern, 'UTF8')"}
"""Its bytes: they are hashed, and in a file that somebody changed they may be no text."""

_AT_HAND: Final = 64
"""Patterns that are not asked for again while many entries are read."""


class Kept(NamedTuple):
    """What the row of an entry has of its body."""

    body: str
    """The whole of it, or its frame."""
    pattern: bytes | None = None
    names: bytes | None = None


class Patterns:
    """Those of one transaction: each is read once, however many entries need it."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._parts = lru_cache(_AT_HAND)(self._read)

    def whole(self, kept: Kept, most: int) -> str:
        """The body; a :class:`ValueError` if it cannot be made any more, or if ``most`` signs are not enough for what
        the pattern makes."""
        if kept.pattern is None and kept.names is None:
            return kept.body
        before, gap, after = kept.body.partition(GAP)
        if kept.pattern is None or kept.names is None or not gap:
            raise ValueError("a part of it is missing")
        return before + expanded(self._parts(kept.pattern), kept.names, most) + after

    def _read(self, digest: bytes) -> Parts:
        written = _WRITTEN[self._tx.dialect]
        row = self._tx.execute(f"SELECT {written} FROM ledger_pattern WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            raise ValueError("there is no such pattern")
        return read_pattern(row[0], digest)
