"""The decision log: records of decisions, stored in batches that the ledger covers.

A batch has one ledger entry of the kind ``decision_log``, with the number of its records and the digest of its rows.
The rows are keyed by the number of that entry and their position in the batch, so that an altered, deleted, added or
reordered row contradicts the chain. Contents are sealed if the store has a key; the digest covers the sealed bytes, so
that a verification needs no key.

Retention deletes whole batches, oldest first, and appends an entry with the number of the last batch that it deleted.
Only batches up to that number may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest, digest_bytes
from manglecp.store.database import Transaction
from manglecp.store.errors import ChangeRefused
from manglecp.store.ledger import Ledger, NewEntry
from manglecp.store.schema import read_part
from manglecp.store.seals import Seals

DECISIONS: Final = read_part(__package__, "decisions")


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A decision to store."""

    id: str
    at_ms: int
    """The time of the decision."""
    operation: str
    """What the decision was made for, such as ``admission`` or ``effect``."""
    principal: str
    tool: str
    """Empty for a decision about an intent."""
    verdict: str
    run: str | None = None
    revision: str
    """The digest of the pack."""
    args_digest: str
    content: bytes
    """Everything else, opaque to the store."""


class StoredDecision(DecisionRecord, frozen=True, kw_only=True):
    """A stored decision; ``content`` is sealed."""

    entry: int
    position: int


_COLUMNS: Final = ("entry", "position", *DecisionRecord.__struct_fields__)
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM decision"
_INSERT: Final = f"INSERT INTO decision ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_KIND: Final = "decision_log"
_PAGE_ENTRIES: Final = 200  # batches that are verified at once
_MAX_PRUNED_RECORDS: Final = 10_000  # in one transaction
_MAX_FINDINGS: Final = 100


class Decisions:
    """Operations of the decision log, each inside the caller's transaction."""

    __slots__ = ("_ledger", "_seals")

    def __init__(self, ledger: Ledger, seals: Seals) -> None:
        self._ledger = ledger
        self._seals = seals

    def append_all(self, tx: Transaction, records: Sequence[DecisionRecord], entries: Sequence[NewEntry] = ()) -> None:
        """Append ``entries`` and the entry of the batch to the ledger, and store the batch.

        This locks the head of the ledger: call it last in a transaction.
        """
        rows = []
        for position, record in enumerate(records):
            *columns, content = msgspec.structs.astuple(record)
            rows.append([position, *columns, self._seals.seal(content, "decision", record.id)])
        body = {"count": len(rows), "digest": _batch_digest(rows)}
        seq = self._ledger.append_all(tx, [*entries, NewEntry(_KIND, body)]).seq
        tx.executemany(_INSERT, [(seq, *row) for row in rows])

    def find(self, tx: Transaction, decision_id: str) -> StoredDecision:
        """Return a decision. Raises :class:`.ChangeRefused` for an unknown id."""
        row = tx.execute(f"{_SELECT} WHERE id = ?", (decision_id,)).fetchone()
        if row is None:
            raise ChangeRefused("no_decision", f"there is no decision {decision_id}, or it was deleted by retention")
        return _read_row(row)

    def exists(self, tx: Transaction, decision_id: str) -> bool:
        return tx.execute("SELECT 1 FROM decision WHERE id = ?", (decision_id,)).fetchone() is not None

    def newest(self, tx: Transaction, limit: int, **filters: str | None) -> list[StoredDecision]:
        """Return the newest decisions that match all filters (names of text columns), the newest first."""
        conditions = {f"{name} = ?": value for name, value in filters.items() if value is not None}
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = tx.execute(f"{_SELECT}{where} ORDER BY entry DESC, position DESC LIMIT ?", (*conditions.values(), limit))
        return list(map(_read_row, rows.fetchall()))

    def unreported(self, tx: Transaction, limit: int) -> list[StoredDecision]:
        """Return the newest permits whose outcome was not reported, the newest first."""
        outcome = "SELECT 1 FROM decision AS outcome WHERE outcome.run = decision.run AND outcome.operation = 'outcome'"
        where = f"WHERE operation = 'permit' AND run IS NOT NULL AND NOT EXISTS ({outcome})"
        rows = tx.execute(f"{_SELECT} {where} ORDER BY entry DESC, position DESC LIMIT ?", (limit,))
        return list(map(_read_row, rows.fetchall()))

    def content(self, stored: StoredDecision) -> bytes:
        """Return the content. Raises :class:`.Unusable` without the key that sealed it."""
        return self._seals.unseal(stored.content, "decision", stored.id)

    def prune(self, tx: Transaction, before_ms: int) -> int:
        """Delete the oldest batches whose decisions were all made before a time, and return the number of decisions.

        One call deletes a limited number; repeat it until it returns 0. The deletion has a ledger entry.
        """
        keep = tx.execute("SELECT entry FROM decision WHERE at_ms >= ? ORDER BY entry LIMIT 1", (before_ms,)).fetchone()
        last = tx.execute("SELECT max(entry) FROM decision").fetchone()[0]
        if last is None:
            return 0
        end = last + 1 if keep is None else keep[0]
        limit_row = tx.execute(
            "SELECT entry FROM decision WHERE entry < ? ORDER BY entry LIMIT 1 OFFSET ?", (end, _MAX_PRUNED_RECORDS)
        ).fetchone()
        last_pruned = end - 1 if limit_row is None else limit_row[0]
        count = tx.execute("DELETE FROM decision WHERE entry <= ?", (last_pruned,)).rowcount
        if count:
            self._ledger.append(tx, _KIND, {"pruned_through": last_pruned, "count": count})
        return count

    def verify(self, tx: Transaction) -> list[str]:
        """Compare all records with the ledger, whose chain is verified separately; return the differences."""
        findings: list[str] = []
        for finding in self._differences(tx):
            if len(findings) == _MAX_FINDINGS:
                return [*findings, "and more"]
            findings.append(finding)
        return findings

    def _differences(self, tx: Transaction) -> Iterator[str]:
        pruned_through, last_seq = self._pruned_through(tx), 0
        while True:
            page = self._ledger.rows(tx, last_seq, _PAGE_ENTRIES, kind=_KIND)
            batches = {entry.seq: entry.body for entry in page if "digest" in entry.body}
            end = page[-1].seq if page else None
            bound, values = ("", (last_seq,)) if end is None else (" AND entry <= ?", (last_seq, end))
            rows = tx.execute(f"{_SELECT} WHERE entry > ?{bound} ORDER BY entry, position", values).fetchall()
            for entry, group in groupby(rows, key=lambda row: row[0]):
                body = batches.pop(entry, None)
                if body is None:
                    yield f"entry {entry}: decisions are stored for it, and it is no entry of the decision log"
                elif body["digest"] != _batch_digest([row[1:] for row in group]):
                    yield f"entry {entry}: its decisions were altered, deleted or reordered"
            yield from (f"entry {entry}: its decisions are missing" for entry in batches if entry > pruned_through)
            if end is None:
                return
            last_seq = end

    def _pruned_through(self, tx: Transaction) -> int:
        last_seq = pruned = 0
        while page := self._ledger.rows(tx, last_seq, _PAGE_ENTRIES, kind=_KIND):
            pruned = max(pruned, *(entry.body.get("pruned_through", 0) for entry in page))
            last_seq = page[-1].seq
        return pruned


def _batch_digest(rows: Sequence[Sequence[Any]]) -> str:
    """Return the digest of a batch; a row has all columns but the first, ``entry``."""
    return digest([[*row[:-1], digest_bytes(bytes(row[-1]))] for row in rows])


def _read_row(row: Sequence[Any]) -> StoredDecision:
    return StoredDecision(**dict(zip(_COLUMNS, row, strict=True)) | {"content": bytes(row[-1])})
