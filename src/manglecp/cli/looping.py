"""An event loop in a thread of its own, beside a person who types.

What is typed is read in the main thread, where Ctrl-C arrives; connections live on in the other. While the one waits
for the other, it answers what the other has to ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeAlias, TypeVar

from manglecp.base.background_loop import background_loop

__all__ = ["Beside"]

T = TypeVar("T")
Q = TypeVar("Q")
_Asked: TypeAlias = tuple[Q, "asyncio.Future[bool]"]


class Beside(Generic[Q]):
    """A context manager. What is entered into ``stack``, on the loop, is left at the end."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self._end = ExitStack()
        self._events: SimpleQueue[_Asked[Q] | None] = SimpleQueue()

    def __enter__(self) -> Self:
        self._loop = self._end.enter_context(background_loop("manglecp-shell"))
        return self

    def __exit__(self, *_: object) -> None:
        with self._end:
            self.wait(self.stack.aclose())

    async def ask(self, question: Q) -> bool:
        """Called on the loop: what whoever waits says to the question."""
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._events.put((question, answer))
        return await answer

    def wait(self, work: Coroutine[Any, Any, T], answering: Callable[[Q], bool] = lambda _: False) -> T:
        """What ``work`` gives. Whoever interrupts it cancels it."""
        events: SimpleQueue[_Asked[Q] | None] = SimpleQueue()
        self._events = events
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                question, answer = event
                agreed = answering(question)
                self._loop.call_soon_threadsafe(_settle, answer, agreed)
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _settle(answer: asyncio.Future[bool], agreed: bool) -> None:
    if not answer.done():
        answer.set_result(agreed)
