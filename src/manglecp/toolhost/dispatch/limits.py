"""How much of everything a pool has: calls at a time, calls that wait, attempts, and the life of a host."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Limits"]


class Limits(NamedTuple):
    """The numbers of one pool."""

    pipelined: int = 32
    """Calls of tier 0 that one host has at a time."""
    queued: int = 1_024
    """Calls that may wait for a host."""
    attempts: int = 3
    """Hosts that one call is given to, at most."""
    calls_per_host: int = 10_000
    """Calls after which a host is replaced."""
    growth: int = 268_435_456
    """Bytes that a host may have gained since its first answer before it is replaced."""
    health_interval: float = 5.0
    """Seconds between two examinations of a host."""
    health_timeout: float = 5.0
    start_timeout: float = 20.0
    backoff: float = 0.05
    """Seconds before a failed start is repeated; doubled each time."""
    max_backoff: float = 5.0
