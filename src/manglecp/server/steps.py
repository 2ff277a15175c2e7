"""Work that hardly ever has to wait, and so needs no task of its own.

It is written down once, as steps: a generator that yields what is to be awaited, and is given what came of it. It can
be done in a task (:func:`run`), or by whoever is there (:func:`go`): then it goes on when a request is answered, and
the rest of it needs a task only if something else has to be awaited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeAlias, TypeVar

from manglecp.server.pending import Pending

__all__ = ["Steps", "go", "run"]

T = TypeVar("T")
Steps: TypeAlias = Generator[Awaitable[Any], Any, T]


async def run(steps: Steps[T]) -> T:
    """All of them, in the task that awaits this."""
    try:
        return await _run(steps, next(steps))
    except StopIteration as end:
        result: T = end.value
        return result


def go(steps: Steps[None], in_task: Callable[[Coroutine[Any, Any, None]], None], given: Any = None) -> None:
    """Those that can be done at once, and those that come after the answer to a request, when that is there. What has
    to be awaited, or is to be told of an error, is for ``in_task``."""
    try:
        awaited = steps.send(given)
    except StopIteration:
        return
    except BaseException as error:
        in_task(_failed(error))
        return
    if isinstance(awaited, Pending):
        awaited.then(partial(go, steps, in_task))
    else:
        in_task(_run(steps, awaited))


async def _run(steps: Steps[T], awaited: Awaitable[Any]) -> T:
    try:
        while True:
            try:
                came = await awaited
            except BaseException as error:
                awaited = steps.throw(error)
            else:
                awaited = steps.send(came)
    except StopIteration as end:
        result: T = end.value
        return result


async def _failed(error: BaseException) -> None:
    raise error
