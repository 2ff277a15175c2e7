"""Forgetting what is over: answers first, later the runs themselves. What waits for a decision is never forgotten."""

from __future__ import annotations

from typing import Final, NamedTuple

from manglecp.store.database import Transaction
from manglecp.store.runs.model import Retention

__all__ = ["Swept", "sweep"]

_OLD_ANSWERS: Final = """
    SELECT run_id FROM runs WHERE answer_until_ms IS NOT NULL AND answer_until_ms <= ? ORDER BY answer_until_ms LIMIT ?
"""
_OLD_RUNS: Final = "SELECT run_id FROM runs WHERE ended_ms IS NOT NULL AND ended_ms <= ? ORDER BY ended_ms LIMIT ?"


class Swept(NamedTuple):
    """How many went. If one of them is as large as the limit, there may be more to sweep."""

    answers: int
    runs: int


def sweep(tx: Transaction, retention: Retention, limit: int) -> Swept:
    """Forget up to ``limit`` answers and ``limit`` runs that are older than ``retention`` says."""
    now_ms = tx.now_ms()
    runs = tx.locked(_OLD_RUNS, (now_ms - retention.runs_ms, limit)).fetchall()
    if runs:
        tx.executemany("DELETE FROM steps WHERE run_id = ?", runs)
        tx.executemany("DELETE FROM run_values WHERE run_id = ?", runs)
        tx.executemany("DELETE FROM run_kept WHERE run_id = ?", runs)
        tx.executemany("DELETE FROM runs WHERE run_id = ?", runs)
    answers = tx.locked(_OLD_ANSWERS, (now_ms, limit)).fetchall()
    if answers:
        tx.executemany("UPDATE run_values SET answer = NULL WHERE run_id = ?", answers)
        tx.executemany("UPDATE runs SET answer_until_ms = NULL WHERE run_id = ?", answers)
    return Swept(len(answers), len(runs))
