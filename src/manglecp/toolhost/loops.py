"""An event loop for code that has none: it runs in a thread of its own, and whoever asks it for something waits.

Hosts are served by one: a host ends with the thread that started it, so the thread lives as long as the hosts do. So
are connections that live on between calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

__all__ = ["background_loop", "runs_here", "wait_for"]

T = TypeVar("T")


@contextlib.contextmanager
def background_loop(name: str) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of this name until the block is left. What is under way then is given up."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        wait_for(loop, _give_up(loop))  # in its own thread: whoever leaves the block may be in a loop of its own
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _give_up(loop: asyncio.AbstractEventLoop) -> None:
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Is the caller called by this loop? Then nobody is left to do what it waits for."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def wait_for(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """What comes of work on the loop of another thread."""
    return asyncio.run_coroutine_threadsafe(work, loop).result(timeout)
