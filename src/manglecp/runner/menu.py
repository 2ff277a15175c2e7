"""The menu of a step: the actions that may be picked, each under a short name, its SID.

Entries are sorted by AID and numbered from ``SID0001``, so that the same actions always make the same menu. Upstream
offers ``AID.NOOP.v1`` twice; here an action has one SID, and two different actions of one AID are an error. A filter
removes entries and leaves the SIDs of the others unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from manglecp.runner.errors import BadMenu

MOST_ENTRIES: Final = 9_999  # A SID has four digits: what is numbered higher could never be picked
SID: Final = re.compile(r"SID[0-9]{4}")
_LONGEST_NAME: Final = 256
_MOST_TAGS: Final = 64
# The signs between the parts of the digest's text are not escaped there, so no part may have them.
_AID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_TAG: Final = re.compile(r"[^\x00-\x20\x7f,:|=\ud800-\udfff]{1,128}")


@dataclass(frozen=True, slots=True)
class Offer:
    """An action for a menu. A ``deterministic`` one has the same result on the same inputs and state."""

    aid: str
    name: str = ""
    tags: frozenset[str] = frozenset()
    deterministic: bool = False
    inputs_schema: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if not _AID.fullmatch(self.aid):
            raise BadMenu(f"no action id: {self.aid[:80]!a}")
        if len(self.name) > _LONGEST_NAME or len(self.tags) > _MOST_TAGS:
            raise BadMenu(f"{self.aid}: a name of more than {_LONGEST_NAME} characters, or more than {_MOST_TAGS} tags")
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise BadMenu(f"{self.aid}: no tag: {tag[:80]!a}")


@dataclass(frozen=True, slots=True)
class Entry:
    sid: str
    offer: Offer

    def members(self) -> dict[str, Any]:
        """Return the logged form, without the schema."""
        offer = self.offer
        return {
            "sid": self.sid,
            "aid": offer.aid,
            "name": offer.name,
            "tags": sorted(offer.tags),
            "deterministic": offer.deterministic,
        }

    def described(self) -> dict[str, Any]:
        """Return the form for a policy. Upstream leaves the schema out, and a policy then cannot know the arguments."""
        schema = self.offer.inputs_schema
        return self.members() if schema is None else {**self.members(), "inputs_schema": dict(schema)}


@dataclass(frozen=True, slots=True)
class Menu:
    """Entries in the order of their SIDs."""

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        sids = [entry.sid for entry in self.entries]
        if len(sids) > MOST_ENTRIES:
            raise BadMenu(f"more than {MOST_ENTRIES} entries")
        if any(not SID.fullmatch(sid) for sid in sids) or sids != sorted(set(sids)):
            raise BadMenu("SIDs are SID0001 and so on, sorted, none of them twice")
        if len({entry.offer.aid for entry in self.entries}) != len(sids):
            raise BadMenu("an action stands on the menu twice")

    @classmethod
    def of(cls, offers: Iterable[Offer]) -> Menu:
        """Return the menu of these actions; a repeated offer is one entry."""
        by_aid: dict[str, Offer] = {}
        for offer in offers:
            if by_aid.setdefault(offer.aid, offer) != offer:
                raise BadMenu(f"two different actions are called {offer.aid}")
            if len(by_aid) > MOST_ENTRIES:
                raise BadMenu(f"more than {MOST_ENTRIES} entries")
        return cls(tuple(Entry(f"SID{n:04}", by_aid[aid]) for n, aid in enumerate(sorted(by_aid), 1)))

    @classmethod
    def read(cls, entries: Iterable[Mapping[str, Any]]) -> Menu:
        """Parse what :meth:`members` returned."""
        try:
            return cls(
                tuple(
                    Entry(
                        one["sid"],
                        Offer(one["aid"], one["name"], frozenset(one["tags"]), one["deterministic"]),
                    )
                    for one in entries
                )
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise BadMenu(f"no menu: {type(error).__name__} {error}") from None

    def tagged(self, tags: Iterable[str]) -> Menu:
        wanted = frozenset(tags)
        return Menu(tuple(entry for entry in self.entries if entry.offer.tags & wanted))

    def permitted(self, allowed: Iterable[str] = (), blocked: Iterable[str] = ()) -> Menu:
        """Apply ``_capabilities``: an AID, or its beginning and ``*``. Blocked wins; no list allows all."""
        allowing, blocking = tuple(allowed), tuple(blocked)
        return Menu(
            tuple(
                entry
                for entry in self.entries
                if not _matches(entry.offer.aid, blocking) and (not allowing or _matches(entry.offer.aid, allowing))
            )
        )

    def get(self, sid: str) -> Offer | None:
        return next((entry.offer for entry in self.entries if entry.sid == sid), None)

    def members(self) -> list[dict[str, Any]]:
        return [entry.members() for entry in self.entries]

    @property
    def digest(self) -> str:
        """SHA-256 of ``SID0001=<AID>:<sorted,tags>|SID0002=…``, as upstream computes it."""
        parts = (f"{one.sid}={one.offer.aid}:{','.join(sorted(one.offer.tags))}" for one in self.entries)
        return hashlib.sha256("|".join(parts).encode()).hexdigest()


def _matches(aid: str, patterns: tuple[str, ...]) -> bool:
    return any(aid.startswith(one[:-1]) if one.endswith("*") else aid == one for one in patterns)
