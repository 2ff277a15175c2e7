"""Authentication: credentials in the headers of a request, and the identities that they stand for.

Whether clients without a credential are served is a setting of the server; what they may do is policy, which sees
``client_trust("anonymous")``. The client on the server's standard streams is the user of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from manglecp.intent import Identity
from manglecp.wire import API_KEY_HEADER

__all__ = ["LOCAL", "Auth", "CombinedAuth", "OpenAuth", "challenge", "credential_of"]

_API_KEY: Final = API_KEY_HEADER.lower().encode()
_LONGEST: Final = 8_192

LOCAL: Final = Identity("local", frozenset({"explain_policy"}), "local")
"""The user of this machine, who owns the process (TRANS-28)."""


class Auth(Protocol):
    """Checks credentials. Called on the event loop: slow work belongs into a thread."""

    @property
    def required(self) -> bool:
        """Whether requests without a credential are refused."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """Those of ``bearer``, ``oauth2`` and ``api_key`` that are accepted; the manifest lists them."""

    @property
    def token_url(self) -> str | None:
        """Where clients get tokens, for ``oauth2`` (SEC-11)."""

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        """Return the identity of a valid credential, else None."""


class OpenAuth:
    """No authentication: clients are anonymous or, on this machine's streams, local."""

    required: Final = False
    schemes: Final[tuple[str, ...]] = ()
    token_url: Final[str | None] = None

    async def identify(self, scheme: str, credential: str) -> Identity | None:  # noqa: ARG002
        return None


class CombinedAuth:
    """Several ways to authenticate; the first that accepts a credential decides."""

    required: Final = True

    def __init__(self, ways: Sequence[Auth]) -> None:
        self._ways = tuple(ways)

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(scheme for way in self._ways for scheme in way.schemes))

    @property
    def token_url(self) -> str | None:
        return next((way.token_url for way in self._ways if way.token_url is not None), None)

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        for way in self._ways:
            if scheme in way.schemes and (found := await way.identify(scheme, credential)) is not None:
                return found
        return None


def credential_of(headers: Mapping[bytes, bytes], auth: Auth) -> tuple[str, str] | None:
    """The scheme and the credential of a request (SEC-10, SEC-12), if it has one.

    A malformed credential, or more than one, is returned as an invalid credential.
    """
    given, key = headers.get(b"authorization"), headers.get(_API_KEY)
    if given is None and key is None:
        return None
    if (given is not None and key is not None) or len(given or key or b"") > _LONGEST:
        return "", ""
    if key is not None:
        return "api_key", key.decode("latin-1")
    assert given is not None
    kind, _, token = given.decode("latin-1").partition(" ")
    scheme = "bearer" if "bearer" in auth.schemes else "oauth2"
    return scheme if kind.lower() == "bearer" else "", token.strip()


def challenge(code: str | None, metadata_url: str | None) -> bytes:
    """The value of WWW-Authenticate (RFC 6750, RFC 9728)."""
    parts = ['realm="manglecp"']
    if code == "auth_invalid":
        parts.append('error="invalid_token"')
    if metadata_url is not None:
        parts.append(f'resource_metadata="{metadata_url}"')
    return ("Bearer " + ", ".join(parts)).encode("latin-1")
