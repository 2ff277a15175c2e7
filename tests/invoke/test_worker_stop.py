"""A worker that is told to stop claims nothing more, however much there is."""

from __future__ import annotations

import asyncio

import pytest

from manglecp.invoke.invoker import Worker
from tests.deadlines import patience


class Endless:
    """There always is another run. After the third one somebody says stop."""

    def __init__(self) -> None:
        self.taken = 0
        self.worker = Worker([self], at_once=1)  # type: ignore[list-item]

    async def take_over(self) -> str:
        self.taken += 1
        if self.taken == 3:
            self.worker.stop()
        await asyncio.sleep(0)
        assert self.taken <= 3, "it goes on"
        return f"r-{self.taken}"


@pytest.mark.parametrize("how", ["run", "drain"])
async def test_a_worker_ends_after_the_run_under_way(how: str) -> None:
    endless = Endless()
    await getattr(endless.worker, how)()
    assert endless.taken == 3


class Unable(Endless):
    """The second run cannot be taken over."""

    async def take_over(self) -> str:
        run = await super().take_over()
        if self.taken == 2:
            raise KeyError(run)
        return run


async def test_one_run_that_cannot_be_taken_over_keeps_no_others_from_it() -> None:
    unable = Unable()
    async with asyncio.timeout(patience(60)):
        await unable.worker.run()
    assert unable.taken == 3
