"""Group commit: nothing is lost, mixed up or delivered before its commit, and an error reaches only its own caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from manglecp.store import Busy, Invalid, NewEntry, Store, StoreError, Transaction, Writer, open_store
from manglecp.store.errors import CommitUnknown
from tests.deadlines import patience

PATIENCE = patience(30.0)


@pytest.fixture
def store(store_where: str) -> Iterator[Store]:
    store = open_store(store_where)
    with store.write_transaction() as tx:
        tx.execute("CREATE TABLE t (n BIGINT PRIMARY KEY)")
    yield store
    store.close()


class Insert:
    """Insert a number; remember the transactions that it was called with."""

    def __init__(self, number: int, calls: list[tuple[int, Transaction]] | None = None) -> None:
        self.number = number
        self.calls = [] if calls is None else calls

    def __call__(self, tx: Transaction) -> int:
        self.calls.append((self.number, tx))
        if self.number < 0:
            raise ValueError(self.number)
        tx.execute("INSERT INTO t VALUES (?)", (self.number,))
        return self.number * 2


def numbers(store: Store) -> list[int]:
    with store.read_transaction() as tx:
        return [row[0] for row in tx.execute("SELECT n FROM t ORDER BY n")]


def bodies(store: Store) -> list[int]:
    with store.read_transaction() as tx:
        return [int(entry.body["n"]) for entry in store.ledger.rows(tx)]


def entry(number: int) -> NewEntry:
    return NewEntry("audit", {"n": number})


class Gate:
    """A function that occupies the writer thread until it is released."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, _: Transaction) -> None:
        self.begun.set()
        assert self.go.wait(PATIENCE)


async def occupied(work: Callable[[Callable[[Transaction], None]], object]) -> tuple[Gate, asyncio.Task[None]]:
    gate = Gate()
    task = asyncio.ensure_future(work(gate))  # type: ignore[call-overload]
    assert await asyncio.to_thread(gate.begun.wait, PATIENCE)
    return gate, task


async def test_concurrent_writes_share_a_transaction_in_their_order(store: Store) -> None:
    calls: list[tuple[int, Transaction]] = []
    found = await asyncio.gather(*[store.writer.write(Insert(n, calls), [entry(n)]) for n in range(10)])
    assert found == [n * 2 for n in range(10)]
    assert [n for n, _ in calls] == list(range(10))
    assert len({id(tx) for _, tx in calls}) == 1
    assert numbers(store) == bodies(store) == list(range(10))
    with store.read_transaction() as tx:
        assert store.ledger.verify(tx).sound


async def test_a_result_is_delivered_after_the_commit(store: Store) -> None:
    for n in range(20):
        await store.writer.write(Insert(n))
        assert numbers(store)[-1] == n
        assert await store.writer.read(lambda tx: tx.execute("SELECT max(n) FROM t").fetchone()[0]) == n


async def test_what_comes_while_a_batch_is_under_way_is_the_next_one(store: Store) -> None:
    gate, first = await occupied(store.writer.write)
    calls: list[tuple[int, Transaction]] = []
    others = [asyncio.ensure_future(store.writer.write(Insert(n, calls))) for n in range(100)]
    await asyncio.sleep(0.01)
    assert not calls
    gate.go.set()
    await asyncio.gather(first, *others)
    sizes = [sum(one is tx for _, one in calls) for tx in dict.fromkeys(tx for _, tx in calls)]
    assert sizes == [64, 36]
    assert numbers(store) == list(range(100))


async def test_an_error_is_that_of_its_own_caller(store: Store) -> None:
    calls: list[tuple[int, Transaction]] = []
    jobs = [store.writer.write(Insert(n, calls), [entry(n)]) for n in (1, 2, -3, 4, 4)]
    found = await asyncio.gather(*jobs, return_exceptions=True)
    assert found[:2] == [2, 4]
    assert isinstance(found[2], ValueError)
    assert found[3] == 8
    assert isinstance(found[4], StoreError)  # twice the same key
    assert numbers(store) == bodies(store) == [1, 2, 4]


async def test_an_entry_that_the_ledger_refuses_undoes_only_its_own_write(store: Store) -> None:
    refused = NewEntry("audit", {"n": float("nan")})
    jobs = [store.writer.write(Insert(1), [entry(1)]), store.writer.write(Insert(2), [refused])]
    found = await asyncio.gather(*jobs, store.writer.append([entry(3)]), return_exceptions=True)
    assert found[0] == 2
    assert isinstance(found[1], Invalid)
    assert found[2] is None
    assert (numbers(store), bodies(store)) == ([1], [1, 3])


async def test_a_store_that_cannot_begin_fails_once_for_all(tmp_path: Path) -> None:
    blocked = open_store(tmp_path / "store.sqlite3", patience=0.2)
    other = open_store(tmp_path / "store.sqlite3")
    begun = asyncio.get_running_loop().time()
    with other.write_transaction():
        found = await asyncio.gather(*[blocked.writer.append([entry(n)]) for n in range(20)], return_exceptions=True)
    assert {type(one) for one in found} == {Busy}
    assert asyncio.get_running_loop().time() - begun < 20 * 0.2
    await blocked.writer.append([entry(1)])
    assert bodies(blocked) == [1]
    other.close()
    blocked.close()


async def test_a_batch_that_may_have_been_committed_is_not_repeated(store: Store) -> None:
    def unsure(_: Transaction) -> None:
        raise CommitUnknown("the connection broke")

    calls: list[tuple[int, Transaction]] = []
    jobs = [store.writer.write(Insert(1, calls)), store.writer.write(unsure)]
    found = await asyncio.gather(*jobs, return_exceptions=True)
    assert {type(one) for one in found} == {CommitUnknown}
    assert len(calls) == 1


async def test_what_is_cancelled_before_it_began_is_not_done(store: Store) -> None:
    gate, first = await occupied(store.writer.write)
    jobs = [asyncio.ensure_future(store.writer.write(Insert(n))) for n in range(3)]
    await asyncio.sleep(0)
    jobs[1].cancel()
    first.cancel()  # under way: it is done, and keeps nobody from the next
    gate.go.set()
    found = await asyncio.gather(*jobs, return_exceptions=True)
    assert isinstance(found[1], asyncio.CancelledError)
    assert numbers(store) == [0, 2]


async def test_a_job_that_raises_stop_iteration_fails_alone(store: Store) -> None:
    def exhausted(_: Transaction) -> None:
        next(iter(()))

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await store.writer.write(exhausted)
        assert await store.writer.write(Insert(1)) == 2


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
async def test_a_read_does_not_wait_for_a_write(store: Store) -> None:
    gate, writing = await occupied(store.writer.write)
    async with asyncio.timeout(PATIENCE / 2):
        for _ in range(2):  # with a new connection, and with one that was given back
            assert await store.writer.read(lambda tx: tx.execute("SELECT count(*) FROM t").fetchone()[0]) == 0
    gate.go.set()
    await writing


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
async def test_a_long_read_delays_no_write(store: Store) -> None:
    gate, reading = await occupied(store.writer.read)
    async with asyncio.timeout(PATIENCE / 2):
        await store.writer.write(Insert(1))
    gate.go.set()
    await reading


async def test_draining_waits_for_what_was_submitted(store: Store) -> None:
    jobs = [asyncio.ensure_future(store.writer.write(Insert(n))) for n in range(200)]
    await asyncio.sleep(0)
    await store.writer.drain()
    assert numbers(store) == list(range(200))
    await asyncio.gather(*jobs)
    await store.writer.drain()


async def test_a_writer_that_is_closed_refuses(store: Store) -> None:
    writer = Writer(store.database, store.ledger, store.decisions)
    await writer.append([entry(1)])
    writer.close()
    with pytest.raises(RuntimeError, match="shutdown"):
        await asyncio.wait_for(writer.append([entry(2)]), PATIENCE)
    assert bodies(store) == [1]


async def test_a_system_without_threads_fails_what_was_submitted_and_nothing_after(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start"):
            await asyncio.wait_for(store.writer.write(Insert(1)), PATIENCE)
    await store.writer.write(Insert(2))
    assert numbers(store) == [2]


def test_one_event_loop_after_another(store: Store) -> None:
    for n in range(3):
        asyncio.run(store.writer.write(Insert(n)))
    assert numbers(store) == [0, 1, 2]


async def test_two_event_loops_at_a_time_are_refused(store: Store) -> None:
    gate, first = await occupied(store.writer.write)
    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, store.writer.write(Insert(1)))
    gate.go.set()
    await first
