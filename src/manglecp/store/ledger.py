"""The audit ledger: one append-only hash chain for the whole store.

Every entry has a sequence number, a timestamp, a kind, a run and an identity, a body, and the hash of its predecessor
(:mod:`manglecp.base.hash_chain`). The hash of an entry covers the canonical JSON of these fields. The head (number
and hash of the last entry) has its own row. Each append locks this row, so that concurrent processes extend one chain;
the head also reveals truncation. A database owner can rewrite the whole chain, but a copy of the head elsewhere reveals
it.

Bodies hold digests, ids, codes and times, never arguments, outputs or secrets.
Append last in a transaction: other appenders wait until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from manglecp.base.hash_chain import EMPTY, Head, row_hash
from manglecp.base.json import Uncanonical, canonical
from manglecp.store.database import NOW, Transaction
from manglecp.store.errors import Invalid, Unusable
from manglecp.store.schema import append_only, read_part

EntryKind: TypeAlias = Literal[
    "admission", "run", "turn", "step", "end", "decision", "decision_log", "approval", "policy", "audit", "facts"
]

KINDS: Final[frozenset[str]] = frozenset(get_args(EntryKind))

MAX_BODY_BYTES: Final = 4_194_304

Body: TypeAlias = Mapping[str, Any] | msgspec.Raw
"""A JSON object. ``Raw`` is canonical JSON text, of the whole object or of a value in it."""


class NewEntry(NamedTuple):
    """An entry to append."""

    kind: EntryKind
    body: Body
    run: str | None = None  # run id
    identity: str | None = None


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stored entry, with its hash and that of its predecessor."""

    seq: int
    at_ms: int
    kind: str
    run: str | None
    identity: str | None
    body: dict[str, Any]
    prev_hash: str
    row_hash: str

    @property
    def head(self) -> Head:
        return Head(self.seq, self.row_hash)

    def computed_hash(self) -> str:
        return row_hash(msgspec.structs.asdict(self))


COLUMNS: Final = LedgerEntry.__struct_fields__


def encode_body(entry: NewEntry) -> bytes:
    """Validate an entry and return the canonical JSON of its body. Raises :class:`.Invalid`."""
    if entry.kind not in KINDS:
        raise Invalid("kind", f"it is one of {', '.join(sorted(KINDS))}")
    try:
        body = bytes(entry.body) if isinstance(entry.body, msgspec.Raw) else canonical(dict(entry.body))
    except Uncanonical as error:
        raise Invalid("body", str(error)) from None
    if len(body) > MAX_BODY_BYTES:
        raise Invalid("body", f"it has {len(body)} bytes, and {MAX_BODY_BYTES} are allowed")
    return body


def read_row(row: Sequence[Any]) -> LedgerEntry:
    """Return the entry in a row of ``COLUMNS``. Raises :class:`.Unusable` if it is damaged."""
    fields = dict(zip(COLUMNS, row, strict=True))
    try:
        body = msgspec.json.decode(fields["body"], type=dict[str, Any])
        if canonical(body).decode() != fields["body"]:
            raise ValueError
        return msgspec.convert(fields | {"body": body}, LedgerEntry)
    except (ValueError, TypeError, RecursionError):
        raise Unusable(f"entry {row[0]} is damaged: it is not a valid entry") from None


def encode_line(entry: LedgerEntry) -> bytes:
    """Return the line of an entry in an export, without the line feed."""
    return canonical(msgspec.structs.asdict(entry))


def read_line(line: bytes) -> LedgerEntry:
    """Parse a line of an export. Raises :class:`ValueError`, whose message does not quote the line."""
    try:
        entry = msgspec.json.decode(line, type=LedgerEntry)
        canonical_line = encode_line(entry)
    except (ValueError, RecursionError):
        raise ValueError("not an entry of a ledger") from None
    if canonical_line != line:
        raise ValueError("not in canonical form: keys sorted, no spaces")
    return entry


Row = TypeVar("Row")

MAX_FINDINGS: Final = 100  # "and more" replaces further findings


class Verification(NamedTuple):
    """The result of verifying a ledger."""

    head: Head  # the number and hash of the last entry
    entries: int  # the number of entries
    findings: list[str]

    @property
    def sound(self) -> bool:
        return not self.findings


def _verify(rows: Iterable[Row], parse: Callable[[Row], LedgerEntry], expect: Head | None) -> Verification:
    """Verify the chain of all rows. ``expect``: number and hash, noted earlier, of an entry that must be in it."""
    findings: list[str] = []
    head = EMPTY
    number = 0
    expected_found = expect is None or expect == EMPTY
    for number, row in enumerate(rows, 1):
        try:
            entry = parse(row)
        except (ValueError, Unusable) as error:
            findings.append(str(error) if isinstance(error, Unusable) else f"line {number}: {error}")
            head = Head(head.seq + 1, "")  # an unknown hash, with which no prev_hash is compared
            continue
        findings += _chain_errors(entry, head)
        head = entry.head  # with the stored hash, not the computed one, so that one change gives one finding
        expected_found = expected_found or head == expect
        if len(findings) > MAX_FINDINGS:
            findings[MAX_FINDINGS:] = ["and more"]
    if not expected_found:
        assert expect is not None
        findings.append(f"entry {expect.seq}: the ledger does not have the entry that was expected here")
    return Verification(head, number, findings)


def verify_export(lines: Iterable[bytes], *, expect: Head | None = None) -> Verification:
    """Verify an export, from the first entry on. ``expect``: as in :meth:`Ledger.verify`."""
    return _verify((line.rstrip(b"\n") for line in lines), read_line, expect)


def _chain_errors(entry: LedgerEntry, previous: Head) -> Iterable[str]:
    if entry.seq != previous.seq + 1:
        yield f"entry {entry.seq}: it follows entry {previous.seq}"
    if previous.row_hash and entry.prev_hash != previous.row_hash:
        yield f"entry {entry.seq}: its prev_hash is not the hash of entry {previous.seq}"
    if entry.row_hash != entry.computed_hash():
        yield f"entry {entry.seq}: its content does not match its hash"


LEDGER: Final = read_part(__package__, "ledger", append_only("ledger", "entries"))

_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM ledger"
_ROW_PLACEHOLDERS: Final = f"({', '.join('?' for _ in COLUMNS)})"
_SET_HEAD: Final = "UPDATE ledger_head SET seq = ?, row_hash = ? WHERE one = 1"
_SELECT_HEAD: Final = "SELECT seq, row_hash, {now} FROM ledger_head WHERE one = 1"
_PAGE_ROWS: Final = 1000  # read with one statement
_MAX_INSERTED_ROWS: Final = 500  # databases limit the values of one statement


@cache
def _insert_statement(row_count: int) -> str:
    return f"INSERT INTO ledger ({', '.join(COLUMNS)}) VALUES {', '.join([_ROW_PLACEHOLDERS] * row_count)}"


class Ledger:
    """Operations of the ledger, each inside the caller's transaction."""

    __slots__ = ()

    def append(
        self, tx: Transaction, kind: EntryKind, body: Body, *, run: str | None = None, identity: str | None = None
    ) -> Head:
        """Append an entry and return the new head. Raises :class:`.Invalid` if the body is too long or not JSON."""
        return self.append_all(tx, [NewEntry(kind, body, run, identity)])

    def append_all(self, tx: Transaction, entries: Sequence[NewEntry]) -> Head:
        """Append entries in their order, and return the new head. Raises :class:`.Invalid`."""
        head = None
        for start in range(0, len(entries), _MAX_INSERTED_ROWS):
            head = self._append(tx, entries[start : start + _MAX_INSERTED_ROWS])
        return self.head(tx) if head is None else head

    def _append(self, tx: Transaction, entries: Sequence[NewEntry]) -> Head:
        bodies = [encode_body(entry) for entry in entries]
        seq, last_hash, at_ms = tx.locked(_SELECT_HEAD.format(now=NOW[tx.dialect]), wait=True).fetchone()
        head = Head(seq, last_hash)
        values: list[Any] = []
        for entry, body in zip(entries, bodies, strict=True):
            columns_before_body = (head.seq + 1, at_ms, entry.kind, entry.run, entry.identity)
            hashed_columns = (*columns_before_body, msgspec.Raw(body), head.row_hash)
            own_hash = row_hash(dict(zip(COLUMNS, hashed_columns, strict=False)))  # all columns but the last, row_hash
            values += (*columns_before_body, body.decode(), head.row_hash, own_hash)
            head = Head(head.seq + 1, own_hash)
        insert = _insert_statement(len(entries))
        if tx.dialect == "postgresql":  # one round trip
            tx.execute(f"WITH new_head AS ({_SET_HEAD}) {insert}", [*head, *values])
        else:
            tx.execute(_SET_HEAD, head)
            tx.execute(insert, values)
        return head

    def head(self, tx: Transaction) -> Head:
        return Head(*tx.execute("SELECT seq, row_hash FROM ledger_head WHERE one = 1").fetchone())

    def entry(self, tx: Transaction, seq: int) -> LedgerEntry | None:
        row = tx.execute(f"{_SELECT} WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else read_row(row)

    def rows(
        self,
        tx: Transaction,
        after_seq: int = 0,
        limit: int = 100,
        *,
        kind: str | None = None,
        run: str | None = None,
        identity: str | None = None,
    ) -> list[LedgerEntry]:
        """Return the entries after ``after_seq`` that match all filters, oldest first."""
        filters = {"kind": kind, "run": run, "identity": identity}
        conditions = {f" AND {name} = ?": value for name, value in filters.items() if value is not None}
        sql = f"{_SELECT} WHERE seq > ?{''.join(conditions)} ORDER BY seq LIMIT ?"
        return [read_row(row) for row in tx.execute(sql, (after_seq, *conditions.values(), limit)).fetchall()]

    def verify(self, tx: Transaction, *, expect: Head | None = None) -> Verification:
        """Recompute all hashes. ``expect``: number and hash of an entry, noted earlier, that must be in the ledger."""
        result = _verify(_stored_rows(tx), read_row, expect)
        if (head := self.head(tx)) != result.head:
            finding = f"entry {head.seq}: the head of the ledger is not its last entry, number {result.head.seq}"
            return result._replace(findings=[*result.findings, finding])
        return result

    def export(self, tx: Transaction) -> Iterator[bytes]:
        """Yield the ledger as JSON lines."""
        return (encode_line(read_row(row)) + b"\n" for row in _stored_rows(tx))


def _stored_rows(tx: Transaction) -> Iterator[Sequence[Any]]:
    page = tx.execute(f"{_SELECT} ORDER BY seq LIMIT ?", (_PAGE_ROWS,)).fetchall()
    while page:
        yield from page
        page = tx.execute(f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT ?", (page[-1][0], _PAGE_ROWS)).fetchall()
