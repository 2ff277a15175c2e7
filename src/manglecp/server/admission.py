"""Who gets in: how often a client may ask, and how many are answered at once.

An overloaded server answers fewer requests, not all of them more slowly: what cannot begin soon is refused at once, and
told when to come back (``rate_limited``, ERR-30). Evaluations take their turn in the order in which they came.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from manglecp.intent.identity import Identity
from manglecp.server.settings import Rate, ServerSettings
from manglecp.wire.errors import WireError

__all__ = ["Admission", "Buckets"]

_LEAST_WAIT_MS: Final = 50
_HOST_BITS: Final = 64
_MOST_WAIT_MS: Final = 10_000


class Buckets:
    """Token buckets by key. Those that were not used for longest are forgotten first, so that keys cost no memory."""

    MOST: Final = 16_384

    def __init__(self, rate: Rate | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What is left of each, and when that was so."""

    def take(self, key: str) -> float:
        """Take a token; if there is none, the seconds until one is there, and nothing is taken."""
        if self._rate is None:
            return 0.0
        level = self._level(key, self._rate)
        if level < 1.0 - 1e-6:  # a rounding error must not make a client wait twice
            return (1.0 - level) / self._rate.per_second
        self._left[key] = (level - 1.0, self._clock())
        self._left.move_to_end(key)
        if len(self._left) > self.MOST:
            self._left.popitem(last=False)
        return 0.0

    def _level(self, key: str, rate: Rate) -> float:
        level, then = self._left.get(key, (float(rate.burst), 0.0))
        return min(float(rate.burst), level + max(0.0, self._clock() - then) * rate.per_second)


class Admission:
    """One for a process. Used from its event loop only."""

    def __init__(self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._identities = Buckets(settings.identity_rate, clock)
        self._peers = Buckets(settings.peer_rate, clock)
        self._attempts = Buckets(settings.attempt_rate, clock)
        self._evaluating = 0
        self._invoking = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._typical = 0.005
        """Seconds that an evaluation takes, more or less."""

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
    def evaluating(self) -> int:
        """How many evaluations are under way."""
        return self._evaluating

    @property
    def invoking(self) -> int:
        """How many invocations are under way."""
        return self._invoking

    @property
    def waiting(self) -> int:
        """How many evaluations wait for their turn."""
        return len(self._queue)

    def evaluation(self) -> _Evaluation:
        """A turn to evaluate, as an async context manager; waits for it, though not long."""
        return _Evaluation(self)

    @contextmanager
    def invocation(self) -> Iterator[None]:
        """For as long as an invocation takes. Raises ``rate_limited`` instead of waiting."""
        if self._invoking >= self._settings.invocations:
            raise _limited("Too many invocations are running", 1.0)
        self._invoking += 1
        try:
            yield
        finally:
            self._invoking -= 1

    async def begin(self) -> float:
        """Take a turn, which has to be ended; when it began."""
        await self._turn()
        return self._clock()

    def end(self, began: float) -> None:
        """The turn that began then is over, and the next one in the queue has it."""
        self._typical += 0.1 * (self._clock() - began - self._typical)
        self._evaluating -= 1
        self._hand_on()

    async def _turn(self) -> None:
        if self._evaluating < self._settings.evaluations:  # then nobody waits
            self._evaluating += 1
            return
        if len(self._queue) >= self._settings.waiting:
            raise self._busy()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        timer = asyncio.get_running_loop().call_later(self._settings.longest_wait, self._give_up, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # it came too late
                self._evaluating -= 1
                self._hand_on()
            raise
        finally:
            timer.cancel()
            if turn in self._queue:
                self._queue.remove(turn)

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            self._queue.remove(turn)
            turn.set_exception(self._busy())

    def _hand_on(self) -> None:
        while self._queue and self._evaluating < self._settings.evaluations:
            turn = self._queue.popleft()
            if not turn.done():
                self._evaluating += 1
                turn.set_result(None)

    def _busy(self) -> WireError:
        return _limited("The server is busy", self._typical * (len(self._queue) + 1) / self._settings.evaluations)


class _Evaluation:
    """Every evaluation has one, and a generator would cost more than the rest of it."""

    __slots__ = ("_admission", "_began")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._began = 0.0

    async def __aenter__(self) -> None:
        self._began = await self._admission.begin()

    async def __aexit__(self, *_: object) -> None:
        self._admission.end(self._began)


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
        raise _limited(message, seconds)


def _limited(message: str, seconds: float) -> WireError:
    milliseconds = min(max(math.ceil(seconds * 1_000), _LEAST_WAIT_MS), _MOST_WAIT_MS)
    return WireError("rate_limited", message, retry_after_ms=milliseconds)
