"""The tools of an answer are kept, so that whoever was told of them can invoke them.

A client that asks the same again is told of the same tools, and they are kept already. So each process remembers what
it kept last for an identity, and writes only what is not there any more, is not there for long enough, or has changed
in any way. Nothing rests on this memory alone: whether the entries still are as they were written is looked up every
time, because another process may have evicted or replaced them. What is forgotten is written once more.

A tool that is announced again before half of its retention is over is kept for half a retention longer than it has to
be: then the next announcements find it there for long enough.

The question that is kept with a tool is the first one that proved it. Those for which it is not written again differ
from it in the time at which they were asked, and in nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from manglecp.harness.canonical import digest_bytes
from manglecp.intent.definition import Definition
from manglecp.intent.identity import Identity
from manglecp.invoke.documents import Documents, Proven, question_digest
from manglecp.store.opening import Store
from manglecp.store.registry import Kept
from manglecp.wire.messages.intent import IntentRequest

__all__ = ["Announcing"]


class _Remembered(NamedTuple):
    """What was written about a tool."""

    asked: bytes
    definition: Definition
    digest: str
    at_ms: int


class Announcing:
    """For one edition of a pack and one store. Threads may share it."""

    MOST: Final = 2048
    LARGEST: Final = 8192
    """Bytes of a document: clients have a say in how many there are, and in how large they are."""

    def __init__(self, store: Store, documents: Documents, pack_digest: str, retention_ms: int) -> None:
        self._store = store
        self._documents = documents
        self._pack_digest = pack_digest
        self._retention_ms = retention_ms
        self._known: dict[tuple[str, str], _Remembered] = {}

    def keep(
        self,
        request: IntentRequest,
        identity: Identity,
        definitions: Sequence[Definition],
        now_ns: int,
        now_ms: int,
        facts_version: str = "",
    ) -> None:
        """The identity can invoke these tools from now on, which answer its request of ``now_ns``."""
        if not definitions:
            return
        asked = _asked(request, identity, facts_version)
        written = self._written(identity, definitions, asked)
        if written is not None and self._still_there(identity, definitions, written, now_ms):
            return
        soon = written is not None and all(now_ms - one.at_ms <= self._retention_ms // 2 for one in written)
        proof = question_digest(request, identity, self._pack_digest, now_ns, facts_version)
        kept = [self._entry(one, proof) for one in definitions]
        with self._store.writing() as tx:
            self._store.registry.keep(
                tx,
                identity.name,
                kept,
                retention_ms=self._retention_ms * 3 // 2 if soon else self._retention_ms,
                now_ms=now_ms,
            )
        for definition, entry in zip(definitions, kept, strict=True):
            if len(entry.document) <= self.LARGEST:
                self._remember(identity, _Remembered(asked, definition, digest_bytes(entry.document), now_ms))

    def _entry(self, definition: Definition, proof: str) -> Kept:
        document = self._documents.write(Proven(definition, proof))
        return Kept(definition.macro_id, self._pack_digest, document, *_window(definition))

    # --- memory ------------------------------------------------------------------------------------------------------

    def _written(self, identity: Identity, definitions: Sequence[Definition], asked: bytes) -> list[_Remembered] | None:
        """When the same question had the same answer; None if one of the tools is unknown or another."""
        written = []
        for one in definitions:
            found = self._known.get((identity.name, one.macro_id))
            if found is None or found.asked != asked or found.definition != one:
                return None
            written.append(found)
        return written

    def _remember(self, identity: Identity, written: _Remembered) -> None:
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[identity.name, written.definition.macro_id] = written

    def _still_there(
        self, identity: Identity, definitions: Sequence[Definition], written: Sequence[_Remembered], now_ms: int
    ) -> bool:
        """For as long as an announcement of this moment would keep them?"""
        with self._store.glancing() as tx:
            there = self._store.registry.entries(tx, identity.name, [one.macro_id for one in definitions])
        for definition, one in zip(definitions, written, strict=True):
            digest, drop_ms = there.get(definition.macro_id, ("", 0))
            begins_ms, ends_ms = _window(definition)
            if digest != one.digest or drop_ms < max(now_ms, begins_ms or 0, ends_ms or 0) + self._retention_ms:
                return False
        return True


def _window(definition: Definition) -> tuple[int | None, int | None]:
    """In milliseconds, and no longer than it is."""
    return (
        None if definition.not_before is None else -(-definition.not_before // 1_000_000),
        None if definition.expires_at is None else definition.expires_at // 1_000_000,
    )


def _asked(request: IntentRequest, identity: Identity, facts_version: str) -> bytes:
    """Who asked what: a question without its time. Members in another order are taken for another question, and so is
    the same one when the server knew other facts."""
    who = (identity.name, sorted(identity.permissions), identity.trust)
    return hashlib.sha256(msgspec.json.encode((who, facts_version, request.payload))).digest()
