"""The log as a text file: one event per line, in canonical JSON.

A file that was exported, imported and exported again has the same bytes. An import fills a memory that is empty: added
to another log, lines would be changes that nobody had a right to. Either all of it is imported or nothing, and then
everything that is wrong is said, with the numbers of the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from manglecp.base.hash_chain import Head
from manglecp.store.errors import Refused, StoreError
from manglecp.store.issues.events import read_event
from manglecp.store.issues.folded import Folded
from manglecp.store.issues.log import replay
from manglecp.store.issues.tables import IssueStore

__all__ = ["BadLog", "export_log", "import_log"]

LONGEST_LINE: Final = 1 << 20
MOST_PROBLEMS: Final = 100


class BadLog(StoreError):
    """A file that cannot be imported: pairs of a line number and what is wrong with the line."""

    def __init__(self, problems: list[tuple[int, str]]) -> None:
        super().__init__("\n".join(f"line {line}: {text}" for line, text in problems))
        self.problems = problems


def export_log(store: IssueStore) -> Iterator[bytes]:
    """The lines, as they were written."""
    with store.read_transaction() as tables:
        for line in tables.lines():
            yield line.row + b"\n"


def import_log(store: IssueStore, lines: Iterable[bytes]) -> Head:
    """Fill an empty memory with the lines of an export."""
    checked = _check(lines)
    with store.write_transaction() as tables:
        if tables.head().seq:
            raise Refused("memory_not_empty", "this memory has events already, and a log is imported into an empty one")
        for line in checked.lines():
            wrong = replay(tables, read_event(line.row))
            assert not wrong, wrong  # it was checked
        return tables.head()


def _check(lines: Iterable[bytes]) -> Folded:
    """The whole file, before anything is written."""
    folded = Folded()
    problems: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        try:
            if len(line) > LONGEST_LINE:
                raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
            if not line.endswith(b"\n"):
                raise ValueError("it does not end in a line feed; the file seems to have been cut")
            event = read_event(line.removesuffix(b"\n"))
        except ValueError as error:
            problems.append((number, str(error)))
        else:
            problems += [(number, text) for text in replay(folded, event)]
        if len(problems) >= MOST_PROBLEMS:
            break
    if problems:
        raise BadLog(problems[:MOST_PROBLEMS])
    return folded
