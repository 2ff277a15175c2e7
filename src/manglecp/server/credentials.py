"""Credentials in the headers of a request (SEC-10, SEC-12), and what a client that has none is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from manglecp.server.auth import Auth
from manglecp.server.sessions import Session
from manglecp.wire import API_KEY_HEADER

__all__ = ["challenge", "present"]

_API_KEY: Final = API_KEY_HEADER.lower().encode()
_LONGEST: Final = 8_192


def present(session: Session, headers: Mapping[bytes, bytes], auth: Auth) -> None:
    """Hand over the credential, if there is one. What is none, or more than one, is one that does not hold."""
    given, key = headers.get(b"authorization"), headers.get(_API_KEY)
    if given is None and key is None:
        return
    if (given is not None and key is not None) or len(given or key or b"") > _LONGEST:
        session.present("", "")
    elif key is not None:
        session.present("api_key", key.decode("latin-1"))
    elif given is not None:
        kind, _, token = given.decode("latin-1").partition(" ")
        scheme = "bearer" if "bearer" in auth.schemes else "oauth2"
        session.present(scheme if kind.lower() == "bearer" else "", token.strip())


def challenge(code: str | None, metadata_url: str | None) -> bytes:
    """The value of WWW-Authenticate (RFC 6750, RFC 9728)."""
    parts = ['realm="manglecp"']
    if code == "auth_invalid":
        parts.append('error="invalid_token"')
    if metadata_url is not None:
        parts.append(f'resource_metadata="{metadata_url}"')
    return ("Bearer " + ", ".join(parts)).encode("latin-1")
