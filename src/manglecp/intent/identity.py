"""The identity of a caller, visible to rules as ``client``, ``client_permission`` and ``client_trust``.

A module of its own without heavy imports: authentication needs it before the engine is loaded.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Identity(NamedTuple):
    """An authenticated caller. Derived by the server from a credential, never taken from a request."""

    name: str = "anonymous"
    permissions: frozenset[str] = frozenset()
    trust: str = "anonymous"

    @property
    def anonymous(self) -> bool:
        return self.trust == "anonymous"


ANONYMOUS: Final = Identity()
