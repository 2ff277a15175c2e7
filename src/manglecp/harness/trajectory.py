"""What a session leaves behind: one row per turn, each bound to the one before it.

A row's hash covers the row and the hash of the row before it, so that nobody can change, drop or swap a turn afterwards
without every later row saying so. Digests and classes only: payloads, inputs and messages stay out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from manglecp.base.hash_chain import GENESIS, row_hash

__all__ = ["Journal", "Trajectory", "verify_trajectory"]


class Journal(Protocol):
    """Where rows go. Whoever has a store passes one in."""

    def append(self, row: Mapping[str, Any], /) -> object:
        """Take the next row, or raise: then the row is not part of the trajectory."""


class Trajectory:
    """The rows of one session, chained while they are written."""

    def __init__(self, session_id: str, journal: Journal) -> None:
        self.session_id = session_id
        self._journal = journal
        self._last = GENESIS
        self._count = 0

    def ref(self, number: int) -> str:
        """How other records name the row with this number."""
        return f"trajectory://{self.session_id}/{number}"

    def append(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Complete a row with its number and hashes, give it to the journal, and return it."""
        row = {**members, "sessionId": self.session_id, "sequence": self._count, "prevHash": self._last}
        row["rowHash"] = row_hash(row, "rowHash")
        self._journal.append(row)
        self._last = row["rowHash"]
        self._count += 1
        return row


def verify_trajectory(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the rows of a session; nothing, if none was changed, dropped, added or moved.

    Rows that are missing at the end cannot be seen from the others: keep the last hash elsewhere to notice.
    """
    wrong: list[str] = []
    last = GENESIS
    for number, row in enumerate(rows):
        if row.get("sequence") != number:
            wrong.append(f"row {number}: its sequence is {row.get('sequence')}")
        if row.get("prevHash") != last:
            wrong.append(f"row {number}: it does not follow the row before it")
        if row.get("rowHash") != row_hash(row, "rowHash"):
            wrong.append(f"row {number}: it is not what was written")
        last = str(row.get("rowHash"))
    return wrong
