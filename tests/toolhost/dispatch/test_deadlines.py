"""Deadlines by one timer: whoever is late is told, once and in time, and nobody else."""

import asyncio
from collections.abc import Awaitable, Callable

from manglecp.toolhost.dispatch.responses import DeadlineTimer, Request, ResponseMatcher
from tests.deadlines import patience

Work = Callable[["Watched"], Awaitable[None]]


class Watched:
    """Requests of one host by their names, and which of them were late."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.pairing = ResponseMatcher()
        self.requests: dict[str, Request] = {}
        self.late: list[str] = []
        self.troubles: list[str] = []
        self.on_late: Callable[[str], None] = lambda _: None
        self._heard = asyncio.Event()
        self.deadlines = DeadlineTimer(self.loop, self.pairing, self._overdue)
        self.loop.set_exception_handler(lambda _, said: self.troubles.append(str(said["exception"])))

    def ask(self, name: str, seconds: float) -> None:
        request = self.requests[name] = Request(b"x\n", self.loop.create_future(), name)
        request.written(2)
        self.pairing.add(request)
        self.deadlines.set(request, self.loop.time() + seconds)

    async def until(self, *names: str) -> None:
        """Wait until so many are late; and then these are, in this order."""
        async with asyncio.timeout(patience(20)):
            while len(self.late) < len(names):
                self._heard.clear()
                await self._heard.wait()
        assert self.late == list(names)

    def _overdue(self, request: Request) -> None:
        assert request.call_id is not None
        self.late.append(request.call_id)
        self._heard.set()
        self.on_late(request.call_id)


def watching(work: Work) -> None:
    async def main() -> None:
        watched = Watched()
        await work(watched)
        watched.deadlines.close()

    asyncio.run(main())


def test_who_is_late_is_told_once_and_the_earliest_first() -> None:
    async def work(watched: Watched) -> None:
        watched.ask("late", 0.06)
        watched.ask("later", 0.09)
        watched.ask("first", 0.0)
        watched.ask("never", 1_000.0)
        await watched.until("first", "late", "later")

    watching(work)


def test_those_whose_time_is_over_together_are_told_by_their_deadlines() -> None:
    async def work(watched: Watched) -> None:
        now = watched.loop.time()
        for name, seconds in (("c", -1.0), ("a", -3.0), ("b", -2.0)):
            watched.ask(name, 1_000.0)
            watched.requests[name].deadline = now + seconds
        watched.ask("z", 0.0)
        await watched.until("a", "b", "c", "z")

    watching(work)


def test_an_answer_in_time_is_no_delay_and_the_next_deadline_still_counts() -> None:
    async def work(watched: Watched) -> None:
        watched.ask("answered", 0.01)
        watched.pairing.feed(b'{"call_id":"answered"}\n')
        watched.ask("settled", 0.02)
        watched.requests["settled"].settle()
        watched.ask("late", 0.05)
        await watched.until("late")

    watching(work)


def test_whom_another_ones_delay_has_settled_is_not_late() -> None:
    async def work(watched: Watched) -> None:
        watched.on_late = lambda _: watched.requests["second"].settle()
        watched.ask("second", 0.0)
        watched.ask("first", -1.0)
        watched.ask("third", 0.03)
        await watched.until("first", "third")

    watching(work)


def test_one_whose_time_is_prolonged_is_late_again() -> None:
    async def work(watched: Watched) -> None:
        def prolong(_: str) -> None:
            if len(watched.late) == 1:
                watched.deadlines.set(watched.requests["a"], watched.loop.time() + 0.02)

        watched.on_late = prolong
        watched.ask("a", 0.0)
        await watched.until("a", "a")

    watching(work)


def test_a_failure_over_one_costs_nobody_else_their_deadline() -> None:
    async def work(watched: Watched) -> None:
        def fail(name: str) -> None:
            if name == "bad":
                raise RuntimeError("no")

        watched.on_late = fail
        watched.ask("bad", -1.0)
        watched.ask("good", 0.0)
        watched.ask("later", 0.03)
        await watched.until("bad", "good", "later")
        assert watched.troubles == ["no"]

    watching(work)


def test_after_the_end_nobody_is_late() -> None:
    async def work(watched: Watched) -> None:
        watched.ask("a", 0.0)
        watched.deadlines.close()
        await asyncio.sleep(0.02)
        assert watched.late == []

    watching(work)
