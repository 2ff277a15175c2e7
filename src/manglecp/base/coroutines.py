"""Coroutines without an event loop, so that the same code serves asynchronous and synchronous callers."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends. Raises RuntimeError if the coroutine suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine waits, and there is no event loop")


async def items_of(result: Iterable[T] | AsyncIterable[T] | Awaitable[Iterable[T]]) -> Iterable[T]:
    """Return the items of ``result``: of an iterable, of an async generator, or of the result of a coroutine."""
    if isinstance(result, AsyncIterable):
        return [item async for item in result]
    return await result if isinstance(result, Awaitable) else result
