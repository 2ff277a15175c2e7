"""What comes at the same time goes to the store together.

A question or a record costs the store less in company: one transaction is begun and ended for all. So it waits for
company, but only for a few turns of the event loop. Where the loop has much to do, these are what others need to catch
up, and from then on they go through their stations together; where it has nothing else to do, they take no time.

It is done there and then if the store does not make anybody wait (:meth:`.Database.at_once`), otherwise in a thread.
What comes while that is under way is collected and goes as one when it is done. Each is answered when its own has been,
and not before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from manglecp.invoke.threads import Threads
from manglecp.store import AtOnce, Busy, Database, Place, StoreError

__all__ = ["Together"]

A = TypeVar("A")
R = TypeVar("R")
_MOST: Final = 64
"""What goes at once, at most: nobody else's turn is to be far away."""
_MOST_HERE: Final = 16
"""The same for the event loop."""
_TURNS: Final = 3
"""Of the event loop, in which others may join."""


class Together(Generic[A, R]):
    """Used from one event loop."""

    def __init__(
        self,
        threads: Threads,
        database: Database,
        here: AtOnce | None,
        work: Callable[[Place, Sequence[A]], Sequence[R | Exception]],
    ) -> None:
        """``here`` is where nobody waits, if there is such a place.

        ``work`` is one transaction in the place that it is given, for one or more; it gives a result for each, in their
        order, or the error that is that one's alone. An error that it raises is everybody's, and it has done nothing
        then: after :class:`.Busy` it is done again, in a thread.
        """
        self._threads = threads
        self._database = database
        self._here = here
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._under_way = False
        """Is something being done, or about to be?"""

    def ask(self, one: A) -> asyncio.Future[R]:
        """The result for this one. What is asked for meanwhile is done together, next time."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((one, future))
        if not self._under_way:
            self._under_way = True
            loop.call_soon(self._wait, _TURNS)
        return future

    def _wait(self, turns: int) -> None:
        """For company, if there is not enough of it."""
        assert self._loop is not None
        if turns and len(self._waiting) < _MOST_HERE:
            self._loop.call_soon(self._wait, turns - 1)
        else:
            self._go()

    def _go(self) -> None:
        # Whoever is gone before it began is not asked for.
        waiting = [one for one in self._waiting if not one[1].cancelled()]
        most = _MOST if self._here is None else _MOST_HERE
        going, self._waiting = waiting[:most], waiting[most:]
        self._under_way = bool(going)
        if not going:
            return
        asked, futures = zip(*going, strict=True)
        if self._here is not None and self._done_here(asked, futures):
            return
        try:
            done = self._threads.run(self._work, self._database, asked)
        except RuntimeError as error:  # the threads have ended: nobody is to wait for them
            self._tell(futures, [error] * len(futures))
            self._next()
        else:
            done.add_done_callback(lambda done: self._done(futures, done))

    def _done_here(self, asked: Sequence[A], futures: Sequence[asyncio.Future[R]]) -> bool:
        """Nothing is, if it would have to wait."""
        assert self._here is not None
        results: Sequence[R | Exception]
        try:
            results = self._work(self._here, asked)
            due = self._here.tidying_due
        except Busy:
            return False
        except Exception as error:
            results, due = [error] * len(asked), False
        self._tell(futures, results)
        self._next()
        if due:
            with contextlib.suppress(RuntimeError):  # the threads have ended, and so does the store
                _ = self._threads.run(self._tidy)  # it cannot fail
        return True

    def _next(self) -> None:
        """Whoever came meanwhile has their turn; others on the loop have theirs before."""
        assert self._loop is not None
        if self._waiting:
            self._loop.call_soon(self._go)
        else:
            self._under_way = False

    def _tidy(self) -> None:
        with contextlib.suppress(StoreError):  # the next time will do
            self._database.tidy()

    def _done(self, futures: Sequence[asyncio.Future[R]], done: asyncio.Future[Sequence[R | Exception]]) -> None:
        failed = done.exception()
        self._tell(futures, [failed] * len(futures) if failed is not None else done.result())
        self._go()

    @staticmethod
    def _tell(futures: Sequence[asyncio.Future[R]], results: Sequence[R | BaseException]) -> None:
        for future, result in zip(futures, results, strict=True):
            if future.cancelled():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
