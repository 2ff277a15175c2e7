"""The tools of an answer are kept, so that whoever was told of them can invoke them.

A client that asks the same again is told of the same tools, and they are kept already. So each process remembers what
it kept last for an identity, and writes only what is not there any more, is not there for long enough, or has changed
in any way. Nothing rests on this memory alone: whether the entries still are as they were written is looked up every
time, because another process may have evicted or replaced them. What is forgotten is written once more.

A tool that is announced again before half of its retention is over is kept for half a retention longer than it has to
be: then the next announcements find it there for long enough.

The question that is kept with a tool is the first one that proved it. Those for which it is not written again differ
from it in the time at which they were asked, and in nothing else.

Several answers are kept together where there are several: the store is asked once, and written once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from manglecp.base.digest import digest_bytes
from manglecp.intent import Definition, Identity
from manglecp.invoke.documents import Documents, Proven, question_digest
from manglecp.store import Busy, Kept, Store
from manglecp.wire.messages import IntentRequest

__all__ = ["Announced", "Announcing"]

_There: TypeAlias = Mapping[str, Mapping[str, tuple[str, int]]]
"""By identity and macro_id: the digest of what is kept, and until when."""


class Announced(NamedTuple):
    """What an identity was told."""

    request: IntentRequest
    identity: Identity
    definitions: Sequence[Definition]
    """Of the tools that answer its request."""
    now_ns: int
    """The time of the request."""
    now_ms: int
    """From when on the tools are kept."""
    facts_version: str = ""

    @property
    def keys(self) -> list[tuple[str, str]]:
        """What each of its tools is kept under."""
        return [(self.identity.name, one.macro_id) for one in self.definitions]


class _Remembered(NamedTuple):
    """What was written about a tool."""

    asked: bytes
    definition: Definition
    digest: str
    at_ms: int


class _News(NamedTuple):
    """An announcement on its way into the store."""

    announced: Announced
    asked: bytes
    written: list[_Remembered] | None
    """What is remembered of all its tools, if that is what they are."""
    known: bool
    """May it be there already?"""


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

    def keep(self, announced: Sequence[Announced]) -> list[Exception | None]:
        """The identities can invoke these tools from now on; for each, in their order, what kept it from being kept.

        Whatever is kept under the same name, the last one counts.
        """
        news: list[_News] = []
        replaced: set[tuple[str, str]] = set()
        for one in announced:
            if one.definitions:
                asked = _asked(one)
                written = self._written(one, asked)
                known = written is not None and replaced.isdisjoint(one.keys)
                if not known:
                    replaced.update(one.keys)
                news.append(_News(one, asked, written, known))
        failed: dict[int, Exception] = {}
        try:
            there = self._there([one for one in news if one.known])
        except Exception as error:
            failed = {id(one.announced): error for one in news if one.known}
            news = [one for one in news if not one.known]
        else:
            news = [one for one in news if not (one.known and self._still_there(one, there))]
        failed |= self._write_together(news)
        return [failed.get(id(one)) for one in announced]

    def _write_together(self, news: Sequence[_News]) -> dict[int, Exception]:
        """All or each; which failed, and why."""
        # Where rows are locked one by one, two that write many of them could wait for each other.
        if len(news) > 1 and self._store.database.dialect == "sqlite":
            try:
                self._write(news)
            except Busy as error:
                return {id(one.announced): error for one in news}
            except Exception:  # whose fault it was shows below
                pass
            else:
                return {}
        failed: dict[int, Exception] = {}
        for one in news:
            try:
                self._write([one])
            except Exception as error:
                failed[id(one.announced)] = error
        return failed

    def _write(self, news: Sequence[_News]) -> None:
        kept = [self._entries(one) for one in news]
        with self._store.write_transaction() as tx:
            for one, entries in zip(news, kept, strict=True):
                now_ms, half = one.announced.now_ms, self._retention_ms // 2
                soon = one.written is not None and all(now_ms - known.at_ms <= half for known in one.written)
                self._store.registry.keep(
                    tx,
                    one.announced.identity.name,
                    entries,
                    retention_ms=self._retention_ms * 3 // 2 if soon else self._retention_ms,
                    now_ms=now_ms,
                )
        for one, entries in zip(news, kept, strict=True):
            for definition, entry in zip(one.announced.definitions, entries, strict=True):
                if len(entry.document) <= self.LARGEST:
                    digest = digest_bytes(entry.document)
                    written = _Remembered(one.asked, definition, digest, one.announced.now_ms)
                    self._remember(one.announced.identity, written)

    def _entries(self, news: _News) -> list[Kept]:
        one = news.announced
        proof = question_digest(one.request, one.identity, self._pack_digest, one.now_ns, one.facts_version)
        return [self._entry(definition, proof) for definition in one.definitions]

    def _entry(self, definition: Definition, proof: str) -> Kept:
        document = self._documents.write(Proven(definition, proof))
        return Kept(definition.macro_id, self._pack_digest, document, *_window(definition))

    # --- memory ------------------------------------------------------------------------------------------------------

    def _written(self, announced: Announced, asked: bytes) -> list[_Remembered] | None:
        """When the same question had the same answer; None if one of the tools is unknown or another."""
        written = []
        for one in announced.definitions:
            found = self._known.get((announced.identity.name, one.macro_id))
            if found is None or found.asked != asked or found.definition != one:
                return None
            written.append(found)
        return written

    def _remember(self, identity: Identity, written: _Remembered) -> None:
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[identity.name, written.definition.macro_id] = written

    def _there(self, known: Sequence[_News]) -> _There:
        """What the store has of their tools now."""
        wanted: dict[str, dict[str, None]] = {}
        for one in known:
            macro_ids = wanted.setdefault(one.announced.identity.name, {})
            macro_ids.update((definition.macro_id, None) for definition in one.announced.definitions)
        if not wanted:
            return {}
        with self._store.read_statement() as tx:
            return {name: self._store.registry.entries(tx, name, list(ids)) for name, ids in wanted.items()}

    def _still_there(self, news: _News, there: _There) -> bool:
        """For as long as an announcement of this moment would keep them?"""
        assert news.written is not None
        entries = there[news.announced.identity.name]
        for definition, one in zip(news.announced.definitions, news.written, strict=True):
            digest, drop_ms = entries.get(definition.macro_id, ("", 0))
            begins_ms, ends_ms = _window(definition)
            until_ms = max(news.announced.now_ms, begins_ms or 0, ends_ms or 0) + self._retention_ms
            if digest != one.digest or drop_ms < until_ms:
                return False
        return True


def _window(definition: Definition) -> tuple[int | None, int | None]:
    """In milliseconds, and no longer than it is."""
    return (
        None if definition.not_before is None else -(-definition.not_before // 1_000_000),
        None if definition.expires_at is None else definition.expires_at // 1_000_000,
    )


def _asked(announced: Announced) -> bytes:
    """Who asked what: a question without its time. Members in another order are taken for another question, and so is
    the same one when the server knew other facts."""
    identity = announced.identity
    who = (identity.name, sorted(identity.permissions), identity.trust)
    return hashlib.sha256(msgspec.json.encode((who, announced.facts_version, announced.request.payload))).digest()
