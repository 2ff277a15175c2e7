"""Who asks. Rules see it as ``client(Name)``, ``client_permission(P)`` and ``client_trust(Level)``."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ANONYMOUS", "Identity"]


class Identity(NamedTuple):
    """Found by the server from a credential, never taken from a request."""

    name: str = "anonymous"
    permissions: frozenset[str] = frozenset()
    trust: str = "anonymous"

    @property
    def anonymous(self) -> bool:
        """Did nobody say who asks?"""
        return self.trust == "anonymous"


ANONYMOUS: Final = Identity()
