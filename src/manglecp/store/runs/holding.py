"""The first statement of everything that is written about a run.

It changes the row of the run, and only if the run is still held under the caller's fence. So it tests, and it locks:
until the transaction ends nobody can take the run over, and whoever took it over before is seen. There is no time
between the test and what rests on it.

Statements about steps come after it. On PostgreSQL the first of them travels with it, as one statement: what a step
costs there is mostly the way to the server and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from manglecp.store.database import Dialect, Transaction
from manglecp.store.runs.errors import Fenced, NotOpen

__all__ = ["Held", "Statement", "hold"]

# The same clock as Transaction.now_ms(), in the statement itself: on PostgreSQL that saves a round trip.
_NOW: Final[dict[Dialect, str]] = {
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
}
_BYTES: Final[dict[Dialect, str]] = {"sqlite": "BLOB", "postgresql": "BYTEA"}
_HOLD: Final[dict[Dialect, str]] = {
    dialect: f"""
    UPDATE runs SET revision = revision + ?, touched_ms = {now}, takeovers = takeovers * ?, slots = COALESCE(?, slots)
    WHERE run_id = ? AND fence = ? AND state = 'running'
    RETURNING cancel, touched_ms, revision
    """
    for dialect, now in _NOW.items()
}


class Held(NamedTuple):
    """The run as its holder finds it: whether somebody wants it cancelled, the time, and the new revision."""

    cancel: bool
    now_ms: int
    revision: int


class Statement(NamedTuple):
    """Something that touches one row of steps, under a run that is held."""

    sql: str
    """``{held}`` stands once for a table with one row, ``held``: touched_ms and revision of the run as they are now.
    ``{blob}`` is the type of bytes."""
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    """Values for the places before and after ``{held}``."""
    refusal: str
    """What it means if it touches no row."""


def hold(
    tx: Transaction,
    run_id: str,
    fence: int,
    *,
    changes: int,
    progress: bool = False,
    slots: bytes | None = None,
    then: Sequence[Statement] = (),
) -> Held:
    """``changes``: by how much the revision grows. ``progress``: the run is not the poison of those who run it."""
    params = (changes, 0 if progress else 1, slots, run_id, fence)
    travelling = then[0] if then and tx.dialect == "postgresql" else None
    if travelling is None:
        row = tx.execute(_HOLD[tx.dialect], params).fetchone()
    else:
        row = tx.execute(_together(travelling.sql), (*params, *travelling.before, *travelling.after)).fetchone()
    if row is None:
        raise Fenced(run_id, fence)
    cancel, now_ms, revision, *touched = row
    if travelling is not None:
        if touched != [1]:
            raise NotOpen(travelling.refusal)
        then = then[1:]
    for one in then:
        if tx.execute(_alone(one.sql, tx.dialect), (*one.before, run_id, *one.after)).rowcount != 1:
            raise NotOpen(one.refusal)
    return Held(bool(cancel), now_ms, revision)


@cache
def _alone(sql: str, dialect: Dialect) -> str:
    held = "(SELECT touched_ms, revision FROM runs WHERE run_id = ?) AS held"
    return sql.replace("{held}", held).replace("{blob}", _BYTES[dialect])


@cache
def _together(sql: str) -> str:
    written = sql.replace("{held}", "held").replace("{blob}", _BYTES["postgresql"])
    return f"""
    WITH held AS ({_HOLD["postgresql"]}), written AS ({written} RETURNING 1)
    SELECT cancel, touched_ms, revision, (SELECT count(*) FROM written) FROM held
    """
