"""Who may ask, as it was said on the command line.

The first manifest says which credentials are taken, and is told at once: what takes long to load is loaded for who
needs it, and of credentials only the kinds that are in use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from manglecp.wire.messages import UNSET, Auth as AuthDescription

if TYPE_CHECKING:
    from manglecp.invoke import AutoConfirm, Secrets
    from manglecp.server.auth import Auth
    from manglecp.server.auth.tokens import TokensFile

__all__ = ["Who", "described"]


@dataclass(frozen=True, slots=True)
class Who:
    """Who may ask, and what that brings with it; by default everybody."""

    auth: Auth | None = None
    secrets: Secrets | None = field(default=None, repr=False)
    auto_confirm: AutoConfirm | None = None
    metadata: tuple[str, bytes] | None = None
    tokens: TokensFile | None = None

    @classmethod
    def of(cls, tokens: Path | None, jwt: dict[str, object] | None) -> Who:
        """Those with a token of this file, or with an access token as it is said here; one of the two is given."""
        from manglecp.invoke import Secrets
        from manglecp.server.auth.several import Several
        from manglecp.server.auth.tokens import TokensFile

        ways: list[Auth] = []
        file = None if tokens is None else TokensFile(tokens)
        if file is not None:
            ways.append(file)
        metadata = None
        if jwt is not None:
            from manglecp.server.auth.jwt import JwtAuth, JwtSettings

            settings = JwtSettings(**jwt)  # type: ignore[arg-type]
            metadata = settings.metadata
            ways.append(JwtAuth(settings, taken=() if file is None else file.names))
        return cls(
            ways[0] if len(ways) == 1 else Several(ways),
            # Whoever comes over a network confirms with a secret of their own, or not at all.
            Secrets() if file is None else file.secrets(),
            None if file is None else file.auto_confirm(),
            metadata,
            file,
        )


def described(auth: Auth | None) -> AuthDescription:
    """What the manifest says of it."""
    if auth is None:
        return AuthDescription(required=False)
    return AuthDescription(required=auth.required, schemes=auth.schemes or UNSET, token_url=auth.token_url or UNSET)
