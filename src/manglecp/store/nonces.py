"""Single-use nonces.

A nonce is used in the transaction that it authorises, so a failed use does not count. It is stored until its token has
expired; after that the expiry refuses it.
"""

from __future__ import annotations

from typing import Final

from manglecp.store.database import Transaction
from manglecp.store.schema import SchemaPart

NONCES: Final = SchemaPart(
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
    __slots__ = ()

    def burn(self, tx: Transaction, identity: str, nonce: str, expires_ms: int) -> bool:
        """Return False if this identity has used the nonce already. The caller has checked that it is not expired."""
        return tx.execute(_BURN, (identity, nonce, expires_ms)).rowcount == 1

    def sweep(self, tx: Transaction, now_ms: int) -> int:
        return tx.execute("DELETE FROM nonce WHERE expires_ms <= ?", (now_ms,)).rowcount
