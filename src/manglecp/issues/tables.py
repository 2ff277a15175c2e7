"""The tables of issue memory in a database.

The log, ``issue_event``, has one row per event: the canonical JSON that was hashed, and indexed columns. The other
tables hold the state, which an audit recomputes from the log in :func:`scratch_tables`. :mod:`.transitions` decides
which change is admissible, and reads single rows by key; queries over many rows are methods, so that SQL indexes serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.hash_chain import EMPTY, Head
from manglecp.base.json import canonical
from manglecp.issues import model
from manglecp.store import PATIENCE, Database, Transaction, Unusable, append_only, open_database, read_part


class LogRow(NamedTuple):
    """A row of the log: the indexed columns and the canonical JSON of an event."""

    seq: int
    issue: str
    row_hash: str
    event_json: bytes


def _quoted_list(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


def _upsert(table: str, columns: Sequence[str]) -> str:
    """Return the SQL that inserts or replaces a row; the first column is the primary key."""
    placeholders = ", ".join("?" for _ in columns)
    assignments = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders})"
        f" ON CONFLICT ({columns[0]}) DO UPDATE SET {assignments}"
    )


ISSUES: Final = read_part(__package__, "issues", append_only("issue_event", "events"))
SESSIONS: Final = read_part(__package__, "sessions", append_only("session_event", "events of sessions"))

_ISSUE_COLUMNS: Final = model.Issue.__struct_encode_fields__
_LEASE_FIELDS: Final = model.Lease.__struct_fields__
_LEASE_COLUMNS: Final = ("issue_id", *_LEASE_FIELDS[1:])  # the first field is ``issue``
_MUTATION_COLUMNS: Final = model.MutationRecord.__struct_fields__
_MUTATION_JSON_COLUMNS: Final = ("mutation", "session_refs", "trajectory_refs")
_STATE: Final = (  # the tables of the state, their columns, and the name of a row
    ("issue", _ISSUE_COLUMNS, "issue {id}"),
    ("lease", _LEASE_COLUMNS, "lease on {issue_id}"),
    ("dependency", ("issue_id", "type", "depends_on"), "edge {issue_id} {type} {depends_on}"),
    ("mutation", ("seq", "issue_id", *_MUTATION_COLUMNS), "mutation of event {seq}"),
)
_SELECT_SPENT: Final = "SELECT 1 FROM mutation WHERE witness_id = ? OR call_id = ? LIMIT 1"
_SELECT_ISSUE: Final = f"SELECT {', '.join(_ISSUE_COLUMNS)} FROM issue"
_SELECT_EDGE: Final = "SELECT issue_id, type, depends_on FROM dependency"
_PUT_ISSUE: Final = _upsert("issue", _ISSUE_COLUMNS)
_PUT_LEASE: Final = _upsert("lease", _LEASE_COLUMNS)
_SELECT_FRONTIER: Final = f"""
    {_SELECT_ISSUE}
    WHERE status IN ('open', 'in_progress')
      AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.issue_id = issue.id AND lease.expires_at > ?)
      AND NOT EXISTS (
          SELECT 1 FROM dependency AS edge JOIN issue AS other ON other.id = edge.depends_on
          WHERE edge.issue_id = issue.id AND edge.type IN ({_quoted_list(model.BLOCKING)}) AND other.status <> 'closed')
    ORDER BY priority, added_by
"""


class StoredIssues:
    """Opens transactions on the issue memory in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def write_transaction(self) -> Iterator[IssueTables]:
        with self._database.write_transaction() as tx:
            # Lock out other writers: whether a change is admissible depends on rows that the change only reads.
            tx.locked("SELECT version FROM store_part WHERE name = ?", (ISSUES.name,), wait=True)
            yield IssueTables(tx)

    @contextmanager
    def read_transaction(self) -> Iterator[IssueTables]:
        with self._database.read_transaction() as tx:
            yield IssueTables(tx)

    def damage(self) -> list[str]:
        """Return the problems that the database finds in its own file."""
        return self._database.damage()

    def close(self) -> None:
        self._database.close()


def open_issues(where: str | Path | None = None, *, patience: float = PATIENCE) -> StoredIssues:
    """Open or create issue memory. The parameters are those of :func:`manglecp.store.open_database`."""
    return StoredIssues(open_database(where, parts=[ISSUES, SESSIONS], patience=patience))


class _Discard(Exception):
    """Rolls back a transaction."""


@contextmanager
def scratch_tables() -> Iterator[IssueTables]:
    """Yield empty tables in memory, in which the events of a log, even of a damaged one, can be replayed."""
    database = open_database(":memory:", parts=[ISSUES])
    try:
        with suppress(_Discard), database.write_transaction() as tx:
            tx.execute("PRAGMA defer_foreign_keys = ON")  # an event of a damaged log may refer to a missing row
            yield IssueTables(tx)
            raise _Discard  # a commit would check the references
    finally:
        database.close()


class IssueTables:
    """The tables inside the caller's transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._execute = tx.execute

    def issue(self, issue_id: str) -> model.Issue | None:
        row = self._execute(f"{_SELECT_ISSUE} WHERE id = ?", (issue_id,)).fetchone()
        return None if row is None else _issue_from_row(row)

    def put_issue(self, issue: model.Issue) -> None:
        values = {**msgspec.to_builtins(issue), "labels": _json(issue.labels)}
        self._execute(_PUT_ISSUE, [values[name] for name in _ISSUE_COLUMNS])

    def lease(self, issue_id: str) -> model.Lease | None:
        row = self._execute(f"SELECT {', '.join(_LEASE_COLUMNS)} FROM lease WHERE issue_id = ?", (issue_id,)).fetchone()
        return None if row is None else model.Lease(**dict(zip(_LEASE_FIELDS, row, strict=True)))

    def put_lease(self, lease: model.Lease) -> None:
        self._execute(_PUT_LEASE, msgspec.structs.astuple(lease))

    def drop_lease(self, issue_id: str) -> None:
        self._execute("DELETE FROM lease WHERE issue_id = ?", (issue_id,))

    def edges_from(self, issue_id: str) -> list[model.Edge]:
        return sorted(model.Edge(*row) for row in self._execute(f"{_SELECT_EDGE} WHERE issue_id = ?", (issue_id,)))

    def edges_to(self, issue_id: str) -> list[model.Edge]:
        return sorted(model.Edge(*row) for row in self._execute(f"{_SELECT_EDGE} WHERE depends_on = ?", (issue_id,)))

    def put_edge(self, edge: model.Edge) -> None:
        self._execute("INSERT INTO dependency VALUES (?, ?, ?)", msgspec.structs.astuple(edge))

    def drop_edge(self, edge: model.Edge) -> None:
        conditions = "issue_id = ? AND type = ? AND depends_on = ?"
        self._execute(f"DELETE FROM dependency WHERE {conditions}", msgspec.structs.astuple(edge))

    def is_spent(self, witness_id: str, call_id: str) -> bool:
        """Return whether an event was authorised by this witness, or by another witness of the same turn."""
        return self._execute(_SELECT_SPENT, (witness_id, call_id)).fetchone() is not None

    def state_rows(self) -> dict[str, dict[str, Any]]:
        """Return the columns of each row of the state, by a name for messages."""
        rows: dict[str, dict[str, Any]] = {}
        for table, columns, name in _STATE:
            for values in self._execute(f"SELECT {', '.join(columns)} FROM {table}"):
                row = dict(zip(columns, values, strict=True))
                rows[name.format_map(row)] = row
        return rows

    def head(self) -> Head:
        row = self._execute("SELECT seq, row_hash FROM issue_event ORDER BY seq DESC LIMIT 1").fetchone()
        return EMPTY if row is None else Head(*row)

    def append(self, event: model.IssueEvent) -> None:
        self._execute(
            "INSERT INTO issue_event VALUES (?, ?, ?, ?)",
            (event.seq, event.issue, event.row_hash, model.encode_event(event).decode()),
        )
        if event.mutation is not None:
            values = msgspec.structs.asdict(event.mutation)
            values |= {name: _json(values[name]) for name in _MUTATION_JSON_COLUMNS}
            self._execute(
                f"INSERT INTO mutation (seq, issue_id, {', '.join(values)}) VALUES (?, ?{', ?' * len(values)})",
                (event.seq, event.issue, *values.values()),
            )

    def log_rows(self, *, issue_id: str | None = None, upto: int | None = None) -> Iterator[LogRow]:
        """Return the rows of the log in their order, of one issue or of all, up to the event number ``upto`` or all."""
        filters = {"issue_id = ?": issue_id, "seq <= ?": upto}
        rows = self._select("SELECT seq, issue_id, row_hash, row FROM issue_event", filters, "seq")
        return (LogRow(seq, issue_id, row_hash, row.encode()) for seq, issue_id, row_hash, row in rows)

    def issues(self, status: model.Status | None = None) -> Iterator[model.Issue]:
        """Return the issues in the order in which they were added."""
        return map(_issue_from_row, self._select(_SELECT_ISSUE, {"status = ?": status and status.value}, "added_by"))

    def frontier(self, now: model.Instant) -> Iterator[model.Issue]:
        """Return the issues that can be claimed, by priority, then by age."""
        return map(_issue_from_row, self._execute(_SELECT_FRONTIER, (now,)))

    def streams(self) -> list[str]:
        """Return the issues with a stream of session events."""
        rows = self._execute("SELECT stream FROM session_event WHERE seq = 1 ORDER BY stream")
        return [stream for (stream,) in rows]

    def append_to_stream(self, stream: str, seq: int, kind: str, row_hash: str, row: str) -> None:
        self._execute("INSERT INTO session_event VALUES (?, ?, ?, ?, ?)", (stream, seq, kind, row_hash, row))

    def stream_rows(self, *, stream: str | None = None, kind: str | None = None) -> Iterator[str]:
        """Return the events of sessions in their order, of one issue or of all, and of one kind or of all."""
        filters = {"stream = ?": stream, "kind = ?": kind}
        return (row for (row,) in self._select("SELECT row FROM session_event", filters, "stream, seq"))

    def _select(self, query: str, filters: Mapping[str, str | int | None], order: str) -> Iterable[tuple[Any, ...]]:
        """Return the rows in ``order`` that satisfy each condition in ``filters`` whose value is not None."""
        values = {condition: value for condition, value in filters.items() if value is not None}
        where = f" WHERE {' AND '.join(values)}" if values else ""
        return self._execute(f"{query}{where} ORDER BY {order}", [*values.values()])


def _json(value: Any) -> str:
    return canonical(msgspec.to_builtins(value)).decode()


def _issue_from_row(row: tuple[Any, ...]) -> model.Issue:
    values = dict(zip(_ISSUE_COLUMNS, row, strict=True))
    try:
        return msgspec.convert(values | {"labels": msgspec.json.decode(values["labels"])}, model.Issue)
    except ValueError:
        raise Unusable(f"the row of issue {values['id']} is damaged: it cannot be decoded") from None
