"""The operations on the ledger, each inside a transaction of its caller.

Append last: from then until the transaction ends, everybody else who appends has to wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.store.chain import GENESIS, Head
from manglecp.store.database import Dialect, Transaction
from manglecp.store.ledger.checking import Verified, check
from manglecp.store.ledger.entries import COLUMNS, Entry, Kind, Note, following, read_row, write_line
from manglecp.store.migrations import Part, append_only

__all__ = ["LEDGER", "Ledger"]

LEDGER: Final = Part(
    "ledger",
    (
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
    ),
)

_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM ledger"
_INSERT: Final = f"INSERT INTO ledger ({', '.join(COLUMNS)}) VALUES "
_PLACES: Final = f"({', '.join('?' for _ in COLUMNS)})"
_MOVE: Final = "UPDATE ledger_head SET seq = ?, row_hash = ? WHERE one = 1"

# The time comes with the head: on PostgreSQL every question is a way to the server and back.
_HEAD: Final[dict[Dialect, str]] = {
    "sqlite": "SELECT seq, row_hash, NULL FROM ledger_head WHERE one = 1",
    "postgresql": "SELECT seq, row_hash, (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    " FROM ledger_head WHERE one = 1",
}

_PAGE: Final = 1000
_AT_ONCE: Final = 500
"""Rows of one statement: databases limit how many values it may have."""


class Ledger:
    """Append, read, verify. It has no state: the database has."""

    __slots__ = ()

    def append(
        self,
        tx: Transaction,
        kind: Kind,
        body: Mapping[str, Any] | msgspec.Raw,
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
        seq, last, now = tx.locked(_HEAD[tx.dialect], wait=True).fetchone()
        head = Head(seq, last)
        at_ms = tx.now_ms() if now is None else now
        values: list[Any] = []
        for note in notes:
            head, row = following(head, note, at_ms)
            values += row
        insert = _INSERT + ", ".join([_PLACES] * len(notes))
        if tx.dialect == "postgresql":
            tx.execute(f"WITH moved AS ({_MOVE}) {insert}", (*head, *values))
        else:
            tx.execute(insert, values)
            tx.execute(_MOVE, head)
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


def _bare_rows(tx: Transaction) -> Iterator[Sequence[Any]]:
    """Every row as the database has it, in the order of the numbers."""
    page = tx.execute(f"{_SELECT} ORDER BY seq LIMIT ?", (_PAGE,)).fetchall()
    while page:
        yield from page
        page = tx.execute(f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT ?", (page[-1][0], _PAGE)).fetchall()
