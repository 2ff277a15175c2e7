"""Rate limits, and the limit of concurrent invocations.

A request over a limit is refused at once with ``rate_limited`` and a delay for the retry (requirement ERR-30).
:mod:`manglecp.server.evaluation` limits concurrent evaluations.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from manglecp.base.cache import LruCache
from manglecp.intent import Identity
from manglecp.server.config import Rate, ServerSettings
from manglecp.wire import WireError

_MIN_RETRY_MS: Final = 50
_MAX_RETRY_MS: Final = 10_000


class Buckets:
    """Token buckets by key, all with the same rate. The least recently used buckets are evicted to bound memory."""

    MAX_KEYS: Final = 16_384

    def __init__(self, rate: Rate | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._levels: LruCache[str, tuple[float, float]] = LruCache(self.MAX_KEYS)
        """The number of tokens of each key, and when a token was last taken."""

    def take(self, key: str) -> float:
        """Take a token and return 0; without a token, return the seconds until the next one."""
        rate = self._rate
        if rate is None:
            return 0.0
        now, capacity = self._clock(), float(rate.burst)
        level, taken_at = self._levels.get(key) or (capacity, now)
        level = min(capacity, level + max(0.0, now - taken_at) * rate.per_second)
        if level < 1.0 - 1e-6:  # a rounding error must not make a client wait twice
            return (1.0 - level) / rate.per_second
        self._levels.put(key, (level - 1.0, now))
        return 0.0


class RequestLimits:
    """The limits of a process, used from its event loop only."""

    def __init__(self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._identities = Buckets(settings.identity_rate, clock)
        self._peers = Buckets(settings.peer_rate, clock)
        self._failed_attempts = Buckets(settings.attempt_rate, clock)
        self.running_invocations = 0

    def charge_peer(self, peer: str | None) -> None:
        """Count a message from a network address. A local client (None) has no limit. Raises ``rate_limited``."""
        if peer is not None:
            _raise_if_limited(self._peers.take(_network_of(peer)), "Too many messages from this address")

    def charge(self, identity: Identity) -> None:
        """Count a request of an authenticated client. Raises ``rate_limited``.

        The local user has no limit; anonymous clients have only the limit of their address (:meth:`charge_peer`).
        """
        if identity.trust not in ("local", "anonymous"):
            _raise_if_limited(self._identities.take(identity.name), "Too many requests")

    def charge_failed_attempt(self, peer: str | None) -> None:
        """Count an invalid credential. Raises ``rate_limited``. Valid credentials from the address are not limited."""
        _raise_if_limited(self._failed_attempts.take(_network_of(peer or "")), "Too many invalid credentials")

    def begin_invocation(self) -> None:
        """Count an invocation as running until :meth:`end_invocation`. Raises ``rate_limited``."""
        if self.running_invocations >= self._settings.max_invocations:
            raise rate_limited("Too many invocations are running", 1.0)
        self.running_invocations += 1

    def end_invocation(self) -> None:
        self.running_invocations -= 1


@lru_cache(maxsize=1_024)
def _network_of(peer: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address, since a client may own a whole network."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return peer
    return str(address.ipv4_mapped or ipaddress.IPv6Network((peer, 64), strict=False))


def _raise_if_limited(seconds: float, message: str) -> None:
    """Raise ``rate_limited`` if the client has to wait ``seconds``, the result of :meth:`Buckets.take`."""
    if seconds > 0.0:
        raise rate_limited(message, seconds)


def rate_limited(message: str, seconds: float) -> WireError:
    """Return the refusal of a request that the client may retry after about ``seconds``."""
    milliseconds = min(max(math.ceil(seconds * 1_000), _MIN_RETRY_MS), _MAX_RETRY_MS)
    return WireError("rate_limited", message, retry_after_ms=milliseconds)
