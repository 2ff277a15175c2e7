"""What can happen, and the rows of the log.

A change says what was asked for, not what came of it: a claim has an owner and a duration, and which fencing token that
gives follows from the state. Only so can the state be computed again. A row of the log is an event: a change, when and
by whom, the mutation that allowed it where one is needed, and its place in the hash chain.

The canonical JSON of a row is both what is hashed and a line of an export.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

from manglecp.base.hash_chain import Head, row_hash
from manglecp.base.json import canonical
from manglecp.issues.model import DEFAULT_PRIORITY, Instant, Mutation
from manglecp.wire import Fault, decode

__all__ = [
    "Add",
    "AddDependency",
    "Change",
    "Claim",
    "Close",
    "Discover",
    "Event",
    "FreeChange",
    "GatedChange",
    "Release",
    "RemoveDependency",
    "Renew",
    "Update",
    "action_of",
    "read_event",
    "write_event",
]

SCHEMA: Final = "manglecp.issue_event.v1"

_QUOTED: Final = re.compile("'.*'", re.DOTALL)


class _Change(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, forbid_unknown_fields=True
):
    """A member that has its default is not written, so that there is one way to write a change."""


class Add(_Change, frozen=True, kw_only=True, tag="issue.add"):
    """A new issue."""

    title: str
    description: str = ""
    priority: int = DEFAULT_PRIORITY
    labels: tuple[str, ...] = ()


class Claim(_Change, frozen=True, kw_only=True, tag="issue.claim"):
    """The actor becomes the owner. A lease that ran out is taken over."""

    ttl: int


class Renew(_Change, frozen=True, kw_only=True, tag="issue.renew"):
    """The lease lasts longer. ``fence`` proves that it is still the actor's."""

    fence: int
    ttl: int


class Release(_Change, frozen=True, kw_only=True, tag="issue.release"):
    """The lease is given back, and the issue is open again."""

    fence: int


class Update(_Change, frozen=True, kw_only=True, tag="issue.update"):
    """Members that are not given stay as they are."""

    title: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    status: Literal["open", "blocked"] | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    labels: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    assignee: str | msgspec.UnsetType | None = msgspec.UNSET
    note: str = ""
    """Added to the notes as lines of its own."""
    fence: int | None = None


class Discover(_Change, frozen=True, kw_only=True, tag="issue.discover"):
    """A new issue that was found while working on another."""

    parent: str
    title: str
    description: str = ""
    priority: int = DEFAULT_PRIORITY
    labels: tuple[str, ...] = ()


class Close(_Change, frozen=True, kw_only=True, tag="issue.close"):
    """The issue is done. Only evidence that permits it makes one."""

    note: str = ""
    fence: int | None = None


class AddDependency(_Change, frozen=True, kw_only=True, tag="dep.add"):
    """The issue waits for, or is related to, another."""

    edge: str
    """The type of the edge; ``type`` says what kind of change this is."""
    depends_on: str
    fence: int | None = None


class RemoveDependency(_Change, frozen=True, kw_only=True, tag="dep.remove"):
    """That is so no more."""

    edge: str
    depends_on: str
    fence: int | None = None


FreeChange: TypeAlias = Add | Claim | Renew | Release
"""Needs no right: it takes nothing away from what is known."""

GatedChange: TypeAlias = Update | Discover | Close | AddDependency | RemoveDependency
"""Needs a ``MutationReady`` whose action is the tag."""

Change: TypeAlias = FreeChange | GatedChange


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the log. Its hash covers all of it, the hash of the row before included."""

    schema: Literal["manglecp.issue_event.v1"] = SCHEMA
    seq: int
    """1, 2, 3 and so on."""
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
        """The next row after ``head``, with its number and hashes."""
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
        """``issue.close``"""
        return action_of(self.change)

    @property
    def head(self) -> Head:
        """What the next row follows."""
        return Head(self.seq, self.row_hash)

    def computed_hash(self) -> str:
        """What ``row_hash`` has to be."""
        return row_hash(msgspec.to_builtins(self))


def action_of(change: Change) -> str:
    """``issue.close``, ``dep.add``: the tag, which is also the action that a right has to name."""
    tag = change.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def write_event(event: Event) -> bytes:
    """The canonical JSON of the row, without a line break."""
    return canonical(msgspec.to_builtins(event))


def read_event(row: bytes) -> Event:
    """From its canonical JSON; a :class:`ValueError` says why it is none, and repeats nothing of what it found."""
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
