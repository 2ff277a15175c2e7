"""A worker that is told to stop claims nothing more, however much there is."""

from __future__ import annotations

import asyncio

import pytest

from manglecp.invoke.worker import Worker


class Endless:
    """There always is another run. After the third one somebody says stop."""

    def __init__(self) -> None:
        self.taken = 0
        self.worker = Worker([self], at_once=1)  # type: ignore[list-item]  # all that a worker asks of an invoker

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
