"""Issues, edges and leases with the limits of their fields; changes; and events, which are the rows of the log.

An error message names the violated limit and never quotes the value. A change is a request, not its result: a claim has
a duration, while its fencing token follows from the state. So the state can be computed again from the log. An event is
a change with its time, actor, authorisation if it needs one, and place in the hash chain. The hash of an event covers
its canonical JSON, which is also its line in an export.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from manglecp.base.hash_chain import Head, row_hash as hash_row
from manglecp.base.json import canonical
from manglecp.harness import Mutation
from manglecp.store import Invalid
from manglecp.wire import Fault, decode

ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # fits into a URI, a file name and a shell word without quotes

MAX_TITLE_LENGTH: Final = 200  # in characters, like the next two limits
MAX_TEXT_LENGTH: Final = 65_536
MAX_NAME_LENGTH: Final = 128
MAX_LABELS: Final = 32
MAX_EDGES_PER_ISSUE: Final = 256
LOWEST_PRIORITY: Final = 4  # the least urgent; 0 is the most urgent
DEFAULT_PRIORITY: Final = 2
MIN_TTL: Final = 30  # the seconds of a lease, like the next two
MAX_TTL: Final = 86_400
DEFAULT_TTL: Final = 3_600

_ID: Final = re.compile(ID_PATTERN)
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")


def check_id(text: str, field: str = "id") -> None:
    if _ID.fullmatch(text) is None:
        raise Invalid(field, "an id is 1 to 64 letters, digits and . _ -; the first is a letter or a digit")


def check_text(text: str, field: str) -> None:
    if len(text) > MAX_TEXT_LENGTH:
        raise Invalid(field, f"it has {len(text):,} characters, and {MAX_TEXT_LENGTH:,} are allowed")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in set(text) - {"\n", "\t"}):
        raise Invalid(field, "it has control characters other than line feeds and tabs")


def check_line(text: str, field: str, max_length: int = MAX_NAME_LENGTH) -> None:
    """Check a name or a title."""
    if not text.strip():
        raise Invalid(field, "it is empty")
    if len(text) > max_length:
        raise Invalid(field, f"it has {len(text):,} characters, and {max_length} are allowed")
    # These characters change how a terminal displays the text.
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in set(text)):
        raise Invalid(field, "it has line breaks, control characters or invisible ones")


def check_labels(labels: Sequence[str]) -> None:
    if len(labels) > MAX_LABELS:
        raise Invalid("labels", f"there are {len(labels):,}, and {MAX_LABELS} are allowed")
    if any(_LABEL.fullmatch(label) is None for label in labels):
        raise Invalid("labels", "a label is 1 to 64 letters, digits and . _ : / -; the first is a letter or a digit")
    if list(labels) != sorted(set(labels)):
        raise Invalid("labels", "they are not sorted, or one is present twice")


def check_ttl(seconds: int) -> None:
    if not MIN_TTL <= seconds <= MAX_TTL:
        raise Invalid("ttl", f"a lease lasts from {MIN_TTL} to {MAX_TTL:,} seconds")


class Status(StrEnum):
    """The status of an issue."""

    OPEN = "open"
    IN_PROGRESS = "in_progress"
    """The only status with a lease; a claim is the only transition into it."""
    BLOCKED = "blocked"
    """Set by an update. An issue that waits for others is open and has blocking edges."""
    CLOSED = "closed"


BLOCKING: Final = frozenset({"blocks", "parent-child", "conditional-blocks", "waits-for"})
"""Edges that prevent a claim until the other issue is closed. A change that closes a cycle of such edges is refused."""

EDGE_TYPES: Final = BLOCKING | {"related", "discovered-from", "relates-to", "duplicates", "supersedes", "replies-to"}


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an issue, which follows from the events of the log."""

    id: str
    title: str
    description: str = ""
    status: Status = Status.OPEN
    priority: int
    labels: tuple[str, ...] = ()
    assignee: str | None = None
    notes: str = ""
    created_at: Instant
    updated_at: Instant
    closed_at: Instant | None = None
    added_by: int
    """The number of the event that added the issue; of issues with equal priority, the oldest is claimed first."""
    fence: int = 0
    """How often the issue was claimed: the fencing token of the last claim."""


class Edge(msgspec.Struct, frozen=True, order=True):
    """``issue`` depends on ``depends_on``."""

    issue: str
    type: str
    depends_on: str

    @property
    def is_blocking(self) -> bool:
        return self.type in BLOCKING


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The exclusive right of the actor ``owner`` to an issue, until it expires."""

    issue: str
    owner: str
    fence: int
    """The fencing token: the number of this claim among the claims of the issue. The next claim makes it invalid."""
    acquired_at: Instant
    expires_at: Instant
    renewed_at: Instant | None = None

    @property
    def lease_id(self) -> str:
        return f"lease1_{self.issue}_{self.fence}"

    def is_live(self, now: Instant) -> bool:
        return now < self.expires_at


class MutationRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The authorisation of a change by the evidence of a turn, and the digests of the issue before and after."""

    witness_id: str
    call_id: str
    """The id of the turn. A turn may have several witnesses, but authorises one change only."""
    mutation: Mutation
    """What the turn authorises: action, inputs, instruction, claims."""
    session_refs: tuple[str, ...]
    """References to the full record of the turn, like ``trajectory_refs``."""
    trajectory_refs: tuple[str, ...]
    before: str | None = None
    """The snapshot digest of the issue before the change; None for a new issue."""
    after: str = ""  # the snapshot digest after the change; empty before the change


Instant: TypeAlias = str  # ``2026-01-31T12:00:00.000Z``

Clock: TypeAlias = Callable[[], datetime]  # returns the current time, with a time zone


def system_clock() -> datetime:
    """Return the current time of this machine, in UTC."""
    return datetime.now(UTC)


def format_instant(moment: datetime) -> Instant:
    """Return the moment in UTC with milliseconds. A moment without a time zone is taken as local time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def add_seconds(instant: Instant, seconds: int) -> Instant:
    return format_instant(datetime.fromisoformat(instant) + timedelta(seconds=seconds))


def is_instant(text: str) -> bool:
    try:
        return format_instant(datetime.fromisoformat(text)) == text
    except ValueError:  # such as the 31st of February
        return False


SCHEMA: Final = "manglecp.issue_event.v1"

_QUOTED_VALUE: Final = re.compile("'.*'", re.DOTALL)  # matches the value that an error message of msgspec quotes


class _Change(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, forbid_unknown_fields=True
):
    """The base of all changes. Fields with their default value are not encoded, so that a change has one encoding.

    ``ttl`` is in seconds. ``fence`` is the fencing token of the lease; a change of an issue in progress requires it.
    """


class Add(_Change, frozen=True, kw_only=True, tag="issue.add"):
    """Add an issue."""

    title: str
    description: str = ""
    priority: int = DEFAULT_PRIORITY
    labels: tuple[str, ...] = ()


class Claim(_Change, frozen=True, kw_only=True, tag="issue.claim"):
    """Lease the issue to the actor; an expired lease is replaced."""

    ttl: int


class Renew(_Change, frozen=True, kw_only=True, tag="issue.renew"):
    """Extend the lease to ``ttl`` seconds from now."""

    fence: int
    ttl: int


class Release(_Change, frozen=True, kw_only=True, tag="issue.release"):
    """Drop the lease; the issue is open again."""

    fence: int


class Update(_Change, frozen=True, kw_only=True, tag="issue.update"):
    """Change fields of the issue; unset fields keep their values."""

    title: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    status: Literal["open", "blocked"] | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    labels: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    assignee: str | msgspec.UnsetType | None = msgspec.UNSET
    note: str = ""
    """Appended to the notes."""
    fence: int | None = None


class Discover(_Change, frozen=True, kw_only=True, tag="issue.discover"):
    """Add an issue that was found while working on the issue ``parent``, with an edge ``discovered-from`` to it."""

    parent: str
    title: str
    description: str = ""
    priority: int = DEFAULT_PRIORITY
    labels: tuple[str, ...] = ()


class Close(_Change, frozen=True, kw_only=True, tag="issue.close"):
    """Close the issue; ``note`` is appended to its notes."""

    note: str = ""
    fence: int | None = None


class DependencyChange(_Change, frozen=True, kw_only=True):
    """A change of an edge from the issue to the issue ``depends_on``."""

    edge: str
    """The type of the edge. (``type`` is the tag of the change.)"""
    depends_on: str
    fence: int | None = None


class AddDependency(DependencyChange, frozen=True, kw_only=True, tag="dep.add"):
    """Add an edge."""


class RemoveDependency(DependencyChange, frozen=True, kw_only=True, tag="dep.remove"):
    """Remove an edge."""


FreeChange: TypeAlias = Add | Claim | Renew | Release
"""Needs no authorisation: it adds an issue or changes a lease, but not the content of an issue."""

GatedChange: TypeAlias = Update | Discover | Close | AddDependency | RemoveDependency
"""Needs an authorisation (a ``MutationReady`` of the harness) for the action that is the tag of the change."""

Change: TypeAlias = FreeChange | GatedChange


class IssueEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the log. ``row_hash`` covers all other fields, including ``prev_hash``, the hash of the row before."""

    schema: Literal["manglecp.issue_event.v1"] = SCHEMA
    seq: int
    at: Instant
    actor: str
    issue: str
    change: Change
    mutation: MutationRecord | None
    prev_hash: str
    row_hash: str

    @staticmethod
    def after(head: Head, *, at: Instant, actor: str, issue: str, change: Change) -> IssueEvent:
        """Return the next row after ``head``, still without authorisation and hash."""
        seq, prev_hash = head.seq + 1, head.row_hash
        return IssueEvent(
            seq=seq, at=at, actor=actor, issue=issue, change=change, mutation=None, prev_hash=prev_hash, row_hash=""
        )

    def with_authorisation(self, mutation: MutationRecord | None) -> IssueEvent:
        """Return the row with its authorisation and hash."""
        event = replace(self, mutation=mutation)
        return replace(event, row_hash=event.compute_hash())

    @property
    def action(self) -> str:
        return action_of(self.change)

    @property
    def head(self) -> Head:
        return Head(self.seq, self.row_hash)

    def compute_hash(self) -> str:
        return hash_row(msgspec.to_builtins(self))


def action_of(change: Change) -> str:
    """Return the tag, such as ``issue.close``: the action that an authorisation has to name."""
    tag = change.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def encode_event(event: IssueEvent) -> bytes:
    """Return the canonical JSON of an event."""
    return canonical(msgspec.to_builtins(event))


def decode_event(row: bytes) -> IssueEvent:
    """Return the event of a canonical JSON. Raises :class:`ValueError`, whose message quotes no text of the row."""
    try:
        event = msgspec.convert(decode(row), IssueEvent)
        canonical_row = encode_event(event)
    except Fault as fault:
        raise ValueError(fault.message) from None
    except msgspec.ValidationError as error:
        raise ValueError(f"not an event: {_QUOTED_VALUE.sub('another value', str(error))}") from None
    if canonical_row != row:
        raise ValueError("not in canonical form: sorted keys, no spaces, no members with default values")
    return event
