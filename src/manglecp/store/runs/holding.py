"""The first statement of everything that is written about a run.

It changes the row of the run, and only if the run is still held under the caller's fence. So it tests, and it locks:
until the transaction ends nobody can take the run over, and whoever took it over before is seen. There is no time
between the test and what rests on it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from manglecp.store.database import Dialect, Transaction
from manglecp.store.runs.errors import Fenced

__all__ = ["Held", "hold"]

# The same clock as Transaction.now_ms(), in the statement itself: on PostgreSQL that saves a round trip.
_NOW: Final[dict[Dialect, str]] = {
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
}
_HOLD: Final[dict[Dialect, str]] = {
    dialect: f"""
    UPDATE runs SET revision = revision + ?, touched_ms = {now}, takeovers = takeovers * ?, slots = COALESCE(?, slots)
    WHERE run_id = ? AND fence = ? AND state = 'running'
    RETURNING cancel, touched_ms, revision
    """
    for dialect, now in _NOW.items()
}


class Held(NamedTuple):
    cancel: bool
    now_ms: int
    revision: int


def hold(
    tx: Transaction, run_id: str, fence: int, *, changes: int, progress: bool = False, slots: bytes | None = None
) -> Held:
    """``changes``: by how much the revision grows. ``progress``: the run is not the poison of those who run it."""
    row = tx.execute(_HOLD[tx.dialect], (changes, 0 if progress else 1, slots, run_id, fence)).fetchone()
    if row is None:
        raise Fenced(run_id, fence)
    cancel, now_ms, revision = row
    return Held(bool(cancel), now_ms, revision)
