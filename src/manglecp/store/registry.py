"""Offers: macro-tools with the identity they were offered to.

An entry is visible to its identity only (OPEN-31). A later offer replaces the validity and definition of an earlier one
(OPEN-32). An entry is kept for the retention time after the offer, the beginning or the end of its validity, whichever
is last (INVK-11, INVK-12), so that a late call gets "expired", not "unknown". A registry above its limit drops the
oldest entries outside a validity window, then, with a warning, the oldest of the others (INVK-13, OPEN-30).

Documents are stored once, by digest: definitions for all identities, the inputs of an evaluation for its identity. A
document is deleted with the last entry that refers to it. Sweeps also check each document from time to time, because
its entries may have been replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from manglecp.base.digest import digest_bytes
from manglecp.store.database import Transaction
from manglecp.store.schema import SchemaPart

RETENTION_MS: Final = 300_000
CHECK_MS: Final = 900_000
"""The time between two checks whether a document is in use."""
MAX_ENTRIES: Final = 1_000_000
MAX_SWEEP: Final = 10_000
_MAX_MARKS: Final = 500  # databases limit the values of a statement

REGISTRY: Final = SchemaPart(
    "registry",
    (
        """
            CREATE TABLE registry_document (
                digest   TEXT PRIMARY KEY,
                check_ms BIGINT NOT NULL,
                content  {blob} NOT NULL
            ) {strict}
            """,
        "CREATE INDEX registry_document_check ON registry_document (check_ms)",
        """
            CREATE TABLE registry (
                identity      TEXT NOT NULL,
                macro_id      TEXT NOT NULL,
                chain_digest  TEXT NOT NULL,
                digest        TEXT NOT NULL,
                inputs        TEXT NOT NULL,
                not_before_ms BIGINT,
                expires_at_ms BIGINT,
                kept_ms       BIGINT NOT NULL,
                drop_ms       BIGINT NOT NULL,
                PRIMARY KEY (identity, macro_id)
            ) {clustered}
            """,
        "CREATE INDEX registry_drop ON registry (drop_ms)",
        "CREATE INDEX registry_of ON registry (digest)",
        "CREATE INDEX registry_from ON registry (inputs)",
        "CREATE INDEX registry_kept ON registry (kept_ms)",
    ),
)

# Equal inputs may have been sealed with another key, so the content is replaced.
_PUT_DOCUMENT: Final = """
    INSERT INTO registry_document (digest, check_ms, content) VALUES (?, ?, ?)
    ON CONFLICT (digest) DO UPDATE SET check_ms = excluded.check_ms, content = excluded.content
"""
# An id is the beginning of a chain digest; another digest under the same id never replaces an offer.
_PUT: Final = """
    INSERT INTO registry
        (identity, macro_id, chain_digest, digest, inputs, not_before_ms, expires_at_ms, kept_ms, drop_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (identity, macro_id) DO UPDATE SET digest = excluded.digest, inputs = excluded.inputs,
        not_before_ms = excluded.not_before_ms, expires_at_ms = excluded.expires_at_ms,
        kept_ms = excluded.kept_ms, drop_ms = excluded.drop_ms
        WHERE registry.chain_digest = excluded.chain_digest
"""
_FIND: Final = """
    SELECT macro_id, chain_digest, definition.content, inputs, given.content, not_before_ms, expires_at_ms
    FROM registry
    JOIN registry_document AS definition ON definition.digest = registry.digest
    JOIN registry_document AS given ON given.digest = registry.inputs
    WHERE identity = ? AND macro_id = ? AND registry.drop_ms > ?
"""
_ENTRIES: Final = "SELECT macro_id, digest, drop_ms, inputs FROM registry WHERE identity = ? AND macro_id IN ({marks})"
_DROP: Final = """
    DELETE FROM registry WHERE (identity, macro_id) IN (
        SELECT identity, macro_id FROM registry WHERE drop_ms <= ? LIMIT ?)
    RETURNING digest, inputs
"""
_CHECK: Final = """
    UPDATE registry_document SET check_ms = ? WHERE digest IN (
        SELECT digest FROM registry_document WHERE check_ms <= ? LIMIT ?)
    RETURNING digest
"""
_EVICT: Final = """
    DELETE FROM registry WHERE (identity, macro_id) IN (
        SELECT identity, macro_id FROM registry
        WHERE {which} ORDER BY kept_ms, identity, macro_id LIMIT ?)
    RETURNING digest, inputs
"""
_OUTSIDE: Final = "(expires_at_ms IS NULL OR expires_at_ms <= ?)"
_INSIDE: Final = "expires_at_ms > ?"
_DROP_UNUSED: Final = """
    DELETE FROM registry_document
    WHERE digest IN ({marks})
        AND NOT EXISTS (SELECT 1 FROM registry WHERE registry.digest = registry_document.digest)
        AND NOT EXISTS (SELECT 1 FROM registry WHERE registry.inputs = registry_document.digest)
"""

_log: Final = logging.getLogger(__name__)


class StoredOffer(NamedTuple):
    """An offered tool: its definition, and what it was proven from. Both are opaque to the store."""

    macro_id: str
    chain_digest: str
    document: bytes
    inputs_digest: str
    """The key of ``inputs``; different for each identity."""
    inputs: bytes
    not_before_ms: int | None
    expires_at_ms: int | None


class OfferSweep(NamedTuple):
    dropped: int
    """Past their retention."""
    evicted: int
    """Earlier, because the registry was full."""
    evicted_inside: int
    """Before their validity ended."""
    more: bool
    """Whether to sweep again, after other writers had access."""


class Registry:
    """Operations of the registry, each inside the caller's transaction."""

    __slots__ = ()

    def keep(
        self,
        tx: Transaction,
        identity: str,
        tools: Iterable[StoredOffer],
        *,
        now_ms: int,
        retention_ms: int = RETENTION_MS,
    ) -> None:
        documents: dict[str, bytes] = {}
        entries: dict[str, tuple[object, ...]] = {}
        for tool in tools:
            digest = digest_bytes(tool.document)
            drop_ms = max(now_ms, tool.not_before_ms or 0, tool.expires_at_ms or 0) + retention_ms
            documents |= {digest: tool.document, tool.inputs_digest: tool.inputs}
            entries[tool.macro_id] = (
                *(identity, tool.macro_id, tool.chain_digest, digest, tool.inputs_digest),
                *(tool.not_before_ms, tool.expires_at_ms, now_ms, drop_ms),
            )
        # One lock order for all writers prevents deadlocks.
        tx.executemany(_PUT_DOCUMENT, [(key, now_ms + CHECK_MS, documents[key]) for key in sorted(documents)])
        tx.executemany(_PUT, [entries[macro_id] for macro_id in sorted(entries)])

    def find(self, tx: Transaction, identity: str, macro_id: str, now_ms: int) -> StoredOffer | None:
        """Return an offer to this identity, whether valid now or not."""
        row = tx.execute(_FIND, (identity, macro_id, now_ms)).fetchone()
        return None if row is None else StoredOffer(*row)

    def entries(self, tx: Transaction, identity: str, macro_ids: Sequence[str]) -> dict[str, tuple[str, int, str]]:
        """Return the digest, the earliest deletion time and the inputs digest of the tools that are registered."""
        marks = ", ".join("?" * len(macro_ids))
        rows = tx.execute(_ENTRIES.format(marks=marks), (identity, *macro_ids)).fetchall()
        return {macro_id: (digest, drop_ms, inputs) for macro_id, digest, drop_ms, inputs in rows}

    def sweep(self, tx: Transaction, now_ms: int, most: int = MAX_ENTRIES, *, at_once: int = MAX_SWEEP) -> OfferSweep:
        """Delete entries past their retention, then evict those above ``most``; at most ``at_once`` entries."""
        if tx.dialect == "postgresql":
            # No writer may register a tool while its documents are tested for use.
            tx.execute("LOCK TABLE registry_document IN SHARE ROW EXCLUSIVE MODE")
        rows = tx.execute(_DROP, (now_ms, at_once)).fetchall()
        checked = tx.execute(_CHECK, (now_ms + CHECK_MS, now_ms, at_once)).fetchall()
        _drop_unused(tx, [*rows, *checked])
        dropped = len(rows)
        if at_once in (dropped, len(checked)):
            return OfferSweep(dropped, 0, 0, more=True)
        excess = tx.execute("SELECT count(*) FROM registry").fetchone()[0] - most
        room = min(excess, at_once - dropped)
        evicted = self._evict(tx, _OUTSIDE, now_ms, room)
        inside = self._evict(tx, _INSIDE, now_ms, room - evicted)
        if inside:
            _log.warning(
                "the registry has room for %d macro-tools: %d were dropped before their validity ended", most, inside
            )
        return OfferSweep(dropped, evicted + inside, inside, more=evicted + inside < excess)

    def _evict(self, tx: Transaction, which: str, now_ms: int, count: int) -> int:
        if count <= 0:
            return 0
        rows = tx.execute(_EVICT.format(which=which), (now_ms, count)).fetchall()
        _drop_unused(tx, rows)
        return len(rows)


def _drop_unused(tx: Transaction, rows: Iterable[Sequence[str]]) -> None:
    digests = sorted({digest for row in rows for digest in row})
    for start in range(0, len(digests), _MAX_MARKS):
        some = digests[start : start + _MAX_MARKS]
        tx.execute(_DROP_UNUSED.format(marks=", ".join("?" * len(some))), some)
