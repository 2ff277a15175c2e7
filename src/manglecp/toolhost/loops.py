"""An event loop for code that has none: hosts are served by one, and whoever asks them waits.

A host ends with the thread that started it, so the loop has a thread of its own that lives as long as the hosts do.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

__all__ = ["background_loop", "wait_for"]

T = TypeVar("T")


@contextlib.contextmanager
def background_loop(name: str) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of this name until the block is left."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def wait_for(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """What comes of work on the loop of another thread."""
    return asyncio.run_coroutine_threadsafe(work, loop).result(timeout)
