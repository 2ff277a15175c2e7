"""The registry of offers: an entry is a macro-tool (a chain of actions) with the identity that it was offered to.

An entry is visible to its identity only (decision OPEN-31). A later offer replaces the validity and definition of an
earlier one (OPEN-32). An entry is deleted a retention time after its offer, the start of its validity or the end of its
validity, whichever is latest (requirements INVK-11, INVK-12), so that a late call gets "expired", not "unknown". If the
registry is above its limit, a sweep evicts the oldest entries that have expired or never expire, then, with a warning,
the oldest of the others (INVK-13, OPEN-30).

Documents (definitions of tools, shared by all identities, and inputs of proofs, one per identity) are stored by digest.
A document is deleted with the last entry that refers to it, or by a sweep after that entry was replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from manglecp.base.digest import digest_bytes
from manglecp.store.database import Transaction
from manglecp.store.schema import read_part

RETENTION_MS: Final = 300_000
CHECK_MS: Final = 900_000  # interval between checks whether any entry refers to a document
MAX_ENTRIES: Final = 1_000_000
SWEEP_BATCH: Final = 10_000
_MAX_VALUES: Final = 500  # databases limit the values of a statement

REGISTRY: Final = read_part(__package__, "registry")

# Stored content with the same digest is replaced too: it may be sealed with an earlier key of the store.
_PUT_DOCUMENT: Final = """
    INSERT INTO registry_document (digest, check_ms, content) VALUES (?, ?, ?)
    ON CONFLICT (digest) DO UPDATE SET check_ms = excluded.check_ms, content = excluded.content
"""
# A macro id is a prefix of the chain digest; an offer with the same id and another chain digest is not stored.
_PUT_ENTRY: Final = """
    INSERT INTO registry
        (identity, macro_id, chain_digest, digest, inputs, not_before_ms, expires_at_ms, kept_ms, drop_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (identity, macro_id) DO UPDATE SET digest = excluded.digest, inputs = excluded.inputs,
        not_before_ms = excluded.not_before_ms, expires_at_ms = excluded.expires_at_ms,
        kept_ms = excluded.kept_ms, drop_ms = excluded.drop_ms
        WHERE registry.chain_digest = excluded.chain_digest
"""
_SELECT_OFFER: Final = """
    SELECT macro_id, chain_digest, definition.content, inputs, input.content, not_before_ms, expires_at_ms
    FROM registry
    JOIN registry_document AS definition ON definition.digest = registry.digest
    JOIN registry_document AS input ON input.digest = registry.inputs
    WHERE identity = ? AND macro_id = ? AND registry.drop_ms > ?
"""
_SELECT_WITH_SKILL: Final = """
    SELECT macro_id FROM registry
    WHERE identity = ? AND drop_ms > ? AND coalesce(not_before_ms, 0) <= ? AND coalesce(expires_at_ms, drop_ms) > ?
        AND EXISTS (SELECT 1 FROM registry_skill WHERE registry_skill.digest = registry.digest {condition})
    ORDER BY kept_ms DESC, macro_id LIMIT ?
"""
_SELECT_ENTRIES: Final = (
    "SELECT macro_id, digest, drop_ms, inputs FROM registry WHERE identity = ? AND macro_id IN ({placeholders})"
)
_DELETE_LAPSED: Final = """
    DELETE FROM registry WHERE (identity, macro_id) IN (
        SELECT identity, macro_id FROM registry WHERE drop_ms <= ? LIMIT ?)
    RETURNING digest, inputs
"""
# Returns the documents whose check is due, and defers their next check.
_NEXT_TO_CHECK: Final = """
    UPDATE registry_document SET check_ms = ? WHERE digest IN (
        SELECT digest FROM registry_document WHERE check_ms <= ? LIMIT ?)
    RETURNING digest
"""
_EVICT: Final = """
    DELETE FROM registry WHERE (identity, macro_id) IN (
        SELECT identity, macro_id FROM registry
        WHERE {condition} ORDER BY kept_ms, identity, macro_id LIMIT ?)
    RETURNING digest, inputs
"""
_EXPIRED_OR_UNLIMITED: Final = "(expires_at_ms IS NULL OR expires_at_ms <= ?)"
_UNEXPIRED: Final = "expires_at_ms > ?"
_DELETE_UNUSED_DOCUMENTS: Final = """
    DELETE FROM registry_document
    WHERE digest IN ({placeholders})
        AND NOT EXISTS (SELECT 1 FROM registry WHERE registry.digest = registry_document.digest)
        AND NOT EXISTS (SELECT 1 FROM registry WHERE registry.inputs = registry_document.digest)
"""

_log: Final = logging.getLogger(__name__)


class StoredOffer(NamedTuple):
    """An offered tool: its definition (``document``) and the inputs of its proof, both opaque to the store."""

    macro_id: str
    chain_digest: str
    document: bytes
    inputs_digest: str
    """The key of ``inputs``; different for each identity."""
    inputs: bytes
    not_before_ms: int | None
    expires_at_ms: int | None
    skills: tuple[str, ...] = ()
    """The ids of the skills (instructions) of the definition; only read when an offer is stored."""


class EntrySummary(NamedTuple):
    """The digests of an entry's documents, and the end of its retention."""

    definition_digest: str
    drop_ms: int
    inputs_digest: str


class OfferSweep(NamedTuple):
    lapsed: int
    """Entries deleted at the end of their retention."""
    evicted: int
    """Entries deleted earlier, because the registry was above its limit."""
    evicted_unexpired: int
    """Evicted entries whose validity had an end in the future; entries without an end do not count."""
    more: bool
    """Whether entries or documents are left to delete. Commit before the next sweep, so that other writers proceed."""


class Registry:
    """Operations of the registry, each inside the caller's transaction."""

    __slots__ = ()

    def register(
        self,
        tx: Transaction,
        identity: str,
        offers: Iterable[StoredOffer],
        *,
        now_ms: int,
        retention_ms: int = RETENTION_MS,
    ) -> None:
        """Store offers to this identity; each replaces an earlier one with the same macro id and chain digest."""
        documents: dict[str, bytes] = {}
        skills: set[tuple[str, str]] = set()
        entries: dict[str, tuple[object, ...]] = {}
        for offer in offers:
            digest = digest_bytes(offer.document)
            drop_ms = max(now_ms, offer.not_before_ms or 0, offer.expires_at_ms or 0) + retention_ms
            documents |= {digest: offer.document, offer.inputs_digest: offer.inputs}
            skills |= {(digest, skill) for skill in offer.skills}
            ids = (identity, offer.macro_id, offer.chain_digest, digest, offer.inputs_digest)
            entries[offer.macro_id] = (*ids, offer.not_before_ms, offer.expires_at_ms, now_ms, drop_ms)
        # Sorted: one lock order for all writers prevents deadlocks.
        tx.executemany(_PUT_DOCUMENT, [(key, now_ms + CHECK_MS, documents[key]) for key in sorted(documents)])
        tx.executemany(
            "INSERT INTO registry_skill (digest, skill) VALUES (?, ?) ON CONFLICT DO NOTHING", sorted(skills)
        )
        tx.executemany(_PUT_ENTRY, [entries[macro_id] for macro_id in sorted(entries)])

    def find(self, tx: Transaction, identity: str, macro_id: str, now_ms: int) -> StoredOffer | None:
        """Return the offer of a tool to this identity, even before or after its validity; None past its retention."""
        row = tx.execute(_SELECT_OFFER, (identity, macro_id, now_ms)).fetchone()
        return None if row is None else StoredOffer(*row)

    def with_skill(
        self, tx: Transaction, identity: str, skill: str | None, now_ms: int, latest_ms: int, limit: int
    ) -> list[str]:
        """Return the macro ids of offers to this identity that refer to the skill (None: to any skill), newest first.

        The validity of these offers begins at ``latest_ms`` or earlier, and ends after ``now_ms``.
        """
        statement = _SELECT_WITH_SKILL.format(condition="" if skill is None else "AND skill = ?")
        skills = () if skill is None else (skill,)
        rows = tx.execute(statement, (identity, now_ms, latest_ms, now_ms, *skills, limit)).fetchall()
        return [macro_id for (macro_id,) in rows]

    def entries(self, tx: Transaction, identity: str, macro_ids: Sequence[str]) -> dict[str, EntrySummary]:
        """Return the entries of this identity by macro id, without unknown ids."""
        placeholders = ", ".join("?" * len(macro_ids))
        rows = tx.execute(_SELECT_ENTRIES.format(placeholders=placeholders), (identity, *macro_ids)).fetchall()
        return {macro_id: EntrySummary(*summary) for macro_id, *summary in rows}

    def sweep(
        self, tx: Transaction, now_ms: int, max_entries: int = MAX_ENTRIES, *, batch: int = SWEEP_BATCH
    ) -> OfferSweep:
        """Delete entries past their retention, then evict those above ``max_entries``; at most ``batch`` in all."""
        if tx.dialect == "postgresql":
            # No writer may insert an entry between the test that a document is unused and its deletion.
            tx.execute("LOCK TABLE registry_document IN SHARE ROW EXCLUSIVE MODE")
        lapsed_rows = tx.execute(_DELETE_LAPSED, (now_ms, batch)).fetchall()
        checked_rows = tx.execute(_NEXT_TO_CHECK, (now_ms + CHECK_MS, now_ms, batch)).fetchall()
        _delete_unused_documents(tx, [*lapsed_rows, *checked_rows])
        if batch in (len(lapsed_rows), len(checked_rows)):  # more rows may be due after a full batch
            return OfferSweep(len(lapsed_rows), 0, 0, more=True)
        excess = tx.execute("SELECT count(*) FROM registry").fetchone()[0] - max_entries
        to_evict = min(excess, batch - len(lapsed_rows))
        expired_or_unlimited = self._evict(tx, _EXPIRED_OR_UNLIMITED, now_ms, to_evict)
        unexpired = self._evict(tx, _UNEXPIRED, now_ms, to_evict - expired_or_unlimited)
        if unexpired:
            message = "the registry has room for %d macro-tools: %d were dropped before their validity ended"
            _log.warning(message, max_entries, unexpired)
        evicted = expired_or_unlimited + unexpired
        return OfferSweep(len(lapsed_rows), evicted, unexpired, more=evicted < excess)

    def _evict(self, tx: Transaction, condition: str, now_ms: int, count: int) -> int:
        if count <= 0:
            return 0
        rows = tx.execute(_EVICT.format(condition=condition), (now_ms, count)).fetchall()
        _delete_unused_documents(tx, rows)
        return len(rows)


def _delete_unused_documents(tx: Transaction, rows: Iterable[Sequence[str]]) -> None:
    """Delete the documents in ``rows`` (digests) to which no entry refers any more."""
    digests = sorted({digest for row in rows for digest in row})
    for start in range(0, len(digests), _MAX_VALUES):
        page = digests[start : start + _MAX_VALUES]
        tx.execute(_DELETE_UNUSED_DOCUMENTS.format(placeholders=", ".join("?" * len(page))), page)
