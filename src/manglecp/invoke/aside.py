"""Work on values that a client or an action sent: at once where they are small, in a thread where they are large.

A message may have 16 MiB. To hash, check or convert so much takes seconds, and nobody else is answered while the event
loop does it. To hand over something small would cost more than to do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from manglecp.harness import size

__all__ = ["LARGE_TEXT", "aside", "is_large"]

T = TypeVar("T")
_LARGE: Final = 20_000
"""Values in a value. So many take some ten milliseconds."""
_FEW: Final = 16
_SHORT: Final = 1_024
_SIMPLE: Final = frozenset({str, int, float, bool, type(None)})
LARGE_TEXT: Final = 1 << 19
"""Characters of JSON that take about as long."""


def is_large(value: Any) -> bool:
    """Known without looking at all of it."""
    if type(value) is dict and len(value) <= _FEW:  # most arguments are a few short texts and numbers
        for name, one in value.items():
            kind = type(one)
            if (
                kind not in _SIMPLE
                or (kind is str and len(one) > _SHORT)
                or type(name) is not str
                or len(name) > _SHORT
            ):
                break
        else:
            return False
    return size(value, _LARGE) > _LARGE


async def aside(large: bool, work: Callable[..., T], *given: Any, **more: Any) -> T:
    """The work's result; from a thread if what it works on is large."""
    return await asyncio.to_thread(work, *given, **more) if large else work(*given, **more)
