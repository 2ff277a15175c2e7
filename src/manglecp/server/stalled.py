"""Connections whose clients take nothing: closing them is not enough, for a close waits until everything is sent.

Looked at from time to time: whoever holds up what is unsent, and has taken nothing since the last look, is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["LOOK_SECONDS", "cut_stalled"]

LOOK_SECONDS: Final = 20.0


async def cut_stalled(connections: Iterable[Any], seconds: float) -> None:
    """``connections`` are uvicorn's protocols, now and later. Until it is cancelled."""
    before: dict[Any, int] = {}
    while True:
        await asyncio.sleep(seconds)
        unsent = {one: one.transport.get_write_buffer_size() for one in tuple(connections) if _held_up(one)}
        for one, size in unsent.items():
            if size and before.get(one) == size:
                one.transport.abort()
        before = unsent


def _held_up(connection: Any) -> bool:
    """Is nothing added to what is unsent? Only then it says something that it stays the same."""
    return bool(connection.transport.is_closing() or connection.write_paused)
