"""The operations on the ledger, each inside a transaction of its caller.

Append last: from then until the transaction ends, everybody else who appends has to wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from manglecp.base.hash_chain import GENESIS, Head
from manglecp.store.database import Dialect, Transaction
from manglecp.store.ledger.checking import Verified, check
from manglecp.store.ledger.entries import (
    COLUMNS,
    Body,
    Entry,
    EntryKind,
    Note,
    following,
    prepared,
    read_row,
    write_line,
)
from manglecp.store.schema import Part, append_only

__all__ = ["LEDGER", "Ledger"]

LEDGER: Final = Part(
    "ledger",
    (
        """
            CREATE TABLE ledger (
                seq       BIGINT PRIMARY KEY CHECK (seq > 0),
                at_ms     BIGINT NOT NULL,
                kind      TEXT NOT NULL,
                run       TEXT,
                identity  TEXT,
                body      TEXT NOT NULL,
                prev_hash TEXT NOT NULL,
                row_hash  TEXT NOT NULL
            ) {strict}
            """,
        "CREATE INDEX ledger_of_run ON ledger (run, seq) WHERE run IS NOT NULL",
        append_only("ledger", "entries"),
        """
            CREATE TABLE ledger_head (
                one      BIGINT PRIMARY KEY CHECK (one = 1),
                seq      BIGINT NOT NULL,
                row_hash TEXT NOT NULL
            ) {strict}
            """,
        f"INSERT INTO ledger_head VALUES (1, 0, '{GENESIS}')",
    ),
)

_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM ledger"
_PLACES: Final = f"({', '.join('?' for _ in COLUMNS)})"
_MOVE: Final = "UPDATE ledger_head SET seq = ?, row_hash = ? WHERE one = 1"

_PAGE: Final = 1000
_AT_ONCE: Final = 500
"""Rows of one statement: databases limit how many values it may have."""

_NOW: Final[dict[Dialect, str]] = {
    "sqlite": "NULL",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
}


def _head(dialect: Dialect) -> str:
    """The head and the time in one statement: on PostgreSQL each is a round trip."""
    return f"SELECT seq, row_hash, {_NOW[dialect]} FROM ledger_head WHERE one = 1"


@cache
def _insert(entries: int) -> str:
    return f"INSERT INTO ledger ({', '.join(COLUMNS)}) VALUES {_listed(_PLACES, entries)}"


def _listed(one: str, times: int) -> str:
    return ", ".join([one] * times)


class Ledger:
    """Append, read, verify. It has no state: the database has."""

    __slots__ = ()

    def append(
        self,
        tx: Transaction,
        kind: EntryKind,
        body: Body,
        *,
        run: str | None = None,
        identity: str | None = None,
    ) -> Head:
        """``Invalid`` if the body is too long or has no canonical JSON."""
        return self.append_all(tx, [Note(kind, body, run, identity)])

    def append_all(self, tx: Transaction, notes: Sequence[Note]) -> Head:
        """Several at once, in their order; cheaper than one by one."""
        head = None
        for start in range(0, len(notes), _AT_ONCE):
            head = self._append(tx, notes[start : start + _AT_ONCE])
        return self.head(tx) if head is None else head

    def _append(self, tx: Transaction, notes: Sequence[Note]) -> Head:
        given = [prepared(note) for note in notes]
        seq, last, now = tx.locked(_head(tx.dialect), wait=True).fetchone()
        head = Head(seq, last)
        at_ms = tx.now_ms() if now is None else now
        values: list[Any] = []
        for one in given:
            head, row = following(head, one, at_ms)
            values += row
        steps: list[tuple[str, Sequence[Any]]] = [(_MOVE, head), (_insert(len(notes)), values)]
        if tx.dialect == "postgresql":
            _at_once(tx, steps)
        else:
            for step in steps:
                tx.execute(*step)
        return head

    def head(self, tx: Transaction) -> Head:
        """Of the last entry."""
        return Head(*tx.execute("SELECT seq, row_hash FROM ledger_head WHERE one = 1").fetchone())

    def entry(self, tx: Transaction, seq: int) -> Entry | None:
        """The one with this number, None if there is none."""
        row = tx.execute(f"{_SELECT} WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else read_row(row)

    def rows(
        self,
        tx: Transaction,
        since: int = 0,
        limit: int = 100,
        *,
        kind: str | None = None,
        run: str | None = None,
        identity: str | None = None,
    ) -> list[Entry]:
        """The first entries after number ``since``, in their order."""
        wanted = {"kind": kind, "run": run, "identity": identity}
        given = {f" AND {name} = ?": value for name, value in wanted.items() if value is not None}
        sql = f"{_SELECT} WHERE seq > ?{''.join(given)} ORDER BY seq LIMIT ?"
        return [read_row(row) for row in tx.execute(sql, (since, *given.values(), limit)).fetchall()]

    def verify(self, tx: Transaction, *, expect: Head | None = None) -> Verified:
        """Compute the chain again. ``expect`` is an entry that somebody noted earlier."""
        verified = check(_bare_rows(tx), read_row, expect)
        if (head := self.head(tx)) != verified.head:
            missing = f"entry {head.seq}: the head of the ledger is not its last entry, number {verified.head.seq}"
            return verified._replace(findings=[*verified.findings, missing])
        return verified

    def export(self, tx: Transaction) -> Iterator[bytes]:
        """A line of canonical JSON for each entry."""
        return (write_line(read_row(row)) + b"\n" for row in _bare_rows(tx))


def _at_once(tx: Transaction, steps: Sequence[tuple[str, Sequence[Any]]]) -> None:
    """Several changes in one statement: what they change is none of each other's business."""
    *before, last = steps
    named = ", ".join(f"step{number} AS ({sql})" for number, (sql, _) in enumerate(before))
    tx.execute(f"WITH {named} {last[0]}", [value for _, values in steps for value in values])


def _bare_rows(tx: Transaction) -> Iterator[Sequence[Any]]:
    """Every row as the database has it, in the order of the numbers."""
    page = tx.execute(f"{_SELECT} ORDER BY seq LIMIT ?", (_PAGE,)).fetchall()
    while page:
        yield from page
        page = tx.execute(f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT ?", (page[-1][0], _PAGE)).fetchall()
