"""Work that is handed to threads: all of it is done, none of it waits behind what takes long, errors come back."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from manglecp.invoke.threads import Threads

PATIENCE = 30.0


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(4, "test")
    yield made
    made.shutdown()


async def test_results_and_errors_come_back_to_whoever_asked(threads: Threads) -> None:
    def work(number: int) -> int:
        if number % 7 == 0:
            raise ValueError(number)
        return number * 2

    found = await asyncio.gather(*[threads.run(work, number) for number in range(500)], return_exceptions=True)
    for number, one in enumerate(found):
        if number % 7:
            assert one == number * 2
        else:
            assert isinstance(one, ValueError)
            assert one.args == (number,)


async def test_what_is_short_does_not_wait_for_what_takes_long(threads: Threads) -> None:
    go = threading.Event()
    try:
        slow = [threads.run(go.wait, PATIENCE) for _ in range(3)]
        async with asyncio.timeout(PATIENCE / 2):
            assert await threads.run(threading.get_ident) != threading.get_ident()
        assert not any(one.done() for one in slow)
    finally:
        go.set()
    assert await asyncio.gather(*slow) == [True] * 3


async def test_where_the_system_gives_no_more_threads_those_there_are_do_it(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    go = threading.Event()
    async with asyncio.timeout(PATIENCE):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            with pytest.raises(RuntimeError, match="can't start"):
                await threads.run(int)
        assert await threads.run(int) == 0
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            first, second = threads.run(go.wait, PATIENCE), threads.run(int)
            go.set()
            assert (await first, await second) == (True, 0)


async def test_no_more_threads_than_allowed(threads: Threads) -> None:
    used = await asyncio.gather(*[threads.run(threading.get_ident) for _ in range(200)])
    assert len(set(used)) <= 4


async def test_what_was_cancelled_before_its_turn_is_not_done(threads: Threads) -> None:
    go = threading.Event()
    done: list[str] = []
    try:
        slow = [threads.run(go.wait, PATIENCE) for _ in range(4)]
        waiting = threads.run(done.append, "cancelled")
        waiting.cancel()
    finally:
        go.set()
    await asyncio.gather(*slow)
    await threads.run(done.append, "asked for")
    assert done == ["asked for"]
    assert await asyncio.gather(*[threads.run(int, "1") for _ in range(20)]) == [1] * 20  # nothing is held up by it


async def test_a_waiter_that_is_cancelled_leaves_the_others_alone(threads: Threads) -> None:
    go = threading.Event()
    slow, other = threads.run(go.wait, PATIENCE), threads.run(go.wait, PATIENCE)
    slow.cancel()
    go.set()
    assert await other is True
    assert slow.cancelled()


class Late(deque[Any]):
    """A queue into which something comes just when somebody has found it empty."""

    coming: Any = None

    def popleft(self) -> Any:
        try:
            return super().popleft()
        except IndexError:
            if self.coming is not None:
                self.append(self.coming)
                self.coming = None
            raise


async def test_no_work_is_overlooked_by_a_thread_that_goes_to_sleep(threads: Threads) -> None:
    assert await threads.run(int, "1") == 1
    queue = threads._waiting = Late()
    future = asyncio.get_running_loop().create_future()
    queue.coming = (future, int, ("2",))
    assert await threads.run(int, "1") == 1
    assert await asyncio.wait_for(future, PATIENCE) == 2


async def test_the_end_waits_for_what_was_handed_over() -> None:
    threads = Threads(2, "test")
    done: list[int] = []
    waiting = [threads.run(done.append, number) for number in range(50)]
    await asyncio.to_thread(threads.shutdown)
    assert sorted(done) == list(range(50))
    assert await asyncio.gather(*waiting) == [None] * 50
    with pytest.raises(RuntimeError):
        await threads.run(int)
