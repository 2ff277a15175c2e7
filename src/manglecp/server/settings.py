"""How a server is run. What belongs to the pack stands in its ``pack.toml``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network

__all__ = ["Rate", "ServerSettings"]


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests a second in the long run, and so many at once after a pause."""

    per_second: float
    burst: int

    def part(self, processes: int) -> Rate:
        """What each of so many processes may grant of it."""
        return Rate(self.per_second / processes, math.ceil(self.burst / processes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits and times of one process, with defaults for a small machine."""

    # --- how often ---------------------------------------------------------------------------------------------------
    identity_rate: Rate | None = Rate(200, 400)
    """For each authenticated client. None: no limit."""
    peer_rate: Rate | None = Rate(2_000, 4_000)
    """For each network address, whoever speaks from there."""
    attempt_rate: Rate | None = Rate(1, 20)
    """For credentials that do not hold, for each network address."""
    # --- how many at once --------------------------------------------------------------------------------------------
    evaluations: int = 2
    """In threads. More than there are processors makes each slower and none faster."""
    waiting: int = 256
    """Evaluations that wait for their turn."""
    longest_wait: float = 5.0
    """Seconds that one waits before it is told to come back later."""
    invocations: int = 256
    pending: int = 64
    """Unanswered requests of one session."""
    # --- sessions ----------------------------------------------------------------------------------------------------
    outbox_bytes: int = 4 << 20
    """Unsent answers of one session before nothing more is read from it."""
    send_timeout: float = 30.0
    """Seconds that a client may leave a message untaken."""
    recheck: float = 60.0
    """Seconds after which the credential of a session is looked at again: it may have expired or been withdrawn."""
    identify_timeout: float = 10.0
    # --- states ------------------------------------------------------------------------------------------------------
    retry_after_ms: int = 1_000
    """What a client is told to wait while the server boots or drains."""
    grace: float = 30.0
    """Seconds that running requests have to end when the server drains."""
    worker: bool = True
    """Go on with runs that other processes left behind."""
    worker_pause: float = 1.0
    claim: float = 15.0
    """Seconds after which a run belongs to nobody, if whoever carries it out does not say that it is still there."""
    probe: float = 5.0
    """Seconds between two looks at whether the store answers."""
    # --- HTTP --------------------------------------------------------------------------------------------------------
    base: str = ""
    """What comes before ``/evaluate`` and ``/invoke``."""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Whose word is taken for where a request came from."""

    def of_one_of(self, processes: int) -> ServerSettings:
        """For each of several processes that know nothing of each other: a rate is of all of them together, so each
        grants its part. What bounds memory and work (``load``, ``sessions``) is of each."""

        def part(rate: Rate | None) -> Rate | None:
            return None if rate is None else rate.part(processes)

        return replace(
            self,
            identity_rate=part(self.identity_rate),
            peer_rate=part(self.peer_rate),
            attempt_rate=part(self.attempt_rate),
        )
