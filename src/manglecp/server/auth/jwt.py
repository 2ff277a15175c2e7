"""Access tokens of an authorization server: this one is a resource server and nothing more (OAuth 2.1, RFC 9068).

A token holds if it is signed with a key of the issuer by an algorithm that the settings name, is meant for exactly this
resource (``aud``), comes from exactly this issuer, and has not expired. Nothing that a token says decides how it is
checked: addresses of keys in it are not followed, and its ``alg`` is only compared. Tokens are never passed on.

Keys are fetched in a thread, kept, and fetched again after five minutes and when a token names one that is unknown,
though not more often than every half minute, however many such tokens come. A token of a known key does not wait for
that, unless the keys are older than an hour.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import urllib.request
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import jwt

from manglecp.intent import Identity
from manglecp.server.binding import is_loopback

__all__ = ["JwtAuth", "JwtSettings"]

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""With two keys each: nobody who can check a token can make one."""
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_OURS: Final = frozenset({"anonymous", "local"})
_LEEWAY: Final = 30
_FRESH: Final = 300.0
_OLD: Final = 3_600.0
"""Seconds after which known keys are not relied on before they were asked for again."""
_PAUSE: Final = 30.0
_FETCH_SECONDS: Final = 5.0
_PATIENCE: Final = 10.0
"""Seconds that a token of an unknown key is worth: an answer that trickles in has no end."""
_LARGEST_KEYS: Final = 1 << 20
_log = logging.getLogger(__name__)

Keys = Mapping[str | None, jwt.PyJWK]


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings:
    """Whose tokens are taken, and how they are read. ValueError says what cannot work."""

    issuer: str
    audience: str
    """The address of this resource, which tokens for it name (RFC 8707)."""
    keys: str
    """Where the issuer publishes its keys."""
    token_url: str
    """Where clients get tokens; the manifest says so (SEC-11)."""
    algorithms: Collection[str] = ("RS256", "ES256")
    permissions: str = "scope"
    """The claim with the permissions: a list, or a text with spaces in between."""
    trust: str = "user"

    def __post_init__(self) -> None:
        unknown = set(self.algorithms) - set(ALGORITHMS)
        if unknown or not self.algorithms:
            raise ValueError(f"algorithms of access tokens are some of {', '.join(ALGORITHMS)}")
        for name in ("issuer", "audience", "keys", "token_url"):
            parts = urlsplit(getattr(self, name))
            loopback = parts.scheme == "http" and is_loopback(parts.hostname or "")
            if not (parts.scheme == "https" or loopback) or not parts.hostname or parts.fragment:
                raise ValueError(f"{name} of access tokens is an https address, or one of this machine")

    @property
    def metadata(self) -> tuple[str, bytes]:
        """The address of the document about this resource, and the document (RFC 9728)."""
        parts = urlsplit(self.audience)
        document = {
            "resource": self.audience,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
        }
        address = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"
        return address, json.dumps(document, separators=(",", ":")).encode()


class JwtAuth:
    """Knows credentials by who signed them (:class:`manglecp.server.auth.Auth`)."""

    required: Final = True
    schemes: Final[tuple[str, ...]] = ("oauth2", "bearer")

    def __init__(
        self,
        settings: JwtSettings,
        *,
        taken: Container[str] = (),
        clock: Callable[[], float] = time.time,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        """``taken`` are names of others, which no token gives."""
        self._settings = settings
        self._taken = taken
        self._clock = clock
        self._fetch = fetch or _fetched
        self._keys: Keys = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._renewing: asyncio.Task[None] | None = None

    @property
    def token_url(self) -> str | None:
        return self._settings.token_url

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        if scheme not in self.schemes or credential.count(".") != 2:
            return None
        header = self._header(credential)
        key = None if header is None else await self._key(header.get("kid"))
        return None if key is None else await asyncio.to_thread(self._check, credential, key)

    def _header(self, token: str) -> Mapping[str, Any] | None:
        try:
            header: Mapping[str, Any] = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        fits = str(header.get("typ", "JWT")).lower() in _TYPES and header.get("alg") in self._settings.algorithms
        return header if fits else None

    def _check(self, token: str, key: jwt.PyJWK) -> Identity | None:
        settings = self._settings
        try:
            claims = jwt.decode(
                token,
                key=key,
                algorithms=list(settings.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_exp": False, "verify_nbf": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        return self._identity(claims)

    def _identity(self, claims: Mapping[str, Any]) -> Identity | None:
        now, name = self._clock(), claims["sub"]
        expires, begins = claims["exp"], claims.get("nbf", 0)
        if any(isinstance(one, bool) or not isinstance(one, int | float) for one in (expires, begins)):
            return None
        if now >= expires + _LEEWAY or now < begins - _LEEWAY:
            return None
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _OURS or name in self._taken:
            return None
        given = claims.get(self._settings.permissions, ())
        listed = given.split() if isinstance(given, str) else given
        if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
            return None
        return Identity(name, frozenset(listed), self._settings.trust)

    # --- keys --------------------------------------------------------------------------------------------------------

    async def _key(self, kid: Any) -> jwt.PyJWK | None:
        if kid is not None and not isinstance(kid, str):
            return None
        now = self._clock()
        age, unknown = now - self._fetched_at, kid not in self._keys
        if (unknown or age >= _FRESH) and now - self._tried_at >= _PAUSE:
            self._tried_at = now
            self._renewing = asyncio.create_task(asyncio.to_thread(self._renew, now))
        if (unknown or age >= _OLD) and self._renewing is not None and not self._renewing.done():
            await asyncio.wait((self._renewing,), timeout=_PATIENCE)
        return self._keys.get(kid)

    def _renew(self, now: float) -> None:
        try:
            listed = json.loads(self._fetch(self._settings.keys))["keys"]
            keys = {one.get("kid"): key for one in listed if (key := _usable(one)) is not None}
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            _log.warning("the issuer's keys could not be fetched: %s", type(error).__name__)
            return
        self._keys, self._fetched_at = keys, now


def _usable(one: Mapping[str, Any]) -> jwt.PyJWK | None:
    """A key of a kind that is not known here leaves the others as they are (RFC 7517, section 5)."""
    if one.get("use", "sig") != "sig" or one.get("kty") == "oct":
        return None
    try:
        return jwt.PyJWK(dict(one))
    except (jwt.PyJWTError, ValueError, TypeError, LookupError):
        return None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Keys are where the settings say."""
        return


def _fetched(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=_FETCH_SECONDS) as answer:
        data: bytes = answer.read(_LARGEST_KEYS + 1)
    if len(data) > _LARGEST_KEYS:
        raise ValueError("the document of keys is too long")
    return data
