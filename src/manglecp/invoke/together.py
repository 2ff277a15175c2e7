"""What comes at the same time goes to the store together.

A question or a record costs the store less in company: one thread is woken, one transaction is begun and ended. Nobody
waits for company, though. What comes first goes at once; what comes while that is under way is collected and goes as
one when it is done. Each is answered when its own has been, and not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from manglecp.invoke.threads import Threads

__all__ = ["Together"]

A = TypeVar("A")
R = TypeVar("R")
_MOST: Final = 64
"""What goes at once, at most: nobody else's turn is to be far away."""


class Together(Generic[A, R]):
    """Used from one event loop."""

    def __init__(self, threads: Threads, work: Callable[[Sequence[A]], Sequence[R | Exception]]) -> None:
        """``work`` is done in a thread, for one or more; it gives a result for each, in their order, or the error that
        is that one's alone. An error that it raises is everybody's."""
        self._threads = threads
        self._work = work
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._under_way = False

    def ask(self, one: A) -> asyncio.Future[R]:
        """The result for this one. What is asked for meanwhile is done together, next time."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, future))
        if not self._under_way:
            self._go()
        return future

    def _go(self) -> None:
        # Whoever is gone before it began is not asked for.
        waiting = [one for one in self._waiting if not one[1].cancelled()]
        going, self._waiting = waiting[:_MOST], waiting[_MOST:]
        self._under_way = bool(going)
        if going:
            futures = [future for _, future in going]
            done = self._threads.run(self._work, [one for one, _ in going])
            done.add_done_callback(lambda done: self._done(futures, done))

    def _done(self, futures: Sequence[asyncio.Future[R]], done: asyncio.Future[Sequence[R | Exception]]) -> None:
        failed = done.exception()
        results: Sequence[R | BaseException] = [failed] * len(futures) if failed is not None else done.result()
        for future, result in zip(futures, results, strict=True):
            if future.cancelled():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
        self._go()
