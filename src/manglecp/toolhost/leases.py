"""Leases: tokens that permit one call, once, for a while.

Whoever dispatches a call holds the key of the host and mints a token for exactly that call: this action, these input
bytes, this call id, at most this tier, until this moment. The host got the same key when it started, so it can tell a
token that was minted from one that was made up, and needs no memory of what was minted: only of what was used. Writing
to the pipe of a host is therefore not enough to have it do anything.

A token is ``lease_<claims>.<mac>``: the claims as canonical JSON and HMAC-SHA256 over them, both base64url. Its time is
that of CLOCK_MONOTONIC, which all processes of a machine share and nobody can set back.

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

import hmac
import json
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

__all__ = ["MAX_TTL", "Audit", "LeaseBook", "Reason", "input_digest", "mint"]

MAX_TTL: Final = 300.0
"""Seconds. No token lives longer, whoever asks."""

Reason: TypeAlias = Literal["not_found", "expired", "consumed", "tool_mismatch", "input_mismatch", "tier_insufficient"]
Audit: TypeAlias = Callable[[str, Mapping[str, object]], None]
"""Is told every grant, use and refusal: the name of the event, and its details. Never the token."""

_PREFIX: Final = "lease_"
_CLAIMS: Final = frozenset({"id", "aid", "input", "call", "tier", "expires"})


def input_digest(input_json: str) -> str:
    """What a lease binds: SHA-256 of the very bytes that the action is run on."""
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
    """A new token for one call, good for ``ttl`` seconds and never for more than :data:`MAX_TTL`.

    The tokens of upstream know neither input nor call; None stands for "any" where one of those is wanted.
    """
    claims = {
        "id": os.urandom(16).hex(),
        "aid": aid,
        "input": input_digest,
        "call": call_id,
        "tier": tier,
        "expires": clock() + min(ttl, MAX_TTL),
    }
    payload = json.dumps(claims, sort_keys=True, separators=(",", ":")).encode()
    if audit is not None:
        audit(
            "lease_granted",
            {"lease": claims["id"], "aid": aid, "call_id": call_id, "tier": tier, "expires": claims["expires"]},
        )
    return f"{_PREFIX}{_encode(payload)}.{_encode(_mac(key, payload))}"


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
        claims = _open(self._key, token)
        reason = "not_found" if claims is None else self._refusal(claims, aid, input_digest, call_id, tier)
        details: dict[str, object] = {"aid": aid, "call_id": call_id, "tier": tier}
        if claims is not None:
            details["lease"] = claims["id"]
        if reason is None and claims is not None:
            self._remember(claims)
        else:
            details["reason"] = reason
        if self._audit is not None:
            self._audit("lease_used" if reason is None else "lease_refused", details)
        return reason

    def _refusal(
        self, claims: Mapping[str, Any], aid: str, input_digest: str, call_id: str, tier: int
    ) -> Reason | None:
        if claims["expires"] <= self._clock():
            return "expired"
        if claims["id"] in self._used:
            return "consumed"
        if claims["aid"] != aid:
            return "tool_mismatch"
        if claims["input"] not in (None, input_digest) or claims["call"] not in (None, call_id):
            return "input_mismatch"
        if claims["tier"] < tier:
            return "tier_insufficient"
        return None

    def _remember(self, claims: Mapping[str, Any]) -> None:
        now = self._clock()
        while self._used:
            oldest = next(iter(self._used))
            if self._used[oldest] > now:
                break
            del self._used[oldest]
        self._used[claims["id"]] = claims["expires"]


def _mac(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, payload, "sha256")


def _open(key: bytes, token: str) -> Mapping[str, Any] | None:
    """The claims of a token that was minted with this key. Nothing of any other is looked at."""
    claims, dot, mac = token.removeprefix(_PREFIX).partition(".")
    if not token.startswith(_PREFIX) or not dot:
        return None
    try:
        payload = _decode(claims)
        signed = hmac.compare_digest(_mac(key, payload), _decode(mac))
    except ValueError:
        return None
    document = json.loads(payload) if signed else None
    return document if isinstance(document, dict) and document.keys() == _CLAIMS else None


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
