"""Leases: signed single-use tokens, each for one call until an expiry.

Dispatch and a host share a key from the start of the host. With this key, dispatch mints a token for exactly one
call: action, input bytes, call id, highest tier, expiry. The host verifies a token with the key, so it stores only used
tokens. A process that can write to the pipe of a host, but has no token, cannot run an action.

A token is ``lease_<claims>.<mac>``, both base64url: the claims as a JSON array of fixed order, and HMAC-SHA256 over
their base64url text, so that the claims of a forged token are never decoded. Times are those of CLOCK_MONOTONIC, which
all processes of a machine share and which cannot be set back. A refused token is not spent.
"""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, Literal, NamedTuple, TypeAlias

from manglecp.base.ids import random_id

MAX_TTL: Final = 300.0  # seconds

Reason: TypeAlias = Literal["not_found", "expired", "consumed", "tool_mismatch", "input_mismatch", "tier_insufficient"]
"""Why a token is refused, in the order of the checks; ``not_found``: not minted with the key of this host."""
Audit: TypeAlias = Callable[[str, Mapping[str, object]], None]
"""Called with the name and the details of every grant, use and refusal; never with the token."""

_PREFIX: Final = "lease_"
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class _Claims(NamedTuple):
    id: str
    expires: float
    aid: str
    input_digest: str | None  # None: any input
    call_id: str | None  # None: any call
    tier: int  # the highest tier that the action may have


def input_digest(input_json: str) -> str:
    """Return the SHA-256 of the input bytes of an action."""
    return sha256(input_json.encode("utf-8", "surrogatepass")).hexdigest()


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
    """Return a new token for one call, valid for ``ttl`` seconds, at most :data:`MAX_TTL`.

    ``input_digest`` and ``call_id`` are None for clients of the C++ toolhost, whose tokens bind neither.
    """
    if not 0 <= ttl < float("inf"):  # refuses NaN, too
        raise ValueError(f"ttl is {ttl}: seconds are expected, 0 or more")
    lease, expires = random_id(), clock() + min(ttl, MAX_TTL)
    if audit is not None:
        audit("lease_granted", {"lease": lease, "aid": aid, "call_id": call_id, "tier": tier, "expires": expires})
    payload = _encode(_Claims(lease, expires, aid, input_digest, call_id, tier))
    claims = _base64url(payload.encode("ascii"))
    return f"{_PREFIX}{claims.decode('ascii')}.{_mac(key, claims)}"


class LeaseBook:
    """The leases of one host: its key, and the used tokens."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time.monotonic, audit: Audit | None = None) -> None:
        self._key = key
        self._clock = clock
        self._audit = audit
        self._used: dict[str, float] = {}  # expiries by lease id; an expired lease is refused without an entry

    def check(self, token: str, aid: str, input_digest: str, call_id: str, tier: int) -> Reason | None:
        """Use the token for this call, once; return None if it is valid, else the reason of the refusal."""
        claims, now = _verify(self._key, token), self._clock()
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
        """Return why these claims do not permit the call; None if they do."""
        if claims.expires <= now:
            return "expired"
        if claims.id in self._used:
            return "consumed"
        if claims.aid != aid:
            return "tool_mismatch"
        if claims.input_digest not in (None, input_digest) or claims.call_id not in (None, call_id):
            return "input_mismatch"  # also for another call id, because the contract has no separate reason
        if claims.tier < tier:
            return "tier_insufficient"
        return None

    def _remember(self, claims: _Claims, now: float) -> None:
        """Store a used lease, and drop the oldest ones as long as they are expired."""
        while self._used:
            oldest = next(iter(self._used))
            if self._used[oldest] > now:
                break
            del self._used[oldest]
        self._used[claims.id] = claims.expires


def _mac(key: bytes, claims: bytes) -> str:
    return _base64url(hmac.digest(key, claims, "sha256")).decode("ascii")


def _base64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _verify(key: bytes, token: str) -> _Claims | None:
    """Return the claims of a token that was minted with this key; None for others, without decoding them."""
    text, dot, mac = token.removeprefix(_PREFIX).partition(".")
    if not dot or not token.startswith(_PREFIX) or not token.isascii():
        return None
    claims = text.encode("ascii")
    if not hmac.compare_digest(_mac(key, claims), mac):
        return None
    return _Claims(*json.loads(urlsafe_b64decode(claims + b"=" * (-len(claims) % 4))))
