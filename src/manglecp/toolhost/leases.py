"""Leases: tokens that permit one call, once, for a while.

Whoever dispatches a call holds the key of the host and mints a token for exactly that call: this action, these input
bytes, this call id, at most this tier, until this moment. The host got the same key when it started, so it can tell a
token that was minted from one that was made up, and needs no memory of what was minted: only of what was used. Writing
to the pipe of a host is therefore not enough to have it do anything.

A token is ``lease_<claims>.<mac>``, both base64url: the claims as a JSON array of fixed order, and HMAC-SHA256 over
their text as it stands in the token, so that nothing of a forged one is ever decoded. Its time is that of
CLOCK_MONOTONIC, which all processes of a machine share and nobody can set back.

A refusal has one of six reasons, in the order in which they are looked for:

    not_found          not a token of this host
    expired            its time is over
    consumed           it has been used
    tool_mismatch      it is for another action
    input_mismatch     it is for other input, or for another call
    tier_insufficient  it permits less than the action does

A refused token is not used up, whatever the reason: a caller who guesses wrong cannot spoil the right call.
"""

from __future__ import annotations

import time
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Final, Literal, NamedTuple, TypeAlias

from manglecp.base.ids import random_id
from manglecp.toolhost.hashing import Mac, hex_digest, same
from manglecp.toolhost.short_json import reader

__all__ = ["MAX_TTL", "Audit", "LeaseBook", "Reason", "input_digest", "mint"]

MAX_TTL: Final = 300.0
"""Seconds. No token lives longer, whoever asks."""

Reason: TypeAlias = Literal["not_found", "expired", "consumed", "tool_mismatch", "input_mismatch", "tier_insufficient"]
Audit: TypeAlias = Callable[[str, Mapping[str, object]], None]
"""Is told every grant, use and refusal: the name of the event, and its details. Never the token."""

_PREFIX: Final = "lease_"
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_decode: Final = reader()


class _Claims(NamedTuple):
    """What a token says, in the order in which it says it."""

    id: str
    expires: float
    aid: str
    input: str | None
    call: str | None
    tier: int


def input_digest(input_json: str) -> str:
    """What a lease binds: SHA-256 of the very bytes that the action is run on."""
    return hex_digest(input_json.encode("utf-8", "surrogatepass"))


def mint(
    key: bytes,
    *,
    aid: str,
    input_digest: str | None,
    call_id: str | None,
    tier: int,
    ttl: float,
    clock: Callable[[], float] = time.monotonic,
    audit: Audit | None = None,
) -> str:
    """A new token for one call, good for ``ttl`` seconds and never for more than :data:`MAX_TTL`.

    The tokens of upstream know neither input nor call; None stands for "any" where one of those is wanted.
    """
    if not 0 <= ttl < float("inf"):  # which NaN is not either
        raise ValueError(f"ttl is {ttl}: seconds are expected, 0 or more")
    lease, expires = random_id(), clock() + min(ttl, MAX_TTL)
    if audit is not None:
        audit("lease_granted", {"lease": lease, "aid": aid, "call_id": call_id, "tier": tier, "expires": expires})
    payload = f'["{lease}",{expires!r},{_quoted(aid)},{_quoted(input_digest)},{_quoted(call_id)},{tier}]'
    claims = _base64url(payload.encode("ascii"))
    return f"{_PREFIX}{claims.decode('ascii')}.{_mac(key, claims)}"


def _quoted(text: str | None) -> str:
    """As JSON. An encoder would be made anew for every token, and take longer than all the rest."""
    return "null" if text is None else encode_basestring_ascii(text)


class LeaseBook:
    """What one host knows about its leases: the key, and which tokens were used."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time.monotonic, audit: Audit | None = None) -> None:
        self._key = key
        self._clock = clock
        self._audit = audit
        self._used: dict[str, float] = {}
        """Until when a used token has to be remembered: afterwards it is refused as expired."""

    def check(self, token: str, aid: str, input_digest: str, call_id: str, tier: int) -> Reason | None:
        """Use the token for this call. None if it is good, and then it never is again; else why it is refused."""
        claims, now = _open(self._key, token), self._clock()
        reason = "not_found" if claims is None else self._refusal(claims, now, aid, input_digest, call_id, tier)
        if claims is not None and reason is None:
            self._remember(claims, now)
        if self._audit is not None:
            details: dict[str, object] = {"aid": aid, "call_id": call_id, "tier": tier}
            if claims is not None:
                details["lease"] = claims.id
            if reason is not None:
                details["reason"] = reason
            self._audit("lease_used" if reason is None else "lease_refused", details)
        return reason

    def _refusal(
        self, claims: _Claims, now: float, aid: str, input_digest: str, call_id: str, tier: int
    ) -> Reason | None:
        if claims.expires <= now:
            return "expired"
        if claims.id in self._used:
            return "consumed"
        if claims.aid != aid:
            return "tool_mismatch"
        if claims.input not in (None, input_digest) or claims.call not in (None, call_id):
            return "input_mismatch"
        if claims.tier < tier:
            return "tier_insufficient"
        return None

    def _remember(self, claims: _Claims, now: float) -> None:
        while self._used:
            oldest = next(iter(self._used))
            if self._used[oldest] > now:
                break
            del self._used[oldest]
        self._used[claims.id] = claims.expires


_keyed: Final = lru_cache(maxsize=64)(Mac)
"""One for each host that is up, and a few that were."""


def _mac(key: bytes, claims: bytes) -> str:
    return _base64url(_keyed(key)(claims)).decode("ascii")


def _base64url(data: bytes) -> bytes:
    return b2a_base64(data, newline=False).translate(_TO_URL).rstrip(b"=")


def _open(key: bytes, token: str) -> _Claims | None:
    """The claims of a token that was minted with this key. Nothing of any other is looked at."""
    text, dot, mac = token.removeprefix(_PREFIX).partition(".")
    if not dot or not token.startswith(_PREFIX) or not token.isascii():
        return None
    claims = text.encode("ascii")
    if not same(_mac(key, claims), mac):
        return None
    return _Claims(*_decode(a2b_base64(claims.translate(_FROM_URL) + b"=" * (-len(claims) % 4)).decode()))
