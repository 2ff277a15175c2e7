"""The facts of sources that all servers of a store share, and the leases of the processes that poll the sources.

The store has one set of facts for each source, as compressed and sealed text. A process that polls a source owns the
source until its lease ends; the result of a process that has lost its lease is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from manglecp.store.database import NOW, Transaction
from manglecp.store.errors import Unusable
from manglecp.store.schema import read_part
from manglecp.store.seals import Seals

FACT_SOURCES: Final = read_part(__package__, "fact_sources")


class StoredSource(NamedTuple):
    """The state of a source. Times are milliseconds since 1970 by the clock of the database."""

    source: str
    version: int
    digest: str
    facts: int
    principal: str
    """The client that pushed this version, or the process that polled it."""
    changed_ms: int
    confirmed_ms: int
    owner: str | None
    lease_until_ms: int
    due_ms: int
    failures: int
    error: str | None


_SELECT: Final = f"SELECT {', '.join(StoredSource._fields)} FROM fact_source WHERE pack = ?"
_INSERT: Final = "INSERT INTO fact_source VALUES (?, ?, 0, '', 0, '', 0, 0, NULL, 0, 0, 0, NULL) ON CONFLICT DO NOTHING"
_PUT_CONTENT: Final = (
    "INSERT INTO fact_source_content VALUES (?, ?, ?)"
    " ON CONFLICT (pack, source) DO UPDATE SET content = excluded.content"
)
_PLACE: Final = "pack = ? AND source = ?"


class FactSources:
    """Operations on fact sources, each inside the caller's transaction."""

    __slots__ = ("_seals",)

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def ensure(self, tx: Transaction, pack: str, sources: Iterable[str]) -> None:
        """Add the rows of sources that the store does not know."""
        for source in sources:
            tx.execute(_INSERT, (pack, source))

    def packs(self, tx: Transaction) -> list[str]:
        return [str(pack) for (pack,) in tx.execute("SELECT DISTINCT pack FROM fact_source ORDER BY pack").fetchall()]

    def list(self, tx: Transaction, pack: str, *, lock: bool = False) -> dict[str, StoredSource]:
        """Return the sources of a pack by name; ``lock`` locks their rows until the end of the write transaction."""
        statement = f"{_SELECT} ORDER BY source"
        rows = tx.locked(statement, (pack,), wait=True) if lock else tx.execute(statement, (pack,))
        return {row[0]: StoredSource(*row) for row in rows.fetchall()}

    def content(self, tx: Transaction, pack: str, source: str) -> bytes:
        """Return the text of a source's facts; empty before the first version. Raises :class:`.Unusable`."""
        row = tx.execute(f"SELECT content FROM fact_source_content WHERE {_PLACE}", (pack, source)).fetchone()
        if row is None:
            return b""
        try:
            return zlib.decompress(self._seals.unseal(bytes(row[0]), "fact_source", pack, source))
        except zlib.error:
            raise Unusable(f"the facts of {source} are damaged; push them again") from None

    def put(
        self, tx: Transaction, pack: str, source: str, content: bytes, digest: str, facts: int, principal: str
    ) -> None:
        """Replace the facts of a source with the next version, which is then to be confirmed."""
        sealed_content = self._seals.seal(zlib.compress(content, 1), "fact_source", pack, source)
        tx.execute(_PUT_CONTENT, (pack, source, sealed_content))
        tx.execute(
            "UPDATE fact_source SET version = version + 1, digest = ?, facts = ?, principal = ?,"
            f" changed_ms = {NOW[tx.dialect]} WHERE {_PLACE}",
            (digest, facts, principal, pack, source),
        )

    def confirm(self, tx: Transaction, pack: str, source: str, age_ms: int) -> None:
        """Record that the facts of a source were provided ``age_ms`` ago, again or for the first time."""
        tx.execute(
            f"UPDATE fact_source SET confirmed_ms = {NOW[tx.dialect]} - ? WHERE {_PLACE}", (age_ms, pack, source)
        )

    def claim(self, tx: Transaction, pack: str, source: str, owner: str, lease_ms: int) -> bool:
        """Claim a source; return False if the source is not due, or if another process owns it."""
        now_ms = tx.now_ms()
        statement = (
            f"UPDATE fact_source SET owner = ?, lease_until_ms = ? WHERE {_PLACE} AND due_ms <= ?"
            " AND (owner = ? OR lease_until_ms <= ?)"
        )
        values = (owner, now_ms + lease_ms, pack, source, now_ms, owner, now_ms)
        return tx.execute(statement, values).rowcount == 1

    def renew(self, tx: Transaction, pack: str, source: str, owner: str, lease_ms: int) -> bool:
        """Renew the lease; return False if the owner has lost it. Locks the row until the end of the transaction."""
        statement = f"UPDATE fact_source SET lease_until_ms = ? WHERE {_PLACE} AND owner = ?"
        return tx.execute(statement, (tx.now_ms() + lease_ms, pack, source, owner)).rowcount == 1

    def schedule(
        self, tx: Transaction, pack: str, source: str, owner: str, *, pause_ms: int, lease_ms: int, error: str | None
    ) -> None:
        """Record the end of a poll, and the time of the next one; the owner keeps the source until then."""
        due_ms = tx.now_ms() + pause_ms
        failures = "0" if error is None else "failures + 1"
        tx.execute(
            f"UPDATE fact_source SET due_ms = ?, lease_until_ms = ?, failures = {failures}, error = ?"
            f" WHERE {_PLACE} AND owner = ?",
            (due_ms, due_ms + lease_ms, error, pack, source, owner),
        )

    def release(self, tx: Transaction, pack: str, owner: str) -> None:
        """End all leases of a process."""
        statement = "UPDATE fact_source SET owner = NULL, lease_until_ms = 0 WHERE pack = ? AND owner = ?"
        tx.execute(statement, (pack, owner))
