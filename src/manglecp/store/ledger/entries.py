"""What is appended, what was appended, and its row.

The hash covers the canonical JSON of the whole entry, and that JSON is also its line in an export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from manglecp.base.hash_chain import Head, row_hash
from manglecp.base.json import Uncanonical, canonical
from manglecp.store.errors import Invalid, Unusable

__all__ = [
    "COLUMNS",
    "KINDS",
    "Body",
    "Entry",
    "EntryKind",
    "Note",
    "Prepared",
    "following",
    "prepared",
    "read_line",
    "read_row",
    "write_line",
]

EntryKind: TypeAlias = Literal["admission", "run", "turn", "step", "end", "decision", "confirmation", "policy", "audit"]

KINDS: Final[frozenset[str]] = frozenset(get_args(EntryKind))

MOST_BYTES: Final = 4_194_304
"""Of a body: it holds digests. The witness of a turn has some for each of its steps, about 1,500 bytes."""


Body: TypeAlias = Mapping[str, Any] | msgspec.Raw
"""An object, or its canonical JSON. A member of the object may be canonical JSON."""


class Note(NamedTuple):
    """What is to be appended."""

    kind: EntryKind
    body: Body
    run: str | None = None
    identity: str | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was appended."""

    seq: int
    """1, 2, 3 and so on."""
    at_ms: int
    kind: str
    run: str | None
    identity: str | None
    body: dict[str, Any]
    prev_hash: str
    row_hash: str

    @property
    def head(self) -> Head:
        """What the next entry follows."""
        return Head(self.seq, self.row_hash)

    def computed_hash(self) -> str:
        """What ``row_hash`` has to be."""
        return row_hash(msgspec.structs.asdict(self))


COLUMNS: Final = Entry.__struct_fields__


class Prepared(NamedTuple):
    """A note that a ledger takes, and the canonical JSON of its body."""

    note: Note
    body: bytes


def prepared(note: Note) -> Prepared:
    """:class:`.Invalid` if no ledger takes it."""
    if note.kind not in KINDS:
        raise Invalid("kind", f"it is one of {', '.join(sorted(KINDS))}")
    try:
        body = bytes(note.body) if isinstance(note.body, msgspec.Raw) else canonical(dict(note.body))
    except Uncanonical as error:
        raise Invalid("body", str(error)) from None
    if len(body) > MOST_BYTES:
        raise Invalid("body", f"it has {len(body)} bytes, and {MOST_BYTES} are allowed")
    return Prepared(note, body)


def following(head: Head, given: Prepared, at_ms: int) -> tuple[Head, Sequence[Any]]:
    """The head after this note, and the row to write."""
    (kind, _, run, identity), body = given
    seq, before = head.seq + 1, head.row_hash
    row = {
        "seq": seq,
        "at_ms": at_ms,
        "kind": kind,
        "run": run,
        "identity": identity,
        "body": msgspec.Raw(body),
        "prev_hash": before,
    }
    own_hash = row_hash(row)
    return Head(seq, own_hash), (seq, at_ms, kind, run, identity, body.decode(), before, own_hash)


def read_row(row: Sequence[Any]) -> Entry:
    """An entry from its row; :class:`.Unusable` if it is none any more."""
    members = dict(zip(COLUMNS, row, strict=True))
    try:
        body = msgspec.json.decode(members["body"], type=dict[str, Any])
        if canonical(body).decode() != members["body"]:
            raise ValueError
        return msgspec.convert(members | {"body": body}, Entry)
    except (ValueError, TypeError, RecursionError):
        raise Unusable(f"entry {row[0]} is damaged: it is no entry any more") from None


def write_line(entry: Entry) -> bytes:
    """The canonical JSON of the entry, without a line break."""
    return canonical(msgspec.structs.asdict(entry))


def read_line(line: bytes) -> Entry:
    """From its canonical JSON; a :class:`ValueError` says why it is none, and repeats nothing of what it found."""
    try:
        entry = msgspec.json.decode(line, type=Entry)
        again = write_line(entry)
    except (ValueError, RecursionError):
        raise ValueError("no entry of a ledger") from None
    if again != line:
        raise ValueError("not in canonical form: keys sorted, no spaces")
    return entry
