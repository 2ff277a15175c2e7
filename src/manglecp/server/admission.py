"""Who gets in: how often a client may ask, and how many tools run at once.

What is refused is refused at once, and told when to come back (``rate_limited``, ERR-30). How many evaluations there
are at once is a matter of :mod:`manglecp.server.evaluation`.
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

__all__ = ["Admission", "Buckets", "rate_limited"]

_LEAST_WAIT_MS: Final = 50
_HOST_BITS: Final = 64
_MOST_WAIT_MS: Final = 10_000


class Buckets:
    """Token buckets by key. Those that were not used for longest are forgotten first, so that keys cost no memory."""

    MOST: Final = 16_384

    def __init__(self, rate: Rate | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left: LruCache[str, tuple[float, float]] = LruCache(self.MOST)
        """What is left of each, and when that was so."""

    def take(self, key: str) -> float:
        """Take a token; if there is none, the seconds until one is there, and nothing is taken."""
        rate = self._rate
        if rate is None:
            return 0.0
        now, most = self._clock(), float(rate.burst)
        level, then = self._left.get(key) or (most, now)
        level = min(most, level + max(0.0, now - then) * rate.per_second)
        if level < 1.0 - 1e-6:  # a rounding error must not make a client wait twice
            return (1.0 - level) / rate.per_second
        self._left.put(key, (level - 1.0, now))
        return 0.0


class Admission:
    """One for a process. Used from its event loop only."""

    def __init__(self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._identities = Buckets(settings.identity_rate, clock)
        self._peers = Buckets(settings.peer_rate, clock)
        self._attempts = Buckets(settings.attempt_rate, clock)
        self._invoking = 0

    # --- how often ---------------------------------------------------------------------------------------------------

    def charge_peer(self, peer: str | None) -> None:
        """For every message. Raises ``rate_limited``."""
        if peer is not None:
            _refuse(self._peers.take(_source(peer)), "Too many messages from this address")

    def charge(self, identity: Identity) -> None:
        """For every request of somebody who is known. The user of this machine may ask as often as they like, and
        those that nobody knows are told apart by their addresses."""
        if identity.trust not in ("local", "anonymous"):
            _refuse(self._identities.take(identity.name), "Too many requests")

    def failed_try(self, peer: str | None) -> None:
        """For every credential that does not hold. Those that do are never held up by others from the same address."""
        _refuse(self._attempts.take(_source(peer or "")), "Too many credentials that do not hold")

    # --- how many ----------------------------------------------------------------------------------------------------

    @property
    def invoking(self) -> int:
        """How many invocations are under way."""
        return self._invoking

    def begin(self) -> None:
        """One more invocation. Raises ``rate_limited`` instead of waiting."""
        if self._invoking >= self._settings.invocations:
            raise rate_limited("Too many invocations are running", 1.0)
        self._invoking += 1

    def end(self) -> None:
        """What :meth:`begin` began is over."""
        self._invoking -= 1


def _source(peer: str) -> str:
    """Whom an address stands for: whoever has one of IPv6 has a whole network of them to come from."""
    return _network(peer) if ":" in peer else peer


@lru_cache(maxsize=1_024)
def _network(peer: str) -> str:
    try:
        address = ipaddress.IPv6Address(peer)
    except ValueError:
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> _HOST_BITS << _HOST_BITS, 128 - _HOST_BITS)))


def _refuse(seconds: float, message: str) -> None:
    if seconds > 0.0:
        raise rate_limited(message, seconds)


def rate_limited(message: str, seconds: float) -> WireError:
    """What is told to whoever may come back in so many seconds, more or less."""
    milliseconds = min(max(math.ceil(seconds * 1_000), _LEAST_WAIT_MS), _MOST_WAIT_MS)
    return WireError("rate_limited", message, retry_after_ms=milliseconds)
