"""Time limits of tests, for the machine they run on.

A limit only says when a test gives up on what hangs. A busy or slow machine needs longer: limits grow with the load
average per core, and with MANGLECP_TEST_PATIENCE, a factor.
"""

from __future__ import annotations

import os

__all__ = ["patience"]

_MOST = 10.0


def patience(seconds: float) -> float:
    """Return how long to wait for what takes far less than ``seconds`` on a quiet machine."""
    given = float(os.environ.get("MANGLECP_TEST_PATIENCE") or 1.0)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * given * min(max(load, 1.0), _MOST)
