"""Bearer tokens and API keys that whoever runs the server has given out: a file with their hashes.

    [[token]]
    sha256 = "…"                      # of the token, in hexadecimal digits
    identity = "ann"
    permissions = ["explain_policy"]  # optional, as the rest is
    trust = "user"
    scheme = "api_key"                # "bearer" unless it says so; a bearer token is no API key
    expires = 2027-01-01T00:00:00Z
    confirmation_secret = "…"         # hexadecimal, 32 bytes or more
    auto_confirm_effects = ["network"]

Whoever reads the file can use no token, for each has so much chance in it that its hash gives nothing away; the
confirmation secrets are secrets, so the file is nobody else's. It is read again when it has changed, and everything in
it counts at once: a token that was taken out holds no longer, nor does a secret or a waiver that was. A broken edit
leaves what held before, and is told.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import stat
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from manglecp.intent import Identity
from manglecp.invoke import AutoConfirm, Secrets
from manglecp.wire.messages import SIDE_EFFECTS

__all__ = ["TokensError", "TokensFile"]

MOST: Final = 1_000
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,126}[^\s\x00-\x1f\x7f])?")
_OURS: Final = frozenset({"anonymous", "local"})
"""Names and trust that nobody gets by a credential."""
_LEAST_SECRET: Final = 32
_LOOK: Final = 1.0
"""Seconds between two looks at whether the file has changed."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


class TokensError(Exception):
    """What is wrong with the file."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str
    identity: str
    permissions: frozenset[str] = frozenset()
    trust: str = "user"
    scheme: Literal["bearer", "api_key"] = "bearer"
    expires: datetime | None = None
    confirmation_secret: str | None = None
    auto_confirm_effects: frozenset[str] = frozenset()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    token: Annotated[list[_Entry], msgspec.Meta(max_length=MOST)] = []


@dataclass(frozen=True, slots=True)
class _Token:
    digest: bytes
    scheme: str
    identity: Identity
    expires: float | None
    secret: bytes | None = field(repr=False)
    effects: frozenset[str]


class TokensFile:
    """Knows credentials by what stands in a file (:class:`manglecp.server.auth.Auth`)."""

    required: Final = True
    token_url: Final[str | None] = None

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._seen = _fingerprint(path)
        self._identities: dict[str, Identity] = {}
        self._secrets: dict[str, bytes] = {}
        self._effects: dict[str, frozenset[str]] = {}
        self._take(_read(path))
        self._looked = time.monotonic()
        self._told: str | None = None
        """What is wrong with the file now, as far as that was logged."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """A server that takes API keys takes bearer tokens too (SEC-12)."""
        keys = any(token.scheme == "api_key" for token in self._tokens)
        return ("bearer", "api_key") if keys else ("bearer",)

    # Mappings are updated in place: their holders always see the file as it is now.

    @property
    def names(self) -> Mapping[str, Identity]:
        """Identities by their names."""
        return self._identities

    def secrets(self) -> Secrets:
        return Secrets(self._secrets)

    def auto_confirm(self) -> AutoConfirm:
        """The effects that need no person."""
        return AutoConfirm(self._effects)

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        if time.monotonic() - self._looked >= _LOOK:
            self.look()
        given = hashlib.sha256(credential.encode("utf-8", "surrogatepass")).digest()
        found: _Token | None = None
        for token in self._tokens:  # all of them, however early one fits
            if hmac.compare_digest(token.digest, given):
                found = token
        if found is None or found.scheme != scheme:
            return None
        return None if found.expires is not None and self._clock() >= found.expires else found.identity

    def look(self, *, again: bool = False) -> bool:
        """Read the file if it has changed, or in any case; does something else hold now?"""
        self._looked = time.monotonic()
        before = self._tokens
        try:
            seen = _fingerprint(self._path)
            if seen == self._seen and not again:
                return False
            self._seen = seen
            self._take(_read(self._path))
        except TokensError as error:
            if str(error) != self._told or again:  # once for each edit
                _log.error("the file of tokens is not read again, and what it held before holds: %s", error)
            self._told = str(error)
            return False
        self._told = None
        _log.info("the file of tokens was read again: it has %d", len(self._tokens))
        return self._tokens != before

    def _take(self, tokens: tuple[_Token, ...]) -> None:
        self._tokens = tokens
        _update(self._identities, {one.identity.name: one.identity for one in tokens})
        _update(self._secrets, {one.identity.name: one.secret for one in tokens if one.secret is not None})
        _update(self._effects, {one.identity.name: one.effects for one in tokens if one.effects})


def _update(known: dict[str, T], new: dict[str, T]) -> None:
    """Replace the content of a mapping that other threads read: no entry that stays is missing meanwhile."""
    known.update(new)
    for name in known.keys() - new.keys():
        del known[name]


def _fingerprint(path: Path) -> tuple[int, int, int]:
    try:
        about = path.stat()
    except OSError as error:
        raise TokensError(f"{path.name} cannot be read: {error.strerror}") from None
    return about.st_ino, about.st_size, about.st_mtime_ns


def _read(path: Path) -> tuple[_Token, ...]:
    try:
        mode = path.stat().st_mode
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TokensError(f"{path.name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TokensError(f"{path.name} is no TOML: {error}") from None
    try:
        entries = msgspec.convert(document, _File).token
    except msgspec.ValidationError as error:
        raise TokensError(f"{path.name}: {error}") from None
    tokens = tuple(_token(entry, f"{path.name}, token {number}") for number, entry in enumerate(entries, 1))
    if stat.S_IMODE(mode) & 0o077 and any(token.secret is not None for token in tokens):
        raise TokensError(f"{path.name} holds secrets and is open to others; chmod 600 closes it")
    if len({token.digest for token in tokens}) < len(tokens):
        raise TokensError(f"{path.name} has the same token twice")
    _agree(tokens, path.name)
    return tokens


def _agree(tokens: tuple[_Token, ...], name: str) -> None:
    """Several tokens may be of one identity, which has one secret and one set of effects."""
    for wanted in ("secret", "effects"):
        found: dict[str, Any] = {}
        for token in tokens:
            value = getattr(token, wanted)
            if value and found.setdefault(token.identity.name, value) != value:
                raise TokensError(f"{name} gives {token.identity.name} two values of {wanted}")


def _token(entry: _Entry, where: str) -> _Token:
    if not _HASH.fullmatch(entry.sha256):
        raise TokensError(f"{where}: sha256 has 64 hexadecimal digits in small letters")
    for key in ("identity", "trust"):
        if not _NAME.fullmatch(name := getattr(entry, key)) or name in _OURS:
            names = ", ".join(sorted(_OURS))
            raise TokensError(f"{where}: {key} is a name of at most 128 characters, other than {names}")
    if not all(map(_NAME.fullmatch, entry.permissions)):
        raise TokensError(f"{where}: permissions is a list of names")
    effects = entry.auto_confirm_effects
    if unknown := sorted(one for one in effects if one not in SIDE_EFFECTS and not one.startswith("x-")):
        raise TokensError(f"{where}: {unknown[0]} is no effect; effects are {', '.join(SIDE_EFFECTS)}")
    expires = entry.expires
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    return _Token(
        digest=bytes.fromhex(entry.sha256),
        scheme=entry.scheme,
        identity=Identity(entry.identity, entry.permissions, entry.trust),
        expires=None if expires is None else expires.timestamp(),
        secret=_secret(entry.confirmation_secret, where),
        effects=effects,
    )


def _secret(given: str | None, where: str) -> bytes | None:
    if given is None:
        return None
    try:
        secret = bytes.fromhex(given)
    except ValueError:
        secret = b""
    if len(secret) < _LEAST_SECRET:
        raise TokensError(f"{where}: confirmation_secret has at least {2 * _LEAST_SECRET} hexadecimal digits")
    return secret
