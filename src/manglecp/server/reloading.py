"""A server for a pack that is being worked on: every edit is served as soon as it is there, if it works."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from manglecp.pack.problems import PackError
from manglecp.pack.watching import Watched
from manglecp.server.serving import Reloaded, Serving

__all__ = ["reload_on_change"]


async def reload_on_change(
    serving: Serving, folder: Path, *, pause: float = 0.3, told: Callable[[Reloaded], None] = lambda _: None
) -> None:
    """Until it is cancelled. ``told`` hears of every reload."""
    watched = await asyncio.to_thread(Watched, folder, lambda _: None)
    with contextlib.suppress(PackError):  # then it is to be repaired
        await serving.ready()
    while serving.status != "draining":
        await asyncio.sleep(pause)
        if await asyncio.to_thread(watched.poll) == "swapped":
            told(await serving.reload())
