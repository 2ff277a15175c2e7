"""What is appended, what was appended, and its row.

The hash covers the canonical JSON of the whole entry, and that JSON is also its line in an export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from manglecp.harness.canonical import Uncanonical, canonical
from manglecp.store.chain import Head, row_hash, row_hash_with
from manglecp.store.errors import Invalid, Unusable

__all__ = ["COLUMNS", "KINDS", "Entry", "Kind", "Note", "following", "read_line", "read_row", "write_line"]

Kind: TypeAlias = Literal["admission", "run", "turn", "step", "end", "decision", "confirmation", "policy", "audit"]

KINDS: Final[frozenset[str]] = frozenset(get_args(Kind))

MOST_BYTES: Final = 4_194_304
"""Of a body: it holds digests. The witness of a turn has some for each of its steps, about 1,500 bytes."""


class Note(NamedTuple):
    """What is to be appended."""

    kind: Kind
    body: Mapping[str, Any] | msgspec.Raw
    """An object, or its canonical JSON."""
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


def following(head: Head, note: Note, at_ms: int) -> tuple[Head, Sequence[Any]]:
    """The head after this note, and the row to write."""
    body = _body(note)
    row = {
        "seq": head.seq + 1,
        "at_ms": at_ms,
        "kind": note.kind,
        "run": note.run,
        "identity": note.identity,
        "prev_hash": head.row_hash,
    }
    head = Head(head.seq + 1, row_hash_with(row, "body", body))
    row |= {"body": body.decode(), "row_hash": head.row_hash}
    return head, [row[name] for name in COLUMNS]


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


def _body(note: Note) -> bytes:
    if note.kind not in KINDS:
        raise Invalid("kind", f"it is one of {', '.join(sorted(KINDS))}")
    try:
        body = bytes(note.body) if isinstance(note.body, msgspec.Raw) else canonical(dict(note.body))
    except Uncanonical as error:
        raise Invalid("body", str(error)) from None
    if len(body) > MOST_BYTES:
        raise Invalid("body", f"it has {len(body)} bytes, and {MOST_BYTES} are allowed")
    return body
