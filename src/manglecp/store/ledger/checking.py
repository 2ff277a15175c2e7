"""Are these rows what was appended?

Each row must be an entry, have the number after the one before it, name that one's hash, and have the hash that it
says. After a row that is wrong the next is compared with what is there, so that each finding is a place and not all
that follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from manglecp.base.hash_chain import EMPTY, Head
from manglecp.store.errors import Unusable
from manglecp.store.ledger.entries import Entry, read_line

__all__ = ["Verified", "check", "verify_export"]

Row = TypeVar("Row")

MOST_FINDINGS: Final = 100


class Verified(NamedTuple):
    """What was looked at, and what is wrong with it."""

    head: Head
    """Of the last entry."""
    entries: int
    findings: list[str]
    """Empty if everything is what it should be."""

    @property
    def sound(self) -> bool:
        """Was nothing found?"""
        return not self.findings


def check(rows: Iterable[Row], read: Callable[[Row], Entry], expect: Head | None) -> Verified:
    """``expect`` is an entry that the ledger has to have, as somebody noted it earlier."""
    findings: list[str] = []
    head = EMPTY
    number = 0
    met = expect is None or expect == EMPTY
    for number, row in enumerate(rows, 1):
        try:
            entry = read(row)
        except (ValueError, Unusable) as error:
            findings.append(str(error) if isinstance(error, Unusable) else f"line {number}: {error}")
            head = Head(head.seq + 1, "")
            continue
        findings += _place(entry, head)
        head = entry.head
        met = met or head == expect
        if len(findings) > MOST_FINDINGS:
            findings[MOST_FINDINGS:] = ["and more"]
    if not met:
        assert expect is not None
        findings.append(f"entry {expect.seq}: the ledger does not have the entry that was expected here")
    return Verified(head, number, findings)


def verify_export(lines: Iterable[bytes], *, expect: Head | None = None) -> Verified:
    """Whether the lines of an export are a whole ledger."""
    return check((line.rstrip(b"\n") for line in lines), read_line, expect)


def _place(entry: Entry, before: Head) -> Iterable[str]:
    if entry.seq != before.seq + 1:
        yield f"entry {entry.seq}: it follows entry {before.seq}"
    if before.row_hash and entry.prev_hash != before.row_hash:
        yield f"entry {entry.seq}: it names another entry than {before.seq} as the one before it"
    if entry.row_hash != entry.computed_hash():
        yield f"entry {entry.seq}: its content is not what was hashed"
