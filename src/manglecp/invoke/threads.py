"""Threads for what an event loop must not wait for: evaluations, and questions to the store.

As the executor of the standard library, for one event loop and at less cost: work is handed over in one step, results
that are ready together wake the loop once, and of the threads that wait for work exactly one is woken: the one that
worked last, which has at hand what it needs.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

__all__ = ["Threads"]

T = TypeVar("T")
_Work: TypeAlias = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
_Bell: TypeAlias = threading.Lock
"""Held until it rings."""
_Done: TypeAlias = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Threads:
    """Used from one event loop, which is the one that :meth:`run` is first called on."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[_Work | None] = deque()
        self._idle: list[_Bell] = []
        """Of the threads that wait for work."""
        self._done: deque[_Done] = deque()
        self._open = 0
        """How much was handed over and is not done."""
        self._told = False
        """Has the loop been told that something is done, and not looked yet?"""
        self._threads: list[threading.Thread] = []
        self._over = False

    def run(self, work: Callable[..., T], *given: Any) -> asyncio.Future[T]:
        """Have it done; what is cancelled before a thread takes it is not."""
        if self._over:
            raise RuntimeError("the threads have ended")
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if len(self._threads) <= self._open and len(self._threads) < self._most:  # all may be busy, and for long
            self._start()
        self._open += 1
        self._waiting.append((future, work, given))
        if self._idle:
            self._idle.pop().release()
        return future

    def shutdown(self) -> None:
        """Wait until everything that was handed over is done. The loop hears of it afterwards."""
        self._over = True
        self._waiting.extend([None] * len(self._threads))
        while self._idle:
            self._idle.pop().release()
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        # They end with the process, should nobody end them: a transaction that is cut off leaves nothing behind.
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _serve(self) -> None:
        bell = threading.Lock()
        bell.acquire()
        while (one := self._next(bell)) is not None:
            future, work, given = one
            self._tell((future, None, None) if future.cancelled() else _attempted(future, work, given))
            del one, future, work, given  # nothing is held while there is nothing to do

    def _next(self, bell: _Bell) -> _Work | None:
        """Whoever hands over work looks for an idle thread afterwards, and whoever is idle looks for work afterwards:
        one of them finds the other."""
        while True:
            try:
                return self._waiting.popleft()
            except IndexError:
                pass
            self._idle.append(bell)
            if self._waiting:
                try:
                    self._idle.remove(bell)
                    continue
                except ValueError:  # it rings
                    pass
            bell.acquire()

    def _tell(self, done: _Done) -> None:
        self._done.append(done)
        if not self._told:  # otherwise the loop comes, and finds this too
            self._told = True
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # it is closed, and nobody waits
                self._done.clear()

    def _deliver(self) -> None:
        self._told = False  # before looking: what comes meanwhile is found now, or told once more
        while self._done:
            future, result, error = self._done.popleft()
            self._open -= 1
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def _attempted(future: asyncio.Future[Any], work: Callable[..., Any], given: tuple[Any, ...]) -> _Done:
    try:
        return future, work(*given), None
    except BaseException as error:
        return future, None, error
