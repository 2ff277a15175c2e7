"""An event loop in a background thread, for synchronous callers.

A host process ends with the thread that started the process. Therefore a synchronous caller starts its hosts in the
background thread, which lives until the block of :func:`background_loop` is left.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def background_loop(name: str) -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread called ``name`` until the block is left; pending tasks are then cancelled."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        # Not run_until_complete(), which fails if an event loop runs in the caller's thread.
        wait_for(loop, _cancel_tasks(loop))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    pending = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def close_at_exit(stack: contextlib.ExitStack) -> None:
    """Close ``stack`` when Python exits, unless it was closed or dropped before.

    A block of :func:`background_loop` that is left only when Python clears its modules waits forever, because daemon
    threads do not run any more at that time.
    """
    reference = weakref.ref(stack)

    def close() -> None:
        open_stack = reference()
        if open_stack is not None:
            open_stack.close()

    atexit.register(close)
    stack.callback(atexit.unregister, close)


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the caller runs in this loop, so that :func:`wait_for` would deadlock."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def wait_for(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Run a coroutine on the loop of another thread and return its result.

    Raises :class:`TimeoutError` after ``timeout`` seconds; the coroutine then continues to run.
    """
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout)
