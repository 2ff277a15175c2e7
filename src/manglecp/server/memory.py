"""How a server holds memory: what a large message took goes back to the system, and cycles are looked for seldom.

glibc puts a freed large block on its own heap the next time, and has a heap for every few threads. After some messages
of megabytes these heaps are full of holes: the process has twice what it uses, for as long as it lives. With a fixed
threshold a large block is a mapping of its own, which ends when it is freed.

Python looks for cycles after every few hundred objects by default. A request makes thousands, and leaves no cycles.
Connections do, and those that are old are looked for only when there are many beside all that the process holds. So
what was loaded for good is set apart.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Final

__all__ = ["keep_small", "set_apart"]

_COLLECTED: Final = (20_000, 10, 5)
_LARGE: Final = 256 << 10
_HEAPS: Final = 2
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def keep_small() -> None:
    """For the whole process. On a system without glibc the first part does nothing."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_ARENA_MAX, _HEAPS)
    gc.set_threshold(*_COLLECTED)


def set_apart() -> None:
    """Look for cycles only in what comes from now on: what is there by now stays."""
    gc.freeze()
    gc.collect()  # of next to nothing, which is what later growth is measured by
