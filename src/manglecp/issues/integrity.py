"""Audit, export and import of the log.

Each row must be the canonical JSON of an event, have its place in the hash chain, and be admissible after its
predecessors. An audit replays the events into empty tables in memory, and reports every row of the stored tables that
differs, with both values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from manglecp.base.hash_chain import Head
from manglecp.base.text import quote
from manglecp.issues.memory import replay
from manglecp.issues.model import decode_event
from manglecp.issues.sessions import verify_streams
from manglecp.issues.tables import IssueTables, LogRow, StoredIssues, scratch_tables
from manglecp.store import ChangeRefused, StoreError


class AuditResult(NamedTuple):
    head: Head
    issue_count: int
    """The number of issues that follow from the log."""
    problems: list[str]
    """Empty if log and state agree."""


def audit(store: StoredIssues, earlier_head: Head | None = None) -> AuditResult:
    """Check the log and the stored state, and that the log has the event of ``earlier_head``, if given."""
    problems = [f"database: {text}" for text in store.damage()]
    with store.read_transaction() as tables, scratch_tables() as replay_tables:
        problems += replay_log(tables.log_rows(), replay_tables)
        problems += _find_differences(tables, replay_tables)
        problems += verify_streams(tables)
        if earlier_head is not None and not any(
            (row.seq, row.row_hash) == earlier_head for row in tables.log_rows(upto=earlier_head.seq)
        ):
            problems.append(f"event {earlier_head.seq}: the log does not contain the expected event")
        return AuditResult(tables.head(), len(list(replay_tables.issues())), problems)


def replay_log(rows: Iterable[LogRow], replay_tables: IssueTables) -> Iterator[str]:
    """Replay the rows into the empty tables ``replay_tables``, and yield the problems of the rows."""
    for row in rows:
        try:
            event = decode_event(row.event_json)
        except ValueError as error:
            yield f"event {row.seq}: {error}"
            continue
        for column, field in (("seq", "seq"), ("issue_id", "issue"), ("row_hash", "row_hash")):
            if getattr(row, field) != getattr(event, field):  # LogRow and IssueEvent have this attribute in common
                yield f"event {row.seq}: the column {column} differs from the event"
        yield from (f"event {row.seq}: {text}" for text in replay(replay_tables, event))


def _find_differences(tables: IssueTables, replay_tables: IssueTables) -> Iterator[str]:
    stored_rows, computed_rows = tables.state_rows(), replay_tables.state_rows()
    for key in sorted(stored_rows.keys() | computed_rows.keys()):
        if key not in computed_rows:
            yield f"{key}: is stored, but does not follow from the events"
        elif key not in stored_rows:
            yield f"{key}: follows from the events, but is not stored"
        else:
            for field, value in computed_rows[key].items():
                if stored_rows[key][field] != value:
                    yield (
                        f"{key}: {field} is stored as {quote(str(stored_rows[key][field]))}"
                        f" and is {quote(str(value))} by the events"
                    )


MAX_LINE_BYTES: Final = 1 << 20  # an event within the limits of its fields is shorter
MAX_PROBLEMS: Final = 100


class InvalidLog(StoreError):
    """A file that cannot be imported. ``problems`` are pairs of line number and problem."""

    def __init__(self, problems: list[tuple[int, str]]) -> None:
        super().__init__("\n".join(f"line {line}: {text}" for line, text in problems))
        self.problems = problems


def export_log(store: StoredIssues) -> Iterator[bytes]:
    """Yield a line for each event of the log: the canonical JSON that was hashed."""
    with store.read_transaction() as tables:
        for row in tables.log_rows():
            yield row.event_json + b"\n"


def import_log(store: StoredIssues, lines: Iterable[bytes]) -> Head:
    """Fill an empty memory with the lines of an export and return its head.

    Raises :class:`InvalidLog`, and :class:`ChangeRefused` if the memory is not empty; in both cases nothing is written.
    """
    with scratch_tables() as checked_tables:
        _replay_lines(lines, checked_tables)  # checks the whole file before the first write
        with store.write_transaction() as tables:
            if tables.head().seq:
                raise ChangeRefused("memory_not_empty", "this memory has events; import a log into an empty memory")
            for row in checked_tables.log_rows():
                problems = replay(tables, decode_event(row.event_json))
                assert not problems, problems  # _replay_lines() has checked the same lines
            return tables.head()


def _replay_lines(lines: Iterable[bytes], replay_tables: IssueTables) -> None:
    """Replay the lines of an export into the empty tables ``replay_tables``. Raises :class:`InvalidLog`."""
    problems: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        try:
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(f"it has more than {MAX_LINE_BYTES:,} bytes")
            if not line.endswith(b"\n"):
                raise ValueError("it does not end in a line feed; the file may be truncated")
            event = decode_event(line.removesuffix(b"\n"))
        except ValueError as error:
            problems.append((number, str(error)))
        else:
            problems += [(number, text) for text in replay(replay_tables, event)]
        if len(problems) >= MAX_PROBLEMS:
            break
    if problems:
        raise InvalidLog(problems[:MAX_PROBLEMS])
