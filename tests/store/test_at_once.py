"""Short transactions of who must not wait: as good as all others, and nobody ever waits for them."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from manglecp.store.at_once import SqliteAtOnce
from manglecp.store.errors import Busy, StoreError
from manglecp.store.migrations import Part
from manglecp.store.sqlite import SqliteDatabase
from manglecp.store.transactions import Failures

PATIENCE = 60.0
"""Far longer than anything here may take."""
PARTS = [Part("t", (("CREATE TABLE t (x INTEGER NOT NULL UNIQUE, y TEXT) STRICT",),))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(path, parts=PARTS, patience=PATIENCE)
    yield database
    database.close()


@pytest.fixture
def here(database: SqliteDatabase) -> Iterator[SqliteAtOnce]:
    here = database.at_once()
    assert here is not None
    yield here
    here.close()


def insert(here: SqliteAtOnce | SqliteDatabase, *numbers: int) -> None:
    with here.writing() as tx:
        for number in numbers:
            tx.execute("INSERT INTO t VALUES (?, ?)", (number, "y" * 2_000))


def in_another_thread(work: Callable[..., object], *given: Any) -> None:
    thread = threading.Thread(target=work, args=given, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def turn_taken(turn: threading.RLock) -> None:
    with turn:
        pass


def numbers(here: SqliteAtOnce | SqliteDatabase) -> list[int]:
    with here.glancing() as tx:
        return [row[0] for row in tx.execute("SELECT x FROM t ORDER BY x")]


def test_all_see_what_all_have_written(database: SqliteDatabase, here: SqliteAtOnce) -> None:
    insert(here, 1)
    insert(database, 2)
    insert(here, 3)
    assert numbers(here) == numbers(database) == [1, 2, 3]


def test_a_block_that_raises_changes_nothing(database: SqliteDatabase, here: SqliteAtOnce) -> None:
    with pytest.raises(StoreError, match="does not admit"):
        insert(here, 1, 2, 1)
    in_another_thread(insert, database, 2)  # the turn was given back
    insert(here, 3)
    assert numbers(here) == [2, 3]


def test_nobody_waits_for_this_process(database: SqliteDatabase, path: Path) -> None:
    here = SqliteDatabase(path, parts=PARTS, patience=PATIENCE).at_once()  # of another database object: its own turn
    assert here is not None
    begun = time.monotonic()
    with database.writing() as tx:
        tx.execute("INSERT INTO t VALUES (1, '')")
        with pytest.raises(Busy):
            insert(here, 2)
        assert numbers(here) == []  # reading goes on meanwhile
    assert time.monotonic() - begun < PATIENCE / 2
    insert(here, 3)
    assert numbers(database) == [1, 3]
    here.close()


def test_nobody_waits_for_another_thread(database: SqliteDatabase, here: SqliteAtOnce) -> None:
    writing, over = threading.Event(), threading.Event()

    def write() -> None:
        with database.writing() as tx:
            writing.set()
            assert over.wait(PATIENCE)
            tx.execute("INSERT INTO t VALUES (1, '')")

    thread = threading.Thread(target=write)
    thread.start()
    assert writing.wait(PATIENCE)
    begun = time.monotonic()
    with pytest.raises(Busy, match="another thread"):
        insert(here, 2)
    assert time.monotonic() - begun < PATIENCE / 2
    over.set()
    thread.join()
    assert numbers(here) == [1]


def test_the_log_is_moved_in_time_and_not_here(database: SqliteDatabase, here: SqliteAtOnce, path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    due = []
    for number in range(9_000):
        insert(here, number)
        if here.tidying_due:
            due.append(number)
            before = path.stat().st_size
            assert not here.tidying_due  # it is said once
            database.tidy()
            assert path.stat().st_size > before  # nothing was moved since the last time
    assert len(due) >= 4
    assert log.stat().st_size < 9_000 * 4_096  # it began anew, and has not a page for each row
    assert len(numbers(database)) == 9_000


def beginning(path: Path) -> bytes:
    """Of the log: another one each time that it begins anew."""
    with path.with_name(f"{path.name}-wal").open("rb") as log:
        return log.read(32)


def test_the_log_begins_anew_where_it_is_moved(database: SqliteDatabase, here: SqliteAtOnce, path: Path) -> None:
    """Whoever begins it waits for the disk."""
    insert(here, 1)
    first = beginning(path)
    database.tidy()
    second = beginning(path)
    insert(here, 2)
    assert first != second == beginning(path)
    assert numbers(here) == [1, 2]


def test_nothing_is_changed_by_moving_the_log(database: SqliteDatabase, path: Path) -> None:
    """A newer program may have the same file open, and may have marked it."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1000")
    connection.execute("INSERT INTO store_part VALUES ('new', 1000)")
    connection.commit()
    before = list(connection.iterdump())
    database.tidy()
    assert list(connection.iterdump()) == before
    assert connection.execute("PRAGMA user_version").fetchone() == (1_000,)
    connection.close()


def test_the_log_begins_anew_while_another_process_writes(database: SqliteDatabase, path: Path) -> None:
    other = SqliteDatabase(path, parts=PARTS, patience=PATIENCE)  # with its own turn, as if it were one
    there = other.at_once()
    assert there is not None
    over, number = threading.Event(), 0

    def write() -> None:
        nonlocal number
        while not over.is_set():
            with suppress(Busy):
                insert(there, number)
                number += 1

    def more() -> None:
        goal, deadline = number + 20, time.monotonic() + PATIENCE
        while number < goal:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        more()
        first = beginning(path)
        for _ in range(40):
            database.tidy()
            more()
            if beginning(path) != first:
                break
        assert beginning(path) != first
    finally:
        over.set()
        thread.join()
    assert numbers(database) == list(range(number))
    there.close()
    other.close()


class Long(sqlite3.Connection):
    """One that has been written to for a long time."""

    total_changes = 0


def test_the_log_is_moved_however_much_was_written(path: Path) -> None:
    connection = sqlite3.connect(path, factory=Long, isolation_level=None)
    here = SqliteAtOnce(connection, threading.RLock(), Failures(path, PATIENCE))
    due = []
    for written in range(0, 1 << 33, 1 << 28):
        connection.total_changes = (written + (1 << 31)) % (1 << 32) - (1 << 31)  # a number of 32 bits
        due.append(here.tidying_due)
        assert not here.tidying_due
    assert due == [False] + [True] * 31
    here.close()


def test_a_full_disk_keeps_nobody_from_writing_later(database: SqliteDatabase, path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    turn = threading.RLock()
    here = SqliteAtOnce(connection, turn, Failures(path, PATIENCE))
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(StoreError, match="full"):
        insert(here, *range(100))
    in_another_thread(turn_taken, turn)
    insert(database, 1)
    insert(here, 2)
    assert numbers(here) == [1, 2]
    here.close()


def test_where_somebody_would_have_to_wait_there_is_no_such_place(path: Path) -> None:
    memory = SqliteDatabase(":memory:", parts=PARTS)
    careful = SqliteDatabase(path, parts=PARTS, synchronous="full")
    assert memory.at_once() is None
    assert careful.at_once() is None
    memory.close()
    careful.close()
