"""Hash chains: each row of a stream holds the hash of its predecessor.

``row_hash`` is the digest of all other members of the row as canonical JSON, including ``prev_hash``. The ``prev_hash``
of the first row is :data:`GENESIS`. The hash of a row reveals any edit, removal or reordering of the rows before it.
The removal of the last rows is detected only with the hash of a removed row, if that hash is stored elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from manglecp.base.digest import digest

GENESIS: Final = "sha256:" + "0" * 64
"""``prev_hash`` of the first row."""


class Head(NamedTuple):
    """The number and the hash of the last row of a stream."""

    seq: int
    row_hash: str


EMPTY: Final = Head(0, GENESIS)
"""The head of a stream without rows."""


def row_hash(row: Mapping[str, Any]) -> str:
    """Return the hash of all members of a row except ``row_hash``, the member that stores the hash."""
    return digest({name: value for name, value in row.items() if name != "row_hash"})
