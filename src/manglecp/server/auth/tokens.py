"""Bearer tokens and API keys of the operator's clients: a TOML file with one ``[[token]]`` table for each hash.

Tokens are random, so that their hashes do not reveal them. An approver has a token of its own, with the permission
``approve``, which no agent holds. Permissions belong to the token, not to the identity: another token of the same
identity does not have them. A changed file is loaded within a second, so that removed tokens and permissions have no
effect any more. If the file is invalid, its previous content stays in use, and the error is logged.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from manglecp.intent import Identity
from manglecp.wire.messages import SIDE_EFFECTS

_MAX_TOKENS: Final = 1_000
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,126}[^\s\x00-\x1f\x7f])?")
_RESERVED: Final = frozenset({"anonymous", "local", "revoked"})
"""Identities and trust levels that no credential can have."""
_RELOAD_SECONDS: Final = 1.0
"""The interval of the checks whether the file has changed."""
_log = logging.getLogger(__name__)


class TokensError(Exception):
    """The file of tokens is invalid."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One ``[[token]]`` table of the file."""

    sha256: str
    """The hash of the token, hexadecimal."""
    identity: str
    permissions: frozenset[str] = frozenset()
    trust: str = "user"
    scheme: Literal["bearer", "api_key"] = "bearer"  # a bearer token is not accepted as an API key
    expires: datetime | None = None
    auto_confirm_effects: frozenset[str] = frozenset()
    """Effects that need no approval."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    token: Annotated[list[_Entry], msgspec.Meta(max_length=_MAX_TOKENS)] = []


@dataclass(frozen=True, slots=True)
class _Token:
    digest: bytes
    scheme: str
    identity: Identity
    expires_at: float | None  # seconds since 1970


class TokensFile:
    """Authentication by the tokens of a file (:class:`manglecp.server.auth.Auth`)."""

    required: Final = True
    token_url: Final[str | None] = None

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._loaded_fingerprint = _fingerprint(path)
        self._tokens = parse_tokens(path.name, read_tokens(path))
        self._checked_at = time.monotonic()
        self._logged_error: str | None = None

    @property
    def schemes(self) -> tuple[str, ...]:
        """The accepted schemes. API keys are accepted as bearer tokens, too (requirement SEC-12)."""
        has_api_keys = any(token.scheme == "api_key" for token in self._tokens)
        return ("bearer", "api_key") if has_api_keys else ("bearer",)

    def __contains__(self, name: object) -> bool:
        """Return whether the file has a token of the identity with this name."""
        return any(token.identity.name == name for token in self._tokens)

    def current(self, identity: Identity) -> Identity:
        """Return the identity with the rights that its token has now: no rights if the token is not valid any more."""
        self._reload_if_due()
        tokens = (token for token in self._tokens if token.identity.credential == identity.credential)
        token = next(tokens, None)
        # The operator may have given the same token to another identity.
        if token is None or token.identity.name != identity.name or not self._is_valid(token):
            return identity.revoke()
        return token.identity

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        self._reload_if_due()
        digest = hashlib.sha256(credential.encode("utf-8", "surrogatepass")).digest()
        match: _Token | None = None
        for token in self._tokens:  # the loop continues after a match: its time does not reveal which token matches
            if hmac.compare_digest(token.digest, digest):
                match = token
        if match is None or scheme not in (match.scheme, "bearer"):  # an API key is a bearer token, too (SEC-12)
            return None
        return match.identity if self._is_valid(match) else None

    def _is_valid(self, token: _Token) -> bool:
        return token.expires_at is None or self._clock() < token.expires_at

    def _reload_if_due(self) -> None:
        if time.monotonic() - self._checked_at >= _RELOAD_SECONDS:
            self.reload()

    def reload(self, *, force: bool = False) -> bool:
        """Read the file if it has changed, or with ``force`` always. Return whether the tokens changed."""
        self._checked_at = time.monotonic()
        before = self._tokens
        try:
            fingerprint = _fingerprint(self._path)
            if fingerprint == self._loaded_fingerprint and not force:
                return False
            self._loaded_fingerprint = fingerprint
            self._tokens = parse_tokens(self._path.name, read_tokens(self._path))
        except TokensError as error:
            if str(error) != self._logged_error or force:  # log the same error only once
                _log.error("the file of tokens cannot be reloaded, and its previous content is used: %s", error)
            self._logged_error = str(error)
            return False
        self._logged_error = None
        _log.info("the file of tokens is reloaded: it has %d tokens", len(self._tokens))
        return self._tokens != before


def _fingerprint(path: Path) -> tuple[int, int, int]:
    """Return the identity of the file's content: at least one value differs after a change. Raises TokensError."""
    try:
        status = path.stat()
    except OSError as error:
        raise TokensError(f"{path.name} cannot be read: {error.strerror}") from None
    return status.st_ino, status.st_size, status.st_mtime_ns


def read_tokens(path: Path) -> str:
    """Return the text of a file of tokens. Raises TokensError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokensError(f"{path.name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TokensError(f"{path.name} is not TOML: {error}") from None


def parse_tokens(name: str, text: str) -> tuple[_Token, ...]:
    """Return the tokens in the text of the file ``name``. Raises TokensError."""
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise TokensError(f"{name} is not TOML: {error}") from None
    try:
        entries = msgspec.convert(document, _File).token
    except msgspec.ValidationError as error:
        raise TokensError(f"{name}: {error}") from None
    tokens = tuple(_parse_token(entry, f"{name}, token {number}") for number, entry in enumerate(entries, 1))
    if len({token.digest for token in tokens}) < len(tokens):
        raise TokensError(f"{name} has the same token twice")
    return tokens


def _parse_token(entry: _Entry, location: str) -> _Token:
    if not _HASH.fullmatch(entry.sha256):
        raise TokensError(f"{location}: sha256 must have 64 hexadecimal digits in lower case")
    for key in ("identity", "trust"):
        if not _NAME.fullmatch(name := getattr(entry, key)) or name in _RESERVED:
            names = ", ".join(sorted(_RESERVED))
            raise TokensError(f"{location}: {key} must be a name of at most 128 characters, other than {names}")
    if not all(map(_NAME.fullmatch, entry.permissions)):
        raise TokensError(f"{location}: permissions must be a list of names")
    effects = sorted(entry.auto_confirm_effects)
    if unknown := [name for name in effects if name not in SIDE_EFFECTS and not name.startswith("x-")]:
        raise TokensError(f"{location}: {unknown[0]} is not an effect; effects are {', '.join(SIDE_EFFECTS)}")
    expires = entry.expires
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    return _Token(
        digest=bytes.fromhex(entry.sha256),
        scheme=entry.scheme,
        identity=Identity(
            entry.identity, entry.permissions, entry.trust, credential=entry.sha256, auto_confirm_effects=tuple(effects)
        ),
        expires_at=None if expires is None else expires.timestamp(),
    )
