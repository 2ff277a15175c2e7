"""What a run leaves for a later one, such as the text that an edit has replaced.

It belongs to whoever the run belonged to, is sealed as other values are, and goes when the run is forgotten. Somebody
else's is not told from one that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from manglecp.store.database import Transaction
from manglecp.store.runs.sealed import ValueSeals

__all__ = ["keep", "kept"]

# A step that was repeated says it again.
_KEEP: Final = """
    INSERT INTO run_kept (run_id, name, value) VALUES (?, ?, ?)
    ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value
"""
_KEPT: Final = """
    SELECT k.value FROM run_kept k JOIN runs r ON r.run_id = k.run_id
    WHERE k.run_id = ? AND k.name = ? AND r.identity = ?
"""


def keep(tx: Transaction, seals: ValueSeals, run_id: str, values: Mapping[str, bytes]) -> None:
    """Seal these values and keep them under their names, for later runs of the same identity."""
    for name, value in values.items():
        tx.execute(_KEEP, (run_id, name, seals.seal_kept(value, run_id, name)))


def kept(tx: Transaction, seals: ValueSeals, identity: str, run_id: str, name: str) -> bytes | None:
    """The value that this run of the identity left; None if there is none, or no longer."""
    row = tx.execute(_KEPT, (run_id, name, identity)).fetchone()
    return None if row is None else seals.open_kept(row[0], run_id, name)
