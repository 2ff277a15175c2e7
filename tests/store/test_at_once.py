"""Short transactions of who must not wait: as good as all others, and nobody ever waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from manglecp.store.at_once import SqliteAtOnce
from manglecp.store.errors import Busy, StoreError
from manglecp.store.migrations import Part
from manglecp.store.sqlite import SqliteDatabase

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
    insert(database, 2)  # the turn was given back
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
    for number in range(3_000):
        insert(here, number)
        if here.tidying_due:
            due.append(number)
            before = path.stat().st_size
            assert not here.tidying_due  # it is said once
            database.tidy()
            assert path.stat().st_size > before  # nothing was moved since the last time
    assert len(due) >= 5
    assert log.stat().st_size < 3_000 * 4_096  # it began anew, and has not a page for each row
    assert len(numbers(database)) == 3_000


def test_where_somebody_would_have_to_wait_there_is_no_such_place(path: Path) -> None:
    memory = SqliteDatabase(":memory:", parts=PARTS)
    careful = SqliteDatabase(path, parts=PARTS, synchronous="full")
    assert memory.at_once() is None
    assert careful.at_once() is None
    memory.close()
    careful.close()
