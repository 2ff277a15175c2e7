"""The evaluation scheduler: a thread pool behind a bounded queue, in order, with expiry and withdrawal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from manglecp.server.config import ServerSettings
from manglecp.server.evaluation import EvaluationScheduler
from manglecp.wire import WireError
from tests.deadlines import patience
from tests.server import desk as server

PATIENCE = patience(60.0)
PLAIN = ServerSettings(evaluation_threads=2, max_queued_evaluations=100, max_queue_wait=PATIENCE)
ONE = ServerSettings(evaluation_threads=1, max_queued_evaluations=100, max_queue_wait=PATIENCE)


class Work:
    """Returns its number; some of them wait until the gate is opened."""

    def __init__(self, *held: int) -> None:
        self._held = set(held)
        self.began: list[int] = []
        self.done: list[int] = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, number: int) -> int:
        self.began.append(number)
        if number in self._held:
            self.entered.release()
            assert self.open.wait(PATIENCE)
        return number

    def submit(self, scheduler: EvaluationScheduler, number: int) -> asyncio.Task[int]:
        return asyncio.create_task(scheduler.run(self, number, on_end=lambda: self.done.append(number)))

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)


@asynccontextmanager
async def scheduler(settings: ServerSettings = PLAIN) -> AsyncIterator[EvaluationScheduler]:
    made = EvaluationScheduler(settings)
    async with asyncio.timeout(PATIENCE):
        yield made
        await made.wait_until_idle()
    made.shutdown()


async def test_all_run_in_their_order() -> None:
    work = Work()
    async with scheduler(ONE) as one:
        results = await asyncio.gather(*(work.submit(one, number) for number in range(50)))
        assert results == work.began == list(range(50))
        assert (one.running_count, one.queue_length) == (0, 0)
    assert sorted(work.done) == list(range(50))


async def test_a_long_evaluation_does_not_hold_up_others() -> None:
    work = Work(0)
    async with scheduler() as two:
        long = work.submit(two, 0)
        assert await asyncio.gather(*(work.submit(two, number) for number in range(1, 5))) == [1, 2, 3, 4]
        assert not long.done()
        work.open.set()
        assert await long == 0


async def test_an_error_belongs_to_its_caller() -> None:
    def fail() -> None:
        raise WireError("evaluation_failed", "no")

    work = Work()
    async with scheduler() as two:
        failing = asyncio.create_task(two.run(fail, on_end=lambda: work.done.append(-1)))
        assert await work.submit(two, 1) == 1
        with pytest.raises(WireError, match="no"):
            await failing
    assert sorted(work.done) == [-1, 1]


async def test_what_is_cancelled_before_it_began_never_does() -> None:
    work = Work(0)
    async with scheduler(ONE) as one:
        first = work.submit(one, 0)
        await work.reached()
        futures = [work.submit(one, number) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        futures[1].cancel()
        first.cancel()
        while one.queue_length != 2:
            await asyncio.sleep(0)
        assert work.done == [2]  # the first one still runs in its thread
        work.open.set()
        assert [await futures[0], await futures[2]] == [1, 3]
        assert work.began == [0, 1, 3]
    assert sorted(work.done) == [0, 1, 2, 3]


@pytest.mark.req("ERR-30")
async def test_what_cannot_begin_soon_is_refused() -> None:
    work = Work(0, 1)
    async with scheduler(ServerSettings(evaluation_threads=2, max_queued_evaluations=3, max_queue_wait=0.05)) as two:
        futures = [work.submit(two, number) for number in range(5)]
        with pytest.raises(WireError, match="busy") as refused:
            await work.submit(two, 5)
        assert refused.value.retry_after_ms is not None
        for future in futures[2:]:
            with pytest.raises(WireError, match="busy") as refused:
                await future
            assert refused.value.code == "rate_limited"
        work.open.set()
        assert [await future for future in futures[:2]] == [0, 1]
        assert sorted(work.began) == [0, 1]
    assert sorted(work.done) == list(range(6))


async def test_it_is_drained_when_all_threads_are_done() -> None:
    work = Work(0)
    async with scheduler() as two:
        future = work.submit(two, 0)
        await work.reached()
        future.cancel()
        drained = asyncio.create_task(two.wait_until_idle())
        await asyncio.sleep(0.01)
        assert not drained.done()
        work.open.set()
        await drained


async def test_a_thread_that_the_system_refuses_fails_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ask: Callable[[str], bytes] = lambda name: server.encoded(server.intent(name))  # noqa: E731
    async with server.desk() as d, asyncio.timeout(PATIENCE):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            reply = await d.core.session("http").handle(ask("a"))
        assert reply is not None
        assert reply.code == "internal_error"
        reply = await d.core.session("http").handle(ask("b"))
        assert reply is not None
        assert reply.code is None
        assert await d.core.drain(PATIENCE)
