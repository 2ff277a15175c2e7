"""Coroutines without an event loop: code that is written once for callers with and without one."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends; raises RuntimeError if it does."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine waits, and there is no event loop")


async def items_of(result: Iterable[T] | AsyncIterable[T] | Awaitable[Iterable[T]]) -> Iterable[T]:
    """Return the items of what a plain function, a coroutine function or an async generator function returned."""
    if isinstance(result, AsyncIterable):
        return [item async for item in result]
    return await result if isinstance(result, Awaitable) else result
