"""Whose a run is.

A claim ends at a time of the database's clock and is renewed while its owner lives. A run whose claim has lapsed may be
claimed by anybody; each claim raises the fence, and from that moment on the owner before can write nothing about it.

A run that went through too many hands without getting on is taken to be what kills them: it waits for a person.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

from manglecp.store.database import Database, Dialect, Transaction
from manglecp.store.errors import Unusable
from manglecp.store.runs.errors import Fenced
from manglecp.store.runs.model import Claimed, Run
from manglecp.store.runs.reading import find_run, load
from manglecp.store.runs.sealed import ValueSeals
from manglecp.store.runs.steps import doubt, first_in_doubt

__all__ = ["POISONED", "OnPoisoned", "claim", "release", "renew"]

POISONED: Final = "poisoned"
_MOST_UNREADABLE: Final = 100
"""Runs that are passed over in one search."""

OnPoisoned: TypeAlias = Callable[[Transaction, Run], None]
"""Told of a run that was set aside, in the transaction that does so: the place for a ledger entry."""

_LAPSED: Final = """
    SELECT run_id, takeovers + CASE WHEN owner IS NULL THEN 0 ELSE 1 END FROM runs
    WHERE state = 'running' AND claim_until_ms <= ? AND pack_digest IN ({digests}) {which}
    ORDER BY claim_until_ms LIMIT 1
"""
_CLAIM: Final = """
    UPDATE runs SET fence = fence + 1, owner = ?, claim_until_ms = ?, takeovers = ?, revision = revision + 1,
        touched_ms = ?
    WHERE run_id = ?
"""
_POISON: Final = f"""
    UPDATE runs SET state = 'needs_decision', code = '{POISONED}', fence = fence + 1, owner = NULL, claim_until_ms = 0,
        takeovers = ?, revision = revision + 1, touched_ms = ?, step = ?, kind = ?
    WHERE run_id = ?
"""
# One statement for all runs of an owner, however many they are.
_LISTED: Final[dict[Dialect, str]] = {
    "sqlite": "SELECT value FROM json_each(?)",
    "postgresql": "SELECT json_array_elements_text(CAST(? AS json))",
}
_RENEW: Final[dict[Dialect, str]] = {
    dialect: f"""
    UPDATE runs SET claim_until_ms = ? WHERE owner = ? AND state = 'running' AND run_id IN ({listed})
    RETURNING run_id, fence
    """
    for dialect, listed in _LISTED.items()
}
_RELEASE: Final = """
    UPDATE runs SET owner = NULL, claim_until_ms = ?, touched_ms = ?
    WHERE run_id = ? AND fence = ? AND state = 'running'
"""


def claim(
    database: Database,
    seals: ValueSeals,
    owner: str,
    claim_ms: int,
    pack_digests: Collection[str],
    most_takeovers: int,
    run_id: str | None,
    on_poisoned: OnPoisoned | None,
) -> Claimed | None:
    """The next run of these packs that nobody carries out, now the owner's; None if there is none."""
    if not pack_digests:
        return None
    unreadable: dict[str, Unusable] = {}
    while True:
        lapsed, which = _asked(pack_digests, run_id, unreadable)
        # Most of the time there is nothing to claim. To find that out must not keep anybody from writing.
        with database.read_transaction() as tx:
            if tx.execute(lapsed, (tx.now_ms(), *which)).fetchone() is None:
                break
        chosen = ""
        try:
            with database.write_transaction() as tx:
                now_ms = tx.now_ms()
                found = tx.locked(lapsed, (now_ms, *which)).fetchone()
                if found is None:  # somebody else was quicker, or is writing about it at this moment
                    break
                chosen, takeovers = found
                doubt(tx, chosen, now_ms)
                if takeovers <= most_takeovers:
                    tx.execute(_CLAIM, (owner, now_ms + claim_ms, takeovers, now_ms, chosen))
                    return load(tx, seals, chosen)
                tx.execute(_POISON, (takeovers, now_ms, *(first_in_doubt(tx, chosen) or (None, None)), chosen))
                if on_poisoned is not None and (poisoned := find_run(tx, chosen)) is not None:
                    on_poisoned(tx, poisoned)
        except Unusable as why:
            # Sealed with another key, or damaged: it stays as it was, and the runs behind it do not wait for that.
            if not chosen or len(unreadable) == _MOST_UNREADABLE:
                raise
            unreadable[chosen] = why
    for trouble in unreadable.values():
        raise trouble
    return None


def _asked(pack_digests: Collection[str], run_id: str | None, without: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """The statement that finds the next run, and its values."""
    digests, others = (", ".join("?" for _ in some) for some in (pack_digests, without))
    which = "" if run_id is None else "AND run_id = ?"
    which += f" AND run_id NOT IN ({others})" if others else ""
    return (
        _LAPSED.format(digests=digests, which=which),
        (*pack_digests, *(() if run_id is None else (run_id,)), *without),
    )


def renew(tx: Transaction, owner: str, runs: Mapping[str, int], claim_ms: int) -> set[str]:
    """All claims of an owner in one statement; gives back which runs are not its own any more."""
    if not runs:
        return set()
    rows = tx.execute(_RENEW[tx.dialect], (tx.now_ms() + claim_ms, owner, json.dumps(list(runs))))
    kept = dict(rows.fetchall())
    return {run_id for run_id, fence in runs.items() if kept.get(run_id) != fence}


def release(tx: Transaction, run_id: str, fence: int, after_ms: int) -> None:
    """Give a run back, for others to claim after so long. :class:`Fenced` if it is not the caller's any more."""
    now_ms = tx.now_ms()
    if tx.execute(_RELEASE, (now_ms + after_ms, now_ms, run_id, fence)).rowcount != 1:
        raise Fenced(run_id, fence)
