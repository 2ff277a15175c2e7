"""Authentication: from credentials in the headers of a request to identities.

The operator decides whether clients without a credential are served. The pack's policy rules decide what such clients
may do: the rules see the fact ``client_trust("anonymous")``. The client on the server's standard streams is the local
user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from manglecp.intent import Identity
from manglecp.wire import API_KEY_HEADER

_API_KEY: Final = API_KEY_HEADER.lower().encode()
CREDENTIAL_HEADERS: Final = frozenset({b"authorization", _API_KEY})
_MAX_CREDENTIAL_BYTES: Final = 8_192

LOCAL: Final = Identity("local", frozenset({"explain_policy"}), "local")
"""The local user, who owns the process (requirement TRANS-28)."""


class Credential(NamedTuple):
    """The credential of a request: a token or an API key, and its scheme."""

    scheme: str
    """``bearer``, ``oauth2`` or ``api_key``; empty, which no method accepts, if the credential is malformed."""
    token: str


class Auth(Protocol):
    """A method of authentication. It is called on the event loop: slow work belongs in a thread."""

    @property
    def required(self) -> bool:
        """Whether requests without a credential are refused."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """The accepted schemes of ``bearer``, ``oauth2`` and ``api_key``; the manifest lists them."""

    @property
    def token_url(self) -> str | None:
        """The URL at which clients get tokens, for ``oauth2`` (SEC-11)."""

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        """Return the identity of a valid token or API key, else None."""


class OpenAuth:
    """No authentication: clients are anonymous or, on standard streams, local."""

    required: Final = False
    schemes: Final[tuple[str, ...]] = ()
    token_url: Final[str | None] = None

    async def identify(self, scheme: str, credential: str) -> Identity | None:  # noqa: ARG002
        return None


class CombinedAuth:
    """Several methods of authentication; the first that accepts a credential decides."""

    required: Final = True

    def __init__(self, methods: Sequence[Auth]) -> None:
        self._methods = tuple(methods)

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(scheme for method in self._methods for scheme in method.schemes))

    @property
    def token_url(self) -> str | None:
        return next((method.token_url for method in self._methods if method.token_url is not None), None)

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        for method in self._methods:
            if scheme in method.schemes and (identity := await method.identify(scheme, credential)) is not None:
                return identity
        return None


def credential_of(headers: Mapping[bytes, bytes], auth: Auth) -> Credential | None:
    """Return the credential of a request (SEC-10, SEC-12), or None. Two credentials count as malformed."""
    authorization, api_key = headers.get(b"authorization"), headers.get(_API_KEY)
    if authorization is None and api_key is None:
        return None
    has_both = authorization is not None and api_key is not None
    if has_both or len(authorization or api_key or b"") > _MAX_CREDENTIAL_BYTES:
        return Credential("", "")
    if api_key is not None:
        return Credential("api_key", api_key.decode("latin-1"))
    assert authorization is not None
    http_scheme, _, token = authorization.decode("latin-1").partition(" ")
    if http_scheme.lower() != "bearer":
        return Credential("", "")
    # OAuth 2.0 tokens are sent as Bearer, too: they are "oauth2" only if no method accepts "bearer".
    return Credential("bearer" if "bearer" in auth.schemes else "oauth2", token.strip())


def challenge(code: str | None, metadata_url: str | None) -> bytes:
    """Return the value of WWW-Authenticate (RFC 6750, RFC 9728) for a reply with the error ``code``."""
    parts = ['realm="manglecp"']
    if code == "auth_invalid":
        parts.append('error="invalid_token"')
    if metadata_url is not None:
        parts.append(f'resource_metadata="{metadata_url}"')
    return ("Bearer " + ", ".join(parts)).encode("latin-1")
