"""Evaluations in threads: in their order, together where that is cheaper, and none at the cost of another."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from manglecp.intent import ANONYMOUS
from manglecp.invoke import Invoker
from manglecp.server.evaluating import Evaluating, Turn
from manglecp.server.settings import ServerSettings
from manglecp.wire import WireError
from manglecp.wire.messages import IntentRequest
from tests.server import desk as server

PATIENCE = 60.0
PLAIN = ServerSettings(evaluations=2, waiting=100, longest_wait=PATIENCE)


class Answers:
    """What an invoker does with requests, which are numbers here."""

    def __init__(self, work: Callable[[int], object] = lambda number: number) -> None:
        self._work = work
        self.began: list[int] = []
        self.kept: list[list[int]] = []
        self.broken: set[int] = set()

    def answer(self, request: int, _: object) -> tuple[object, int]:
        self.began.append(request)
        return self._work(request), request

    def announce(self, several: Sequence[int]) -> list[Exception | None]:
        self.kept.append(list(several))
        return [RuntimeError("not kept") if one in self.broken else None for one in several]


class Desk:
    def __init__(self, evaluating: Evaluating) -> None:
        self.evaluating = evaluating
        self.answers: dict[int, Any] = {}
        self._changed = asyncio.Event()

    def ask(self, invoker: Answers, *numbers: int) -> list[Turn]:
        asked = [(cast("Invoker", invoker), cast("IntentRequest", number), ANONYMOUS) for number in numbers]
        return [self.evaluating.ask(*one, partial(self._told, one[1])) for one in asked]

    def _told(self, number: Any, answer: Any) -> None:
        assert number not in self.answers
        self.answers[number] = answer
        self._changed.set()

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def desk(settings: ServerSettings = PLAIN) -> AsyncIterator[Desk]:
    evaluating = Evaluating(settings)
    yield Desk(evaluating)
    async with asyncio.timeout(PATIENCE):
        await evaluating.over()
    evaluating.shutdown()


class Gate:
    """Holds up the evaluations of some numbers."""

    def __init__(self, *held: int) -> None:
        self._held = set(held)
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, number: int) -> int:
        if number in self._held:
            self.entered.release()
            assert self.open.wait(PATIENCE)
        return number

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)


async def test_all_are_answered_in_their_order_and_kept_before() -> None:
    invoker = Answers()
    async with desk() as d:
        d.ask(invoker, *range(50))
        await d.until(lambda: len(d.answers) == 50)
        assert invoker.began == list(range(50))
        assert [one for several in invoker.kept for one in several] == list(range(50))
        assert d.answers == {number: number for number in range(50)}
        assert (d.evaluating.running, d.evaluating.waiting) == (0, 0)


async def test_those_that_wait_go_together() -> None:
    """While a thread is busy others come; it takes them, and they are kept at once."""
    gate = Gate(0)
    invoker = Answers(gate)
    async with desk(ServerSettings(evaluations=1, waiting=100, longest_wait=PATIENCE)) as d:
        d.ask(invoker, 0)
        await gate.reached()
        d.ask(invoker, 1, 2, 3)
        gate.open.set()
        await d.until(lambda: len(d.answers) == 4)
        assert len(invoker.kept) < 4


async def test_nobody_waits_for_the_long_evaluation_of_another() -> None:
    """Neither who comes after it, nor who was finished before it in the same thread."""
    gate = Gate(10, 11)
    invoker = Answers(gate)
    async with desk(ServerSettings(evaluations=3, waiting=100, longest_wait=PATIENCE)) as d:
        d.ask(invoker, 0, 10, 1, 11, 2)
        await d.until(lambda: {0, 1, 2} <= d.answers.keys())
        assert d.answers.keys() == {0, 1, 2}
        gate.open.set()
        await d.until(lambda: len(d.answers) == 5)


async def test_an_error_is_of_the_one_that_has_it() -> None:
    def work(number: int) -> int:
        if number == 1:
            raise WireError("evaluation_failed", "no")
        return number

    invoker = Answers(work)
    invoker.broken = {2}
    async with desk() as d:
        d.ask(invoker, 0, 1, 2, 3)
        await d.until(lambda: len(d.answers) == 4)
        assert (d.answers[0], d.answers[3]) == (0, 3)
        assert (type(d.answers[1]), type(d.answers[2])) == (WireError, RuntimeError)
        assert [one for several in invoker.kept for one in several] == [0, 2, 3]


async def test_each_is_kept_by_the_one_that_was_asked() -> None:
    gate = Gate(0)
    old, new = Answers(gate), Answers()
    async with desk(ServerSettings(evaluations=1, waiting=100, longest_wait=PATIENCE)) as d:
        d.ask(old, 0)
        await gate.reached()
        d.ask(old, 1)
        d.ask(new, 2, 3)
        d.ask(old, 4)
        gate.open.set()
        await d.until(lambda: len(d.answers) == 5)
        assert [one for several in old.kept for one in several] == [0, 1, 4]
        assert [one for several in new.kept for one in several] == [2, 3]


async def test_what_is_withdrawn_before_it_began_never_does() -> None:
    gate = Gate(0)
    invoker = Answers(gate)
    async with desk(ServerSettings(evaluations=1, waiting=100, longest_wait=PATIENCE)) as d:
        [first] = d.ask(invoker, 0)
        await gate.reached()
        turns = d.ask(invoker, 1, 2, 3)
        assert d.evaluating.withdraw(turns[1])
        assert not d.evaluating.withdraw(turns[1])
        assert not d.evaluating.withdraw(first)
        assert d.evaluating.waiting == 2
        gate.open.set()
        await d.until(lambda: len(d.answers) == 3)
        assert invoker.began == [0, 1, 3]


@pytest.mark.req("ERR-30")
async def test_what_cannot_begin_soon_is_refused() -> None:
    gate = Gate(0, 1)
    invoker = Answers(gate)
    async with desk(ServerSettings(evaluations=2, waiting=3, longest_wait=0.05)) as d:
        d.ask(invoker, 0, 1, 2, 3, 4)
        with pytest.raises(WireError, match="busy") as refused:
            d.ask(invoker, 5)
        assert refused.value.retry_after_ms is not None
        await d.until(lambda: {2, 3, 4} <= d.answers.keys())
        assert {d.answers[number].code for number in (2, 3, 4)} == {"rate_limited"}
        gate.open.set()
        await d.until(lambda: len(d.answers) == 5)
        assert sorted(invoker.began) == [0, 1]


async def test_an_answer_belongs_to_the_trace_of_its_question() -> None:
    belongs: contextvars.ContextVar[str] = contextvars.ContextVar("belongs", default="nowhere")
    async with desk() as d:
        found: list[str] = []
        invoker, request = cast("Invoker", Answers()), cast("IntentRequest", 0)
        for name in ("one", "two"):
            context = contextvars.copy_context()
            context.run(belongs.set, name)
            context.run(d.evaluating.ask, invoker, request, ANONYMOUS, lambda _: found.append(belongs.get()))
        await d.evaluating.over()
        assert sorted(found) == ["one", "two"]


async def test_the_end_is_when_all_are_answered() -> None:
    gate = Gate(0)
    async with desk() as d:
        d.ask(Answers(gate), 0)
        over = asyncio.create_task(d.evaluating.over())
        await gate.reached()
        assert not over.done()
        gate.open.set()
        await asyncio.wait_for(over, PATIENCE)
        assert d.answers == {0: 0}


async def test_nothing_is_left_of_what_no_thread_could_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked is told, the next one is answered, and nobody waits for it when the server goes."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with server.desk() as d, asyncio.timeout(PATIENCE):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            told = await d.core.session("http").handle(server.encoded(server.intent("a")))
        assert told is not None
        assert told.code == "internal_error"
        told = await d.core.session("http").handle(server.encoded(server.intent("b")))
        assert told is not None
        assert told.code is None
        assert await d.core.drain(PATIENCE)
