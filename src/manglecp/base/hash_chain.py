"""Hash chains: each row of a stream holds the hash of its predecessor.

``row_hash`` is the digest of the row's canonical JSON without ``row_hash``, so it covers ``prev_hash``. The first row
follows :data:`GENESIS`. A known hash fixes all rows before it: an edit, a removal or a reordering is detected.
Truncation at the end is detected only against a later hash that was stored elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from manglecp.base.digest import digest

GENESIS: Final = "sha256:" + "0" * 64
"""``prev_hash`` of the first row."""


class Head(NamedTuple):
    """The last row of a stream."""

    seq: int
    row_hash: str


EMPTY: Final = Head(0, GENESIS)


def row_hash(row: Mapping[str, Any], member: str = "row_hash") -> str:
    """Return the hash of a row that has the hash of its predecessor; ``member`` names its own, which is left out."""
    return digest({name: value for name, value in row.items() if name != member})
