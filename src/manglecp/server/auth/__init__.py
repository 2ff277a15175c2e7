"""Who asks: a credential becomes an identity, or nothing.

Whether a client that shows no credential may ask at all is the server's setting; what it may ask for is policy, which
sees ``client_trust("anonymous")``. Whoever starts the server and talks to it over its standard streams is the user of
this machine.
"""

from __future__ import annotations

from typing import Final, Protocol

from manglecp.intent import Identity

__all__ = ["LOCAL", "Auth", "OpenAuth"]

LOCAL: Final = Identity("local", frozenset({"explain_policy"}), "local")
"""The user of this machine, who owns the process (TRANS-28)."""


class Auth(Protocol):
    """What the core asks about credentials. Called on the event loop: whatever takes time is done in a thread."""

    @property
    def required(self) -> bool:
        """Is nobody answered without a credential?"""

    @property
    def schemes(self) -> tuple[str, ...]:
        """Of ``bearer``, ``oauth2`` and ``api_key``, those that are taken; the manifest lists them."""

    @property
    def token_url(self) -> str | None:
        """Where tokens come from, for ``oauth2`` (SEC-11)."""

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        """Whose credential it is; None for every one that does not hold, without telling why."""


class OpenAuth:
    """Nobody has a credential, and everybody is anonymous or, on this machine's streams, local."""

    required: Final = False
    schemes: Final[tuple[str, ...]] = ()
    token_url: Final[str | None] = None

    async def identify(self, scheme: str, credential: str) -> Identity | None:  # noqa: ARG002
        return None
