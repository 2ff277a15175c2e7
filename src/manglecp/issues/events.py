"""Changes, and events: the rows of the log.

A change is a request, not its result: a claim has an owner and a duration, and its fencing token follows from the
state. That makes the state replayable. An event is a change with time, actor, the mutation that allowed it, and its
place in the hash chain. The canonical JSON of an event is both what is hashed and a line of an export.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

from manglecp.base.hash_chain import Head, row_hash
from manglecp.base.json import canonical
from manglecp.issues.model import DEFAULT_PRIORITY, Instant, Mutation
from manglecp.wire import Fault, decode

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
    """Take the lease for the actor, or take over one that ran out."""

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


class AddDependency(_Change, frozen=True, kw_only=True, tag="dep.add"):
    """Add an edge from the issue to another."""

    edge: str
    """The type of the edge; ``type`` is the tag of the change."""
    depends_on: str
    fence: int | None = None


class RemoveDependency(_Change, frozen=True, kw_only=True, tag="dep.remove"):
    """Remove an edge."""

    edge: str
    depends_on: str
    fence: int | None = None


FreeChange: TypeAlias = Add | Claim | Renew | Release  # needs no right: nothing known is changed

GatedChange: TypeAlias = Update | Discover | Close | AddDependency | RemoveDependency
"""Needs a ``MutationReady`` whose action is the tag."""

Change: TypeAlias = FreeChange | GatedChange


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    ) -> Event:
        """Return the next row after ``head``, with its number and hashes."""
        event = Event(
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


def write_event(event: Event) -> bytes:
    return canonical(msgspec.to_builtins(event))


def read_event(row: bytes) -> Event:
    """Parse canonical JSON. The message of a :class:`ValueError` quotes nothing of the row."""
    try:
        event = msgspec.convert(decode(row), Event)
        again = write_event(event)
    except Fault as fault:
        raise ValueError(fault.message) from None
    except msgspec.ValidationError as error:
        raise ValueError(f"no event: {_QUOTED.sub('something else', str(error))}") from None
    if again != row:
        raise ValueError("not in canonical form: keys sorted, no spaces, members that have their default left out")
    return event
