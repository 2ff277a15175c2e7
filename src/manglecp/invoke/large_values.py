"""Offloads work on large values to a thread.

A message may have 16 MiB; hashing, checking or converting that much takes seconds and would block the event loop.
Handing over a small value would cost more than the work itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from manglecp.wire import value_size

__all__ = ["LARGE_TEXT", "is_large", "run_in_thread_if"]

T = TypeVar("T")
_LARGE: Final = 20_000
"""Values within a value. That many take about ten milliseconds."""
_FEW: Final = 16
_SHORT: Final = 1_024
_SIMPLE: Final = frozenset({str, int, float, bool, type(None)})
LARGE_TEXT: Final = 1 << 19
"""Characters of JSON that take about as long."""


def is_large(value: Any) -> bool:
    """Return whether a value has many values within, without visiting all of them."""
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
    return value_size(value, _LARGE) > _LARGE


async def run_in_thread_if(condition: bool, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return the work's result; computed in a thread if the condition holds, inline otherwise."""
    return await asyncio.to_thread(work, *args, **kwargs) if condition else work(*args, **kwargs)
