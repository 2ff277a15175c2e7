"""The configuration of authentication.

The first manifest is sent before the server is imported, and lists the accepted schemes. So this module imports the
implementations only when they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from manglecp.wire.messages import UNSET, Auth as AuthDescription

if TYPE_CHECKING:
    from manglecp.intent import Identity
    from manglecp.server.auth import Auth
    from manglecp.server.auth.tokens import TokensFile

__all__ = ["AuthConfig", "describe_auth"]


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """How clients authenticate, and what depends on it; without ``auth`` they do not authenticate."""

    auth: Auth | None = None
    metadata: tuple[str, bytes] | None = None
    """The URL and the content of the resource's metadata document (RFC 9728), for access tokens."""
    tokens: TokensFile | None = None

    @classmethod
    def of(cls, tokens: Path | None, jwt: dict[str, object] | None) -> AuthConfig:
        """Authenticate by a file of tokens, by access tokens (fields of JwtSettings), or both; one is required."""
        from manglecp.server.auth import CombinedAuth
        from manglecp.server.auth.tokens import TokensFile

        file = None if tokens is None else TokensFile(tokens)
        methods: list[Auth] = [] if file is None else [file]
        metadata = None
        if jwt is not None:
            from manglecp.server.auth.jwt import JwtAuth, JwtSettings

            settings = JwtSettings(**jwt)  # type: ignore[arg-type]
            metadata = settings.metadata
            methods.append(JwtAuth(settings, reserved_names=() if file is None else file))
        auth = methods[0] if len(methods) == 1 else CombinedAuth(methods)
        return cls(auth, metadata, file)

    def current(self, identity: Identity) -> Identity:
        """Return the identity with the rights that its credential has now.

        An access token contains its rights, and has them until it expires. An anonymous client has none where a
        credential is required, for example in a run that began before that.
        """
        if identity.anonymous and self.auth is not None and self.auth.required:
            return identity.revoke()
        if identity.credential and self.tokens is not None:
            return self.tokens.current(identity)
        return identity.current_without_tokens()


def describe_auth(auth: Auth | None) -> AuthDescription:
    """Return the ``auth`` member of the manifest."""
    if auth is None:
        return AuthDescription(required=False)
    return AuthDescription(required=auth.required, schemes=auth.schemes or UNSET, token_url=auth.token_url or UNSET)
