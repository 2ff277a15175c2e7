"""Audit, export and import of the log.

Each row must be the canonical JSON of an event, have its place in the hash chain, and be admissible after its
predecessors. Folding the events recomputes the state in memory; every row of the tables that differs is reported with
both values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.hash_chain import Head
from manglecp.base.text import quote
from manglecp.issues.memory import replay
from manglecp.issues.model import read_event
from manglecp.issues.tables import IssueTables, LogRow, StoredIssues, scratch_tables
from manglecp.store import ChangeRefused, StoreError


class AuditResult(NamedTuple):
    """The head, the number of issues, and the problems (empty if the memory is sound)."""

    head: Head
    issues: int
    problems: list[str]


def audit(store: StoredIssues, expected: Head | None = None) -> AuditResult:
    """Recompute the state from the log. ``expected``: an event, noted earlier, that the log has to contain."""
    problems = [f"database: {text}" for text in store.damage()]
    with store.read_transaction() as tables, scratch_tables() as replayed:
        problems += replay_log(tables.lines(), replayed)
        problems += _find_differences(tables, replayed)
        if expected is not None and not any(
            (line.seq, line.row_hash) == expected for line in tables.lines(upto=expected.seq)
        ):
            problems.append(f"event {expected.seq}: the log does not contain the expected event")
        return AuditResult(tables.head(), len(list(replayed.issues())), problems)


def replay_log(lines: Iterable[LogRow], replayed: IssueTables) -> Iterator[str]:
    """Replay the rows into empty tables, and yield their problems."""
    for line in lines:
        try:
            event = read_event(line.row)
        except ValueError as error:
            yield f"event {line.seq}: {error}"
            continue
        columns = {"seq": event.seq, "issue_id": event.issue, "row_hash": event.row_hash}
        for (name, value), stored in zip(columns.items(), (line.seq, line.issue, line.row_hash), strict=True):
            if value != stored:
                yield f"event {line.seq}: the column {name} differs from the row"
        yield from (f"event {line.seq}: {text}" for text in replay(replayed, event))


def _find_differences(tables: IssueTables, replayed: IssueTables) -> Iterator[str]:
    try:
        stored = _rows_by_name(tables)
    except StoreError as error:
        yield f"tables: {error}"
        return
    computed = _rows_by_name(replayed)
    for key in sorted(stored.keys() | computed.keys()):
        if key not in computed:
            yield f"{key}: is stored, but does not follow from the events"
        elif key not in stored:
            yield f"{key}: follows from the events, but is not stored"
        else:
            for field, value in computed[key].items():
                if stored[key][field] != value:
                    yield (
                        f"{key}: {field} is stored as {quote(str(stored[key][field]))}"
                        f" and is {quote(str(value))} by the events"
                    )


def _rows_by_name(tables: IssueTables) -> Mapping[str, Mapping[str, Any]]:
    rows: dict[str, Mapping[str, Any]] = {}
    for issue in tables.issues():
        rows[f"issue {issue.id}"] = msgspec.structs.asdict(issue)
        if (lease := tables.lease(issue.id)) is not None:
            rows[f"lease on {issue.id}"] = msgspec.structs.asdict(lease)
        for edge in tables.edges_from(issue.id):
            rows[f"edge {edge.issue} {edge.type} {edge.depends_on}"] = {}
    for seq, of, mutation in tables.mutations():
        rows[f"mutation of event {seq}"] = {"issue": of, **msgspec.structs.asdict(mutation)}
    return rows


LONGEST_LINE: Final = 1 << 20
MOST_PROBLEMS: Final = 100


class InvalidLog(StoreError):
    """A file that cannot be imported: pairs of line number and problem."""

    def __init__(self, problems: list[tuple[int, str]]) -> None:
        super().__init__("\n".join(f"line {line}: {text}" for line, text in problems))
        self.problems = problems


def export_log(store: StoredIssues) -> Iterator[bytes]:
    """Yield the rows of the log, one line each, as they were written."""
    with store.read_transaction() as tables:
        for line in tables.lines():
            yield line.row + b"\n"


def import_log(store: StoredIssues, lines: Iterable[bytes]) -> Head:
    """Fill an empty memory with the lines of an export. Raises :class:`InvalidLog`."""
    with scratch_tables() as checked:
        _check_lines(lines, checked)  # the whole file, before the first write
        with store.write_transaction() as tables:
            if tables.head().seq:
                raise ChangeRefused("memory_not_empty", "this memory has events; import a log into an empty memory")
            for line in checked.lines():
                problems = replay(tables, read_event(line.row))
                assert not problems, problems  # _check_lines replayed it
            return tables.head()


def _check_lines(lines: Iterable[bytes], replayed: IssueTables) -> None:
    problems: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        try:
            if len(line) > LONGEST_LINE:
                raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
            if not line.endswith(b"\n"):
                raise ValueError("it does not end in a line feed; the file may be truncated")
            event = read_event(line.removesuffix(b"\n"))
        except ValueError as error:
            problems.append((number, str(error)))
        else:
            problems += [(number, text) for text in replay(replayed, event)]
        if len(problems) >= MOST_PROBLEMS:
            break
    if problems:
        raise InvalidLog(problems[:MOST_PROBLEMS])
