"""Rows that cannot be changed unnoticed: each one holds the hash of the one before it.

``row_hash`` is the digest of the canonical JSON of the row without ``row_hash``, and so covers ``prev_hash``. The first
row of a stream follows :data:`GENESIS`. Who knows the hash of one row knows all rows before it: an edit, a removal or
another order shows. Rows cut off at the end show only to someone who kept a later hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from manglecp.harness.canonical import digest

__all__ = ["EMPTY", "GENESIS", "Head", "row_hash"]

GENESIS: Final = "sha256:" + "0" * 64
"""What the first row of a stream has for a predecessor."""


class Head(NamedTuple):
    """The last row of a stream."""

    seq: int
    row_hash: str


EMPTY: Final = Head(0, GENESIS)


def row_hash(row: Mapping[str, Any]) -> str:
    """The hash of a row that has its ``prev_hash``."""
    return digest({name: value for name, value in row.items() if name != "row_hash"})
