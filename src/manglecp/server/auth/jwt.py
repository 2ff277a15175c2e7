"""Access tokens of an authorization server; this server is a resource server only (OAuth 2.1, RFC 9068).

A valid token is signed with a key of the issuer by a configured algorithm, is issued for this resource (``aud``) by
this issuer (``iss``), and has not expired. A token has no influence on its validation: URLs of keys in it are ignored,
and its ``alg`` must be a configured one. Tokens are never forwarded.

Keys are fetched in a thread and cached. They are fetched again after five minutes, and for a token with an unknown key,
but at most every half minute. A token with a known key waits for the fetch only if the keys are older than an hour.
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

from manglecp.base.text import escape_invisible
from manglecp.intent import Identity
from manglecp.server.auth_config import ResourceMetadata
from manglecp.server.binding import is_loopback

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric algorithms: the key that validates a token cannot sign one."""
_WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})  # values of ``typ`` in tokens, in lower case
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_RESERVED: Final = frozenset({"anonymous", "local"})  # identities without a credential
_MAX_SECONDS: Final = 1 << 53  # limit of times since 1970: larger integers are not exact as floats
_LEEWAY_SECONDS: Final = 30  # tolerated difference between the clocks of issuer and server
_FRESH_SECONDS: Final = 300.0  # age after which keys are fetched again in the background
_OLD_SECONDS: Final = 3_600.0  # age after which tokens wait for the fetch
_FETCH_INTERVAL_SECONDS: Final = 30.0
_FETCH_TIMEOUT_SECONDS: Final = 5.0  # the longest pause between two parts of a response
_WAIT_SECONDS: Final = 10.0
"""The time limit for a whole fetch: a response that arrives in small parts never reaches the time-out above."""
_MAX_KEYS_BYTES: Final = 1 << 20
_log = logging.getLogger(__name__)

Keys = Mapping[str | None, jwt.PyJWK]  # by key id (``kid``)


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings:
    """The issuer of accepted tokens, and how they are validated. Raises ValueError for an invalid setting."""

    issuer: str
    audience: str
    """The URL that stands for this resource in tokens (RFC 8707)."""
    keys: str
    """The URL of the issuer's keys."""
    token_url: str
    """The URL at which clients get tokens, for the manifest (requirement SEC-11)."""
    algorithms: Collection[str] = ("RS256", "ES256")
    permissions: str = "scope"
    """The name of the claim with the permissions: a list, or a text separated by spaces."""
    trust: str = "user"
    """The trust level of the identities."""

    def __post_init__(self) -> None:
        unknown = set(self.algorithms) - set(ALGORITHMS)
        if unknown or not self.algorithms:
            raise ValueError(f"the algorithms of access tokens must be some of {', '.join(ALGORITHMS)}")
        for name in ("issuer", "audience", "keys", "token_url"):
            parts = urlsplit(getattr(self, name))
            is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
            if not is_safe or not parts.hostname or parts.fragment:
                raise ValueError(f"{name} of access tokens must be an https address, or an address of this machine")

    @property
    def metadata(self) -> ResourceMetadata:
        parts = urlsplit(self.audience)
        document = {
            "resource": self.audience,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
        }
        url = f"{parts.scheme}://{parts.netloc}{_WELL_KNOWN}{parts.path.rstrip('/')}"
        return ResourceMetadata(url, json.dumps(document, separators=(",", ":")).encode())


class JwtAuth:
    """Authentication by signed access tokens (:class:`manglecp.server.auth.Auth`)."""

    required: Final = True
    schemes: Final[tuple[str, ...]] = ("oauth2", "bearer")

    def __init__(
        self,
        settings: JwtSettings,
        *,
        reserved_names: Container[str] = (),
        clock: Callable[[], float] = time.time,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        """Refuse tokens whose subject is in ``reserved_names``: the identities of other authentication methods."""
        self._settings = settings
        self._reserved_names = reserved_names
        self._clock = clock
        self._fetch = fetch or _download
        self._keys: Keys = {}
        self._fetched_at = float("-inf")  # the time of the last successful fetch of the keys
        self._fetch_began_at = float("-inf")  # the time of the last attempt, successful or not
        self._fetch_task: asyncio.Task[None] | None = None

    @property
    def token_url(self) -> str | None:
        return self._settings.token_url

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        if scheme not in self.schemes or credential.count(".") != 2:  # header, claims and signature
            return None
        try:
            header: Mapping[str, Any] = jwt.get_unverified_header(credential)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        if str(header.get("typ", "JWT")).lower() not in _TYPES or header.get("alg") not in self._settings.algorithms:
            return None
        key = await self._find_key(header.get("kid"))
        return None if key is None else await asyncio.to_thread(self._validate, credential, key)

    def _validate(self, token: str, key: jwt.PyJWK) -> Identity | None:
        settings = self._settings
        try:
            claims = jwt.decode(
                token,
                key=key,
                algorithms=list(settings.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=_LEEWAY_SECONDS,
                # _identity_of verifies exp and nbf, by the clock of this object.
                options={"require": ["exp", "iss", "aud", "sub"], "verify_exp": False, "verify_nbf": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        return self._identity_of(claims)

    def _identity_of(self, claims: Mapping[str, Any]) -> Identity | None:
        """Return the identity in the claims; None if a claim is malformed, or the token is not valid now."""
        now, name = self._clock(), claims["sub"]
        expires, begins = claims["exp"], claims.get("nbf", 0)
        for value in (expires, begins):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MAX_SECONDS:
                return None  # NaN and infinity, too: such a token would never expire
        if now >= expires + _LEEWAY_SECONDS or now < begins - _LEEWAY_SECONDS:
            return None
        if not isinstance(name, str) or not _NAME.fullmatch(name) or escape_invisible(name) != name:
            return None  # two names that look alike in an approval or a log
        if name in _RESERVED or name in self._reserved_names:
            return None
        permissions = claims.get(self._settings.permissions, ())
        if isinstance(permissions, str):
            permissions = permissions.split()
        if not isinstance(permissions, list | tuple) or not all(isinstance(item, str) for item in permissions):
            return None
        expires_at = float(expires) + _LEEWAY_SECONDS
        return Identity(name, frozenset(permissions), self._settings.trust, expires_at=expires_at)

    async def _find_key(self, kid: Any) -> jwt.PyJWK | None:
        """Return the key with this id, after a fetch if that is due; None if the issuer has no such key."""
        if kid is not None and not isinstance(kid, str):
            return None
        now = self._clock()
        age, is_unknown = now - self._fetched_at, kid not in self._keys
        if (is_unknown or age >= _FRESH_SECONDS) and now - self._fetch_began_at >= _FETCH_INTERVAL_SECONDS:
            self._fetch_began_at = now
            self._fetch_task = asyncio.create_task(asyncio.to_thread(self._fetch_keys, now))
        if (is_unknown or age >= _OLD_SECONDS) and self._fetch_task is not None and not self._fetch_task.done():
            await asyncio.wait((self._fetch_task,), timeout=_WAIT_SECONDS)
        return self._keys.get(kid)

    def _fetch_keys(self, now: float) -> None:
        try:
            documents = json.loads(self._fetch(self._settings.keys))["keys"]
            keys = {document.get("kid"): key for document in documents if (key := _parse_key(document)) is not None}
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            _log.warning("the issuer's keys could not be fetched: %s", type(error).__name__)
            return
        self._keys, self._fetched_at = keys, now


def _parse_key(document: Mapping[str, Any]) -> jwt.PyJWK | None:
    """Return the key; None for a symmetric key, and for one of an unknown kind, which is ignored (RFC 7517)."""
    if document.get("use", "sig") != "sig" or document.get("kty") == "oct":
        return None
    try:
        return jwt.PyJWK(dict(document))
    except (jwt.PyJWTError, ValueError, TypeError, LookupError):
        return None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirects: keys are read from the configured URL only."""
        return


def _download(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=_FETCH_TIMEOUT_SECONDS) as response:
        data: bytes = response.read(_MAX_KEYS_BYTES + 1)
    if len(data) > _MAX_KEYS_BYTES:
        raise ValueError("the document of keys is too long")
    return data
