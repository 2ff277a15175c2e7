"""What comes at the same time goes together: nothing is lost, mixed up or answered early, and nobody waits alone."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from manglecp.invoke.journal import appending
from manglecp.invoke.threads import Threads
from manglecp.invoke.together import Together
from manglecp.store import Busy, Invalid, Note, Place, Store, StoreError, Transaction, open_database, open_store

PATIENCE = 30.0
DATABASE = open_database(":memory:")
"""That of work which needs none."""


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

    def __call__(self, _: Place, numbers: Sequence[int]) -> Sequence[int | Exception]:
        self.given.append(list(numbers))
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE)
        if 13 in numbers and len(numbers) == 1:
            raise OSError("of all")
        return [ValueError(number) if number % 7 == 0 else number * 2 for number in numbers]


async def test_the_first_goes_at_once_and_what_comes_meanwhile_goes_as_one(threads: Threads) -> None:
    slow = Slow()
    together = Together(threads, DATABASE, None, slow)
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
    together = Together(threads, DATABASE, None, slow)
    with pytest.raises(OSError, match="of all"):
        await asyncio.wait_for(together.ask(13), PATIENCE)
    assert await asyncio.wait_for(together.ask(2), PATIENCE) == 4


async def test_who_has_gone_is_not_asked_for(threads: Threads) -> None:
    slow = Slow()
    together = Together(threads, DATABASE, None, slow)
    first = together.ask(1)
    assert await asyncio.to_thread(slow.begun.acquire, timeout=PATIENCE)
    gone, stays = together.ask(2), together.ask(3)
    gone.cancel()
    slow.go.release(2)
    assert await asyncio.wait_for(first, PATIENCE) == 2
    assert await asyncio.wait_for(stays, PATIENCE) == 6
    assert slow.given == [[1], [3]]


async def test_who_goes_while_it_is_under_way_keeps_nobody_from_the_next(threads: Threads) -> None:
    slow = Slow()
    together = Together(threads, DATABASE, None, slow)
    first = together.ask(1)
    assert await asyncio.to_thread(slow.begun.acquire, timeout=PATIENCE)
    first.cancel()
    second = together.ask(2)
    slow.go.release(2)
    assert await asyncio.wait_for(second, PATIENCE) == 4


async def test_a_crowd_goes_in_several_parts_and_in_its_order(threads: Threads) -> None:
    slow = Slow()
    slow.go.release(1_000)
    together = Together(threads, DATABASE, None, slow)
    found = await asyncio.wait_for(asyncio.gather(*[together.ask(7 * n + 1) for n in range(500)]), PATIENCE)
    assert found == [2 * (7 * n + 1) for n in range(500)]
    assert [number for part in slow.given for number in part] == [7 * n + 1 for n in range(500)]
    assert max(map(len, slow.given)) <= 64


# --- the ledger ------------------------------------------------------------------------------------------------------


async def test_entries_share_a_transaction_and_are_one_chain(threads: Threads, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite3")
    together = Together(threads, store.database, None, appending(store))
    await asyncio.gather(*[together.ask(Note("run", {"n": n}, f"r-{n}", "ann")) for n in range(200)])
    with store.reading() as tx:
        assert [entry.body["n"] for entry in store.ledger.rows(tx, limit=1_000)] == list(range(200))
        assert store.ledger.verify(tx).findings == []
    store.close()


async def test_an_entry_that_no_ledger_takes_keeps_no_other_out(threads: Threads, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite3")
    append = appending(store)
    bodies: list[dict[str, float]] = [{"n": 1}, {"n": float("nan")}, {"n": 3}]
    found = await threads.run(append, store.database, [Note("run", body) for body in bodies])
    assert [type(one) for one in found] == [type(None), Invalid, type(None)]
    with store.reading() as tx:
        assert [entry.body["n"] for entry in store.ledger.rows(tx)] == [1, 3]
    store.close()


async def test_a_store_that_fails_fails_for_all_who_are_written_down(threads: Threads, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite3")
    with store.writing() as tx:
        tx.execute("DROP TABLE ledger_head")
    together = Together(threads, store.database, None, appending(store))
    found = await asyncio.gather(*[together.ask(Note("run", {"n": n})) for n in range(5)], return_exceptions=True)
    assert all(isinstance(one, StoreError) for one in found)
    store.close()


class Failing:
    """A store that takes some transactions, and no more."""

    def __init__(self, store: Store, takes: int) -> None:
        self.database, self.ledger = store.database, store.ledger
        self._takes = takes

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        self._takes -= 1
        if self._takes < 0:
            raise Busy("held by another")
        with self.database.writing() as tx:
            yield tx


async def test_what_is_written_one_by_one_fails_one_by_one(threads: Threads, tmp_path: Path) -> None:
    """Nobody hears that nothing was written of what is there."""
    store = open_store(tmp_path / "store.sqlite3")
    append = appending(cast(Store, Failing(store, 2)))
    bodies: list[dict[str, float]] = [{"n": 1}, {"n": float("nan")}, {"n": 3}, {"n": 4}]
    found = await threads.run(append, store.database, [Note("run", body) for body in bodies])
    assert [type(one) for one in found] == [type(None), Invalid, Busy, Busy]
    with store.reading() as tx:
        assert [entry.body["n"] for entry in store.ledger.rows(tx)] == [1]
    store.close()


# --- without waiting -------------------------------------------------------------------------------------------------


class Beside:
    """A store on a file, with a place where nobody waits, and what was done where."""

    def __init__(self, store: Store, threads: Threads) -> None:
        self.store = store
        self.here = store.database.at_once()
        self.done_in: list[str] = []
        self._append = appending(store)
        self.together = Together(threads, store.database, self.here, self._recorded)

    def _recorded(self, place: Place, notes: Sequence[Note]) -> Sequence[StoreError | None]:
        found = self._append(place, notes)
        self.done_in.append(threading.current_thread().name)
        return found

    @property
    def entries(self) -> list[int]:
        with self.store.reading() as tx:
            assert self.store.ledger.verify(tx).findings == []
            return [entry.body["n"] for entry in self.store.ledger.rows(tx, limit=1_000)]


@pytest.fixture
def beside(threads: Threads, tmp_path: Path) -> Iterator[Beside]:
    store = open_store(tmp_path / "store.sqlite3")
    beside = Beside(store, threads)
    yield beside
    assert beside.here is not None
    beside.here.close()
    store.close()


async def test_what_does_not_wait_needs_no_thread(beside: Beside) -> None:
    await asyncio.gather(*[beside.together.ask(Note("run", {"n": n})) for n in range(40)])
    assert beside.entries == list(range(40))
    assert set(beside.done_in) == {threading.current_thread().name}
    assert len(beside.done_in) == 3  # sixteen at a time: others get their turn between


async def test_what_would_wait_is_done_in_a_thread_and_once(beside: Beside) -> None:
    with beside.store.writing():
        futures = [beside.together.ask(Note("run", {"n": n})) for n in range(3)]
        for _ in range(10):  # until it was tried here
            await asyncio.sleep(0)
        late = beside.together.ask(Note("run", {"n": 3}))
    await asyncio.wait_for(asyncio.gather(*futures, late), PATIENCE)
    assert beside.entries == [0, 1, 2, 3]
    assert beside.done_in[0].startswith("test-")


async def test_an_entry_that_no_ledger_takes_is_told_alone_here_as_well(beside: Beside) -> None:
    bodies: list[dict[str, float]] = [{"n": 1}, {"n": float("nan")}, {"n": 3}]
    asked = [beside.together.ask(Note("run", body)) for body in bodies]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in found] == [type(None), Invalid, type(None)]
    assert beside.entries == [1, 3]


async def test_a_store_that_fails_here_fails_for_all(beside: Beside) -> None:
    with beside.store.writing() as tx:
        tx.execute("DROP TABLE ledger_head")
    asked = [beside.together.ask(Note("run", {"n": n})) for n in range(5)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, StoreError) and not isinstance(one, Busy) for one in found)


async def test_the_log_does_not_grow_with_what_is_written(beside: Beside, tmp_path: Path) -> None:
    body = {"n": 1, "why": "w" * 4_000}
    for _ in range(700):
        await asyncio.gather(*[beside.together.ask(Note("run", body)) for _ in range(16)])
    assert (tmp_path / "store.sqlite3-wal").stat().st_size < 700 * 16 * 4_000 / 2


async def test_nobody_waits_for_threads_that_have_ended(threads: Threads) -> None:
    slow = Slow()
    slow.go.release(9)
    together = Together(threads, DATABASE, None, slow)
    assert await asyncio.wait_for(together.ask(1), PATIENCE) == 2
    threads.shutdown()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ended"):
            await asyncio.wait_for(together.ask(2), PATIENCE)


async def test_what_was_written_when_the_threads_had_ended_was_written(beside: Beside, threads: Threads) -> None:
    threads.shutdown()
    for first in range(0, 320, 16):
        asked = [beside.together.ask(Note("run", {"n": n})) for n in range(first, first + 16)]
        assert await asyncio.wait_for(asyncio.gather(*asked), PATIENCE) == [None] * 16
    assert beside.entries == list(range(320))


async def test_nobody_waits_for_a_place_that_is_closed(beside: Beside) -> None:
    assert beside.here is not None
    await asyncio.wait_for(beside.together.ask(Note("run", {"n": 1})), PATIENCE)
    beside.here.close()
    for _ in range(2):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            await asyncio.wait_for(beside.together.ask(Note("run", {"n": 2})), PATIENCE)
    assert beside.entries == [1]


async def test_those_who_come_a_moment_later_go_with_the_first(beside: Beside) -> None:
    async def late(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await beside.together.ask(Note("run", {"n": turns}))

    await asyncio.gather(*map(late, range(4)))
    assert beside.entries == [0, 1, 2, 3]
    assert len(beside.done_in) == 1
