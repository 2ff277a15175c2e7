"""The lifespan of a plugin in its host: what is open from before the first call to after the last one.

An async lifespan runs in one task, so that what it enters is left in the same task, as cancel scopes need it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from manglecp.toolhost.context import Context
from manglecp.toolhost.plugin import PluginLifespan

if TYPE_CHECKING:
    import asyncio
    import signal
else:
    import _signal as signal  # the C module behind signal, without its enums


class HostLifespan:
    """The lifespan of this host; ``loop`` returns the event loop of its calls, and is called for an async one only."""

    def __init__(
        self, declared: PluginLifespan, context: Context, loop: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        self._declared = declared
        self._context = context
        self._get_loop = loop
        self._items: Any = None
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None

    def start(self, on_expiry: Callable[[], object]) -> Any:
        """Return what the lifespan yields. Raises whatever it raises, and RuntimeError if it does not yield."""
        with _time_limit(self._declared.timeout, on_expiry):
            return self._start()

    def _start(self) -> Any:
        names = {} if self._declared.context is None else {self._declared.context: self._context}
        self._items = self._declared.function(**names)
        if isinstance(self._items, Iterator):
            for state in self._items:
                return state
        else:
            import asyncio

            loop = self._get_loop()
            started: asyncio.Future[Any] = loop.create_future()
            self._stop = asyncio.Event()
            self._task = loop.create_task(self._hold(self._items, started, self._stop))
            loop.run_until_complete(asyncio.wait({started, self._task}, return_when=asyncio.FIRST_COMPLETED))
            if started.done():
                return started.result()
            self._task.result()
        raise RuntimeError("it has not yielded; a lifespan yields once")

    @staticmethod
    async def _hold(items: AsyncIterator[Any], started: asyncio.Future[Any], stop: asyncio.Event) -> None:
        async for state in items:
            started.set_result(state)  # raises InvalidStateError for a second yield
            await stop.wait()

    def stop(self, on_expiry: Callable[[], object]) -> None:
        """Run what follows the yield; raises whatever it raises."""
        with _time_limit(self._declared.timeout, on_expiry):
            if self._task is not None and self._stop is not None:
                self._stop.set()
                self._get_loop().run_until_complete(self._task)
            else:
                next(self._items, None)


@contextmanager
def _time_limit(seconds: float, on_expiry: Callable[[], object]) -> Iterator[None]:
    """Call ``on_expiry`` in this thread after ``seconds``, also if the block neither returns nor awaits.

    Code that never returns to the interpreter is not interrupted.
    """
    previous = signal.signal(signal.SIGALRM, lambda *_: on_expiry())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
