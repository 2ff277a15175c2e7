"""What comes at the same time goes together: nothing is lost, mixed up or answered early, and nobody waits alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from manglecp.invoke.journal import appending
from manglecp.invoke.threads import Threads
from manglecp.invoke.together import Together
from manglecp.store.errors import Invalid, StoreError
from manglecp.store.ledger import Note
from manglecp.store.opening import open_store

PATIENCE = 30.0


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(4, "test")
    yield made
    made.shutdown()


class Slow:
    """Work that waits until it may go on, and remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def __call__(self, numbers: Sequence[int]) -> Sequence[int | Exception]:
        self.given.append(list(numbers))
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE)
        if 13 in numbers and len(numbers) == 1:
            raise OSError("of all")
        return [ValueError(number) if number % 7 == 0 else number * 2 for number in numbers]


async def test_the_first_goes_at_once_and_what_comes_meanwhile_goes_as_one(threads: Threads) -> None:
    slow = Slow()
    together = Together(threads, slow)
    first = together.ask(1)
    assert await asyncio.to_thread(slow.begun.acquire, timeout=PATIENCE)
    others = [together.ask(number) for number in (7, 8, 9)]
    slow.go.release()
    assert await asyncio.wait_for(first, PATIENCE) == 2
    assert not any(one.done() for one in others)  # theirs is under way
    slow.go.release()
    found = await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), PATIENCE)
    assert [str(found[0]), *found[1:]] == ["7", 16, 18]
    assert slow.given == [[1], [7, 8, 9]]


async def test_an_error_of_all_is_told_to_all_and_to_nobody_after_them(threads: Threads) -> None:
    slow = Slow()
    slow.go.release(3)
    together = Together(threads, slow)
    with pytest.raises(OSError, match="of all"):
        await asyncio.wait_for(together.ask(13), PATIENCE)
    assert await asyncio.wait_for(together.ask(2), PATIENCE) == 4


async def test_who_has_gone_is_not_asked_for(threads: Threads) -> None:
    slow = Slow()
    together = Together(threads, slow)
    first = together.ask(1)
    gone, stays = together.ask(2), together.ask(3)
    gone.cancel()
    slow.go.release(2)
    assert await asyncio.wait_for(first, PATIENCE) == 2
    assert await asyncio.wait_for(stays, PATIENCE) == 6
    assert slow.given == [[1], [3]]


async def test_who_goes_while_it_is_under_way_keeps_nobody_from_the_next(threads: Threads) -> None:
    slow = Slow()
    together = Together(threads, slow)
    first = together.ask(1)
    assert await asyncio.to_thread(slow.begun.acquire, timeout=PATIENCE)
    first.cancel()
    second = together.ask(2)
    slow.go.release(2)
    assert await asyncio.wait_for(second, PATIENCE) == 4


async def test_a_crowd_goes_in_several_parts_and_in_its_order(threads: Threads) -> None:
    slow = Slow()
    slow.go.release(1_000)
    together = Together(threads, slow)
    found = await asyncio.wait_for(asyncio.gather(*[together.ask(7 * n + 1) for n in range(500)]), PATIENCE)
    assert found == [2 * (7 * n + 1) for n in range(500)]
    assert [number for part in slow.given for number in part] == [7 * n + 1 for n in range(500)]
    assert max(map(len, slow.given)) <= 64


# --- the ledger ------------------------------------------------------------------------------------------------------


async def test_entries_share_a_transaction_and_are_one_chain(threads: Threads, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite3")
    together = Together(threads, appending(store))
    await asyncio.gather(*[together.ask(Note("run", {"n": n}, f"r-{n}", "ann")) for n in range(200)])
    with store.reading() as tx:
        assert [entry.body["n"] for entry in store.ledger.rows(tx, limit=1_000)] == list(range(200))
        assert store.ledger.verify(tx).findings == []
    store.close()


async def test_an_entry_that_no_ledger_takes_keeps_no_other_out(threads: Threads, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite3")
    append = appending(store)
    bodies: list[dict[str, float]] = [{"n": 1}, {"n": float("nan")}, {"n": 3}]
    found = await threads.run(append, [Note("run", body) for body in bodies])
    assert [type(one) for one in found] == [type(None), Invalid, type(None)]
    with store.reading() as tx:
        assert [entry.body["n"] for entry in store.ledger.rows(tx)] == [1, 3]
    store.close()


async def test_a_store_that_fails_fails_for_all_who_are_written_down(threads: Threads, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite3")
    with store.writing() as tx:
        tx.execute("DROP TABLE ledger_head")
    together = Together(threads, appending(store))
    found = await asyncio.gather(*[together.ask(Note("run", {"n": n})) for n in range(5)], return_exceptions=True)
    assert all(isinstance(one, StoreError) for one in found)
    store.close()
