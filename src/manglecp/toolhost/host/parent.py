"""A host does not outlive the process that started it.

The kernel is asked for that by the host itself, as soon as it has read its command line. Whoever starts it could ask in
between fork and exec, but code of Python there means a slow fork, which holds up everything else that the starter does.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["die_with"]

_PR_SET_PDEATHSIG: Final = 1
_SIGKILL: Final = 9


def die_with(parent: int) -> None:
    """End when this process does, and at once if it is gone already."""
    import ctypes  # takes its time to load, and a host that was started by hand does without

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the host cannot be bound to its parent")
    if os.getppid() != parent:  # it ended before the kernel knew
        os._exit(1)
