"""The configuration of authentication.

The first manifest is sent before the server is imported, and lists the accepted schemes. So this module imports the
implementations only when they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from manglecp.wire.messages import UNSET, Auth as AuthDescription

if TYPE_CHECKING:
    from manglecp.intent import Identity
    from manglecp.server.auth import Auth
    from manglecp.server.auth.tokens import TokensFile


class ResourceMetadata(NamedTuple):
    """The document that names the issuer of access tokens for this server (RFC 9728), and its URL."""

    url: str
    document: bytes


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """The method by which clients authenticate, and its data; ``auth`` is None if they do not authenticate."""

    auth: Auth | None = None
    metadata: ResourceMetadata | None = None
    """Set if access tokens are accepted."""
    tokens: TokensFile | None = None
    """Set if the tokens of a file are accepted."""

    @classmethod
    def of(cls, tokens: Path | None, jwt: dict[str, object] | None) -> AuthConfig:
        """Accept the tokens of a file, access tokens (``jwt``: fields of JwtSettings), or both; one is required."""
        from manglecp.server.auth import CombinedAuth
        from manglecp.server.auth.tokens import TokensFile

        file = None if tokens is None else TokensFile(tokens)
        methods: list[Auth] = [] if file is None else [file]
        metadata = None
        if jwt is not None:
            from manglecp.server.auth.jwt import JwtAuth, JwtSettings

            settings = JwtSettings(**jwt)  # type: ignore[arg-type]
            metadata = settings.metadata
            # ``name in file`` is whether an identity of the file has this name.
            methods.append(JwtAuth(settings, reserved_names=() if file is None else file))
        auth = methods[0] if len(methods) == 1 else CombinedAuth(methods)
        return cls(auth, metadata, file)

    def current(self, identity: Identity) -> Identity:
        """Return the identity with the rights that its credential has now.

        An access token has its rights until it expires. An anonymous client has no rights where a credential is
        required, for example in a run that began before the operator required one.
        """
        if self.auth is not None and self.auth.required and identity.anonymous:
            return identity.revoke()
        if identity.credential and self.tokens is not None:
            return self.tokens.current(identity)
        can_become_invalid = identity.credential or identity.expires_at is not None
        return identity.current_without_tokens() if can_become_invalid else identity


def describe_auth(auth: Auth | None) -> AuthDescription:
    """Return the ``auth`` member of the manifest."""
    if auth is None:
        return AuthDescription(required=False)
    return AuthDescription(required=auth.required, schemes=auth.schemes or UNSET, token_url=auth.token_url or UNSET)
