"""What is read again while a server runs: a pack that is being worked on, and the file of tokens.

Every edit counts as soon as it is there and has come to rest, if it works.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from manglecp.pack import FolderWatcher, PackError
from manglecp.server.auth.tokens import TokensFile
from manglecp.server.core import Core
from manglecp.server.serving import Reloaded, Serving

__all__ = ["reload_on_change", "watch_credentials"]


async def reload_on_change(
    serving: Serving, folder: Path, *, pause: float = 0.3, told: Callable[[Reloaded], None] = lambda _: None
) -> None:
    """Until it is cancelled. ``told`` hears of every reload."""
    watched = await asyncio.to_thread(FolderWatcher, folder, lambda _: None, steady=1, gone=5)
    with contextlib.suppress(PackError):  # then it is to be repaired
        await serving.ready()
    while serving.status != "draining":
        await asyncio.sleep(pause)
        if await asyncio.to_thread(watched.poll) == "swapped":
            told(await serving.reload())


async def watch_credentials(core: Core, tokens: TokensFile | None, *, pause: float = 1.0) -> None:
    """Until it is cancelled: whoever's credential is withdrawn or expires loses their session, asking or not."""
    loop = asyncio.get_running_loop()
    checked = loop.time()
    while True:
        await asyncio.sleep(pause)
        changed = tokens is not None and await asyncio.to_thread(tokens.look)
        if changed or loop.time() - checked >= core.settings.recheck:
            checked = loop.time()
            await core.recheck()
