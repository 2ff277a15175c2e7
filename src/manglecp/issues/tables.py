"""The tables of issue memory in a database.

The rules are in :mod:`.transitions` and need rows by key only; queries over many rows (the frontier, the issues of one
status) are methods, so that a database can use its indexes. The log is one row per event: the canonical JSON that was
hashed, with indexed columns beside it. The other tables hold the state, which an audit recomputes from the log in
:func:`scratch_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.hash_chain import EMPTY, Head
from manglecp.base.json import canonical
from manglecp.issues.model import (
    BLOCKING,
    EDGE_TYPES,
    Edge,
    Instant,
    Issue,
    IssueEvent,
    Lease,
    Mutation,
    Status,
    write_event,
)
from manglecp.store import PATIENCE, Database, SchemaPart, Transaction, Unusable, append_only, open_database


class LogRow(NamedTuple):
    """A row of the log: the canonical JSON of an event, and its indexed columns."""

    seq: int
    issue: str
    row_hash: str
    row: bytes


def _quoted_list(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


def _upsert(table: str, columns: Sequence[str]) -> str:
    places = ", ".join("?" for _ in columns)
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"
        f" ON CONFLICT ({columns[0]}) DO UPDATE SET {changed}"
    )


def _where_clause(tests: Iterable[str]) -> str:
    joined = " AND ".join(tests)
    return joined and f" WHERE {joined}"


ISSUES: Final = SchemaPart(
    "issues",
    (
        """
    CREATE TABLE issue_event (
        seq      BIGINT PRIMARY KEY CHECK (seq > 0),
        issue_id TEXT NOT NULL,
        row_hash TEXT NOT NULL UNIQUE,
        row      TEXT NOT NULL
    ) {strict}
    """,
        "CREATE INDEX issue_event_of ON issue_event (issue_id, seq)",
        append_only("issue_event", "events"),
        f"""
    CREATE TABLE issue (
        id          TEXT PRIMARY KEY,
        title       TEXT NOT NULL,
        description TEXT NOT NULL,
        status      TEXT NOT NULL CHECK (status IN ({_quoted_list(Status)})),
        priority    BIGINT NOT NULL CHECK (priority BETWEEN 0 AND 4),
        labels      TEXT NOT NULL,
        assignee    TEXT,
        notes       TEXT NOT NULL,
        created_at  TEXT NOT NULL,
        updated_at  TEXT NOT NULL,
        closed_at   TEXT CHECK ((closed_at IS NOT NULL) = (status = 'closed')),
        born        BIGINT NOT NULL UNIQUE REFERENCES issue_event (seq) DEFERRABLE INITIALLY DEFERRED,
        fence       BIGINT NOT NULL
    ) {{strict}}
    """,
        "CREATE INDEX issue_frontier ON issue (priority, born) WHERE status IN ('open', 'in_progress')",
        f"""
    CREATE TABLE dependency (
        issue_id   TEXT NOT NULL REFERENCES issue (id),
        type       TEXT NOT NULL CHECK (type IN ({_quoted_list(EDGE_TYPES)})),
        depends_on TEXT NOT NULL REFERENCES issue (id) CHECK (depends_on <> issue_id),
        PRIMARY KEY (issue_id, type, depends_on)
    ) {{clustered}}
    """,
        "CREATE INDEX dependency_on ON dependency (depends_on)",
        """
    CREATE TABLE lease (
        issue_id    TEXT PRIMARY KEY REFERENCES issue (id),
        owner       TEXT NOT NULL,
        fence       BIGINT NOT NULL,
        acquired_at TEXT NOT NULL,
        expires_at  TEXT NOT NULL,
        renewed_at  TEXT
    ) {strict}
    """,
        """
    CREATE TABLE mutation (
        witness_id      TEXT PRIMARY KEY,
        call_id         TEXT NOT NULL UNIQUE, -- a turn that is reported again has another witness and the same call
        seq             BIGINT NOT NULL UNIQUE REFERENCES issue_event (seq),
        issue_id        TEXT NOT NULL REFERENCES issue (id),
        intent          TEXT NOT NULL,
        session_refs    TEXT NOT NULL,
        trajectory_refs TEXT NOT NULL,
        before          TEXT,
        after           TEXT NOT NULL
    ) {strict}
    """,
    ),
)

_ISSUE: Final = Issue.__struct_fields__
_LEASE: Final = Lease.__struct_fields__
_LEASE_COLUMNS: Final = ("issue_id", *_LEASE[1:])
_MUTATION: Final = Mutation.__struct_fields__
_MUTATION_JSON: Final = ("intent", "session_refs", "trajectory_refs")
_SPENT: Final = "SELECT 1 FROM mutation WHERE witness_id = ? OR call_id = ? LIMIT 1"
_SELECT_ISSUE: Final = f"SELECT {', '.join(_ISSUE)} FROM issue"
_PUT_ISSUE: Final = _upsert("issue", _ISSUE)
_PUT_LEASE: Final = _upsert("lease", _LEASE_COLUMNS)
_FRONTIER: Final = f"""
    {_SELECT_ISSUE}
    WHERE status IN ('open', 'in_progress')
      AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.issue_id = issue.id AND lease.expires_at > ?)
      AND NOT EXISTS (
          SELECT 1 FROM dependency AS edge JOIN issue AS other ON other.id = edge.depends_on
          WHERE edge.issue_id = issue.id AND edge.type IN ({_quoted_list(BLOCKING)}) AND other.status <> 'closed')
    ORDER BY priority, born
"""


class StoredIssues:
    """Issue memory in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def write_transaction(self) -> Iterator[IssueTables]:
        with self._database.write_transaction() as tx:
            # One writer at a time: whether a change is admissible depends on rows that it does not write.
            tx.locked("SELECT version FROM store_part WHERE name = ?", (ISSUES.name,), wait=True)
            yield IssueTables(tx)

    @contextmanager
    def read_transaction(self) -> Iterator[IssueTables]:
        with self._database.read_transaction() as tx:
            yield IssueTables(tx)

    def damage(self) -> list[str]:
        return self._database.damage()

    def close(self) -> None:
        self._database.close()


def open_issues(where: str | Path | None = None, *, patience: float = PATIENCE) -> StoredIssues:
    """Open or create issue memory at a location that :func:`manglecp.store.open_database` takes."""
    return StoredIssues(open_database(where, parts=[ISSUES], patience=patience))


class _Discard(Exception):
    """Rolls back a transaction."""


@contextmanager
def scratch_tables() -> Iterator[IssueTables]:
    """Yield empty tables in memory, to replay events of a log that may be damaged."""
    database = open_database(":memory:", parts=[ISSUES])
    try:
        with suppress(_Discard), database.write_transaction() as tx:
            tx.execute("PRAGMA defer_foreign_keys = ON")  # an event may refer to a missing row
            yield IssueTables(tx)
            raise _Discard  # a commit would check the references
    finally:
        database.close()


class IssueTables:
    """The tables inside the caller's transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._execute = tx.execute

    def issue(self, issue: str) -> Issue | None:
        row = self._execute(f"{_SELECT_ISSUE} WHERE id = ?", (issue,)).fetchone()
        return None if row is None else _issue(row)

    def put_issue(self, issue: Issue) -> None:
        values = {**msgspec.structs.asdict(issue), "labels": _json(issue.labels), "status": issue.status.value}
        self._execute(_PUT_ISSUE, [values[name] for name in _ISSUE])

    def lease(self, issue: str) -> Lease | None:
        row = self._execute(f"SELECT {', '.join(_LEASE_COLUMNS)} FROM lease WHERE issue_id = ?", (issue,)).fetchone()
        return None if row is None else Lease(**dict(zip(_LEASE, row, strict=True)))

    def put_lease(self, lease: Lease) -> None:
        self._execute(_PUT_LEASE, [getattr(lease, name) for name in _LEASE])

    def drop_lease(self, issue: str) -> None:
        self._execute("DELETE FROM lease WHERE issue_id = ?", (issue,))

    def edges_from(self, issue: str) -> list[Edge]:
        rows = self._execute("SELECT issue_id, type, depends_on FROM dependency WHERE issue_id = ?", (issue,))
        return sorted(Edge(*row) for row in rows)

    def edges_to(self, issue: str) -> list[Edge]:
        rows = self._execute("SELECT issue_id, type, depends_on FROM dependency WHERE depends_on = ?", (issue,))
        return sorted(Edge(*row) for row in rows)

    def put_edge(self, edge: Edge) -> None:
        self._execute("INSERT INTO dependency VALUES (?, ?, ?)", (edge.issue, edge.type, edge.depends_on))

    def drop_edge(self, edge: Edge) -> None:
        self._execute(
            "DELETE FROM dependency WHERE issue_id = ? AND type = ? AND depends_on = ?",
            (edge.issue, edge.type, edge.depends_on),
        )

    def is_spent(self, witness_id: str, call_id: str) -> bool:
        return self._execute(_SPENT, (witness_id, call_id)).fetchone() is not None

    def put_mutation(self, seq: int, issue: str, mutation: Mutation) -> None:
        values = {name: getattr(mutation, name) for name in _MUTATION}
        values |= {name: _json(values[name]) for name in _MUTATION_JSON}
        self._execute(
            f"INSERT INTO mutation (seq, issue_id, {', '.join(_MUTATION)}) VALUES (?, ?{', ?' * len(_MUTATION)})",
            (seq, issue, *values.values()),
        )

    def mutations(self) -> Iterator[tuple[int, str, Mutation]]:
        rows = self._execute(f"SELECT seq, issue_id, {', '.join(_MUTATION)} FROM mutation ORDER BY seq")
        for seq, issue, *row in rows:
            values = dict(zip(_MUTATION, row, strict=True))
            try:
                values |= {name: msgspec.json.decode(values[name]) for name in _MUTATION_JSON}
                mutation = msgspec.convert(values, Mutation)
            except ValueError:
                raise Unusable(f"the mutation of event {seq} is damaged: it cannot be decoded") from None
            yield seq, issue, mutation

    def head(self) -> Head:
        row = self._execute("SELECT seq, row_hash FROM issue_event ORDER BY seq DESC LIMIT 1").fetchone()
        return EMPTY if row is None else Head(*row)

    def append(self, event: IssueEvent) -> None:
        self._execute(
            "INSERT INTO issue_event VALUES (?, ?, ?, ?)",
            (event.seq, event.issue, event.row_hash, write_event(event).decode()),
        )

    def lines(self, *, issue: str | None = None, upto: int | None = None) -> Iterator[LogRow]:
        tests = {"issue_id = ?": issue, "seq <= ?": upto}
        tests = {test: value for test, value in tests.items() if value is not None}
        rows = self._execute(
            f"SELECT seq, issue_id, row_hash, row FROM issue_event{_where_clause(tests)} ORDER BY seq",
            [*tests.values()],
        )
        return (LogRow(seq, of, row_hash, row.encode()) for seq, of, row_hash, row in rows)

    def issues(self, status: Status | None = None) -> Iterator[Issue]:
        tests = {} if status is None else {"status = ?": status.value}
        return map(_issue, self._execute(f"{_SELECT_ISSUE}{_where_clause(tests)} ORDER BY born", [*tests.values()]))

    def frontier(self, now: Instant) -> Iterator[Issue]:
        return map(_issue, self._execute(_FRONTIER, (now,)))


def _json(value: Any) -> str:
    return canonical(msgspec.to_builtins(value)).decode()


def _issue(row: tuple[Any, ...]) -> Issue:
    values = dict(zip(_ISSUE, row, strict=True))
    try:
        return msgspec.convert(values | {"labels": msgspec.json.decode(values["labels"])}, Issue)
    except ValueError:
        raise Unusable(f"the row of issue {values['id']} is damaged: it cannot be decoded") from None
