"""Issues, edges, leases and mutations with the limits of their members; changes and events, the rows of the log.

Errors name the rule, never the text. A change is a request, not its result: a claim has an owner and a duration, and
its fencing token follows from the state. That makes the state replayable. An event is a change with time, actor, the
mutation that allowed it, and its place in the hash chain. The canonical JSON of an event is hashed, and is a
line of an export.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, TypeAlias

import msgspec

from manglecp.base.hash_chain import Head, row_hash
from manglecp.base.json import canonical
from manglecp.harness import Mutation as Intent
from manglecp.store import Invalid
from manglecp.wire import Fault, decode

ID: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # fits into a URI, a file name and a shell word without quotes

LONGEST_TITLE: Final = 200
LONGEST_TEXT: Final = 65_536
LONGEST_NAME: Final = 128
MOST_LABELS: Final = 32
MOST_EDGES: Final = 256
LOWEST_PRIORITY: Final = 4
DEFAULT_PRIORITY: Final = 2
SHORTEST_TTL: Final = 30
LONGEST_TTL: Final = 86_400
DEFAULT_TTL: Final = 3_600

_ID: Final = re.compile(ID)
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")


def check_id(text: str, field: str = "id") -> None:
    if _ID.fullmatch(text) is None:
        raise Invalid(field, "an id is 1 to 64 letters, digits and . _ -; the first a letter or a digit")


def check_title(text: str) -> None:
    if not text.strip():
        raise Invalid("title", "it is empty")
    if len(text) > LONGEST_TITLE:
        raise Invalid("title", f"it has {len(text):,} characters, and {LONGEST_TITLE} are allowed")
    _check_line(text, "title")


def check_text(text: str, field: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise Invalid(field, f"it has {len(text):,} characters, and {LONGEST_TEXT:,} are allowed")
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in set(text) - {"\n", "\t"}):
        raise Invalid(field, "it has control characters other than line feeds and tabs")


def check_name(text: str, field: str) -> None:
    if not text.strip() or len(text) > LONGEST_NAME:
        raise Invalid(field, f"a name has 1 to {LONGEST_NAME} characters")
    _check_line(text, field)


def check_labels(labels: Sequence[str]) -> None:
    if len(labels) > MOST_LABELS:
        raise Invalid("labels", f"there are {len(labels):,}, and {MOST_LABELS} are allowed")
    if any(_LABEL.fullmatch(label) is None for label in labels):
        raise Invalid("labels", "a label is 1 to 64 letters, digits and . _ : / -; the first a letter or a digit")
    if list(labels) != sorted(set(labels)):
        raise Invalid("labels", "they are not sorted, or one is present twice")


def check_priority(priority: int) -> None:
    if not 0 <= priority <= LOWEST_PRIORITY:
        raise Invalid("priority", f"it is a number from 0, the most urgent, to {LOWEST_PRIORITY}")


def check_ttl(seconds: int) -> None:
    if not SHORTEST_TTL <= seconds <= LONGEST_TTL:
        raise Invalid("ttl", f"a lease lasts from {SHORTEST_TTL} to {LONGEST_TTL:,} seconds")


def _check_line(text: str, field: str) -> None:
    """Reject characters that change how a terminal displays the text (threat 3)."""
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in set(text)):
        raise Invalid(field, "it has line breaks, control characters or invisible ones")


class Status(StrEnum):
    """The status of an issue."""

    OPEN = "open"
    IN_PROGRESS = "in_progress"
    """Leased. The only status with a lease; a claim is the only way into it."""
    BLOCKED = "blocked"
    """Set by a worker. An issue that waits for others is open, with blocking edges."""
    CLOSED = "closed"


BLOCKING: Final = frozenset({"blocks", "parent-child", "conditional-blocks", "waits-for"})
"""Edges that prevent a claim until the other issue is closed. They form no cycle."""

EDGE_TYPES: Final = BLOCKING | {"related", "discovered-from", "relates-to", "duplicates", "supersedes", "replies-to"}


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """An issue: the state that follows from its events."""

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
    born: int
    """The number of the event that added it; among issues of one priority the oldest comes first."""
    fence: int = 0
    """The number of claims; the fencing token of the last one."""


class Edge(msgspec.Struct, frozen=True, order=True):
    """``issue`` depends on ``depends_on``."""

    issue: str
    type: str
    depends_on: str

    @property
    def blocking(self) -> bool:
        return self.type in BLOCKING


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's exclusive right to an issue, for a time."""

    issue: str
    owner: str
    fence: int
    """The fencing token: the number of this claim. It is outdated after a takeover."""
    acquired_at: Instant
    expires_at: Instant
    renewed_at: Instant | None = None

    @property
    def lease_id(self) -> str:
        return f"lease1_{self.issue}_{self.fence}"

    def is_live(self, now: Instant) -> bool:
        return now < self.expires_at


class Mutation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The authorisation of a change: the evidence, the authorised intent, and the digests before and after."""

    witness_id: str
    call_id: str
    """The id of the turn, which may have several witnesses: one turn mutates once."""
    intent: Intent
    """The authorised mutation: action, inputs, instruction, claims."""
    session_refs: tuple[str, ...]
    trajectory_refs: tuple[str, ...]
    """References to the full record of the turn."""
    before: str | None
    """Digest of the issue before the change; null for a new issue."""
    after: str


Instant: TypeAlias = str  # ``2026-01-31T12:00:00.000Z``

Clock: TypeAlias = Callable[[], datetime]  # returns the current time, with a time zone

_FORM: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def system_clock() -> datetime:
    """Return the current time of this machine, in UTC."""
    return datetime.now(UTC)


def format_instant(moment: datetime) -> Instant:
    """Return the moment as it is stored. One without a zone is taken as local time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def add_seconds(instant: Instant, seconds: int) -> Instant:
    return format_instant(datetime.fromisoformat(instant) + timedelta(seconds=seconds))


def is_instant(text: str) -> bool:
    if _FORM.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # the 31st of February
        return False
    return True


SCHEMA: Final = "manglecp.issue_event.v1"

_QUOTED: Final = re.compile("'.*'", re.DOTALL)


class _Change(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, forbid_unknown_fields=True
):
    """Defaults are omitted, so that a change has one encoding."""


class Add(_Change, frozen=True, kw_only=True, tag="issue.add"):
    """Add an issue."""

    title: str
    description: str = ""
    priority: int = DEFAULT_PRIORITY
    labels: tuple[str, ...] = ()


class Claim(_Change, frozen=True, kw_only=True, tag="issue.claim"):
    """Take the lease for the actor, or take over an expired one."""

    ttl: int


class Renew(_Change, frozen=True, kw_only=True, tag="issue.renew"):
    """Extend the lease; ``fence`` proves that the actor still holds it."""

    fence: int
    ttl: int


class Release(_Change, frozen=True, kw_only=True, tag="issue.release"):
    """Give the lease back; the issue is open again."""

    fence: int


class Update(_Change, frozen=True, kw_only=True, tag="issue.update"):
    """Change members; those not given stay as they are."""

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
    """Add an issue that was found while working on another."""

    parent: str
    title: str
    description: str = ""
    priority: int = DEFAULT_PRIORITY
    labels: tuple[str, ...] = ()


class Close(_Change, frozen=True, kw_only=True, tag="issue.close"):
    """Close the issue."""

    note: str = ""
    fence: int | None = None


class DependencyChange(_Change, frozen=True, kw_only=True):
    """A change of the edge from the issue to another."""

    edge: str
    """The type of the edge; ``type`` is the tag of the change."""
    depends_on: str
    fence: int | None = None


class AddDependency(DependencyChange, frozen=True, kw_only=True, tag="dep.add"):
    """Add an edge."""


class RemoveDependency(DependencyChange, frozen=True, kw_only=True, tag="dep.remove"):
    """Remove an edge."""


FreeChange: TypeAlias = Add | Claim | Renew | Release  # needs no right: no known work changes

GatedChange: TypeAlias = Update | Discover | Close | AddDependency | RemoveDependency
"""Needs a ``MutationReady`` whose action is the tag."""

Change: TypeAlias = FreeChange | GatedChange


class IssueEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the log. Its hash covers the whole row, including the hash of the row before."""

    schema: Literal["manglecp.issue_event.v1"] = SCHEMA
    seq: int
    at: Instant
    actor: str
    issue: str
    change: Change
    mutation: Mutation | None
    prev_hash: str
    row_hash: str

    @staticmethod
    def following(
        head: Head, *, at: Instant, actor: str, issue: str, change: Change, mutation: Mutation | None
    ) -> IssueEvent:
        """Return the next row after ``head``, with its number and hashes."""
        event = IssueEvent(
            seq=head.seq + 1,
            at=at,
            actor=actor,
            issue=issue,
            change=change,
            mutation=mutation,
            prev_hash=head.row_hash,
            row_hash="",
        )
        return msgspec.structs.replace(event, row_hash=event.computed_hash())

    @property
    def action(self) -> str:
        return action_of(self.change)

    @property
    def head(self) -> Head:
        return Head(self.seq, self.row_hash)

    def computed_hash(self) -> str:
        return row_hash(msgspec.to_builtins(self))


def action_of(change: Change) -> str:
    """Return the tag, such as ``issue.close``: the action that a right has to name."""
    tag = change.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def write_event(event: IssueEvent) -> bytes:
    return canonical(msgspec.to_builtins(event))


def read_event(row: bytes) -> IssueEvent:
    """Parse canonical JSON. Raises :class:`ValueError` with a message that quotes no text of the row."""
    try:
        event = msgspec.convert(decode(row), IssueEvent)
        again = write_event(event)
    except Fault as fault:
        raise ValueError(fault.message) from None
    except msgspec.ValidationError as error:
        raise ValueError(f"not an event: {_QUOTED.sub('another value', str(error))}") from None
    if again != row:
        raise ValueError("not in canonical form: sorted keys, no spaces, no members with default values")
    return event
