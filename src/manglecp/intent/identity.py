"""The identity of a caller. Rules see it as ``client(Name)``, ``client_permission(P)`` and ``client_trust(Level)``.

A module of its own, and light: a server that authenticates needs it before the engine is loaded.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Identity(NamedTuple):
    """Found by the server from a credential, never taken from a request."""

    name: str = "anonymous"
    permissions: frozenset[str] = frozenset()
    trust: str = "anonymous"

    @property
    def anonymous(self) -> bool:
        """Whether the caller is not authenticated."""
        return self.trust == "anonymous"


ANONYMOUS: Final = Identity()
