"""Nonces: burned once, whichever process is first.

A nonce is burned in the transaction that does what it allows, so that a use that failed is none. It is kept until the
token that carries it has expired; after that the expiry refuses it.
"""

from __future__ import annotations

from typing import Final

from manglecp.store.database import Transaction
from manglecp.store.schema import Part

__all__ = ["NONCES", "Nonces"]

NONCES: Final = Part(
    "nonces",
    (
        """
            CREATE TABLE nonce (
                identity   TEXT NOT NULL,
                nonce      TEXT NOT NULL,
                expires_ms BIGINT NOT NULL,
                PRIMARY KEY (identity, nonce)
            ) {clustered}
            """,
        "CREATE INDEX nonce_expiry ON nonce (expires_ms)",
    ),
)

_BURN: Final = "INSERT INTO nonce (identity, nonce, expires_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


class Nonces:
    """Used ones are kept until they expire; nobody can use them after that anyway."""

    __slots__ = ()

    def burn(self, tx: Transaction, identity: str, nonce: str, expires_ms: int) -> bool:
        """False if this identity has used it already. The caller has made sure that it is not expired."""
        return tx.execute(_BURN, (identity, nonce, expires_ms)).rowcount == 1

    def sweep(self, tx: Transaction, now_ms: int) -> int:
        """Forget what has expired; how many that were."""
        return tx.execute("DELETE FROM nonce WHERE expires_ms <= ?", (now_ms,)).rowcount
