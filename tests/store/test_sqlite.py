"""One file that several processes share."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from manglecp.store.errors import Busy, StoreError, Unusable
from manglecp.store.schema import SchemaPart
from manglecp.store.sqlite import APPLICATION_ID, SqliteDatabase

ONE = SchemaPart("t", ("CREATE TABLE t (x INTEGER NOT NULL UNIQUE) STRICT",))
TWO = SchemaPart("u", ("CREATE TABLE u (y TEXT)", "CREATE INDEX u_y ON u (y)"))


def opened(path: Path, *parts: SchemaPart, patience: float = 5.0) -> SqliteDatabase:
    return SqliteDatabase(path, parts=parts or (ONE,), patience=patience)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def rows(database: SqliteDatabase) -> list[tuple[object, ...]]:
    with database.read_transaction() as connection:
        return list(connection.execute("SELECT * FROM t"))


def test_a_new_file_is_for_its_owner(path: Path) -> None:
    database = opened(path)
    with database.write_transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    database.close()


def test_how_it_is_opened(path: Path) -> None:
    database = opened(path)
    with database.read_transaction() as connection:
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "foreign_keys", "trusted_schema", "synchronous", "application_id")
        }
    assert found == {
        "journal_mode": "wal",
        "foreign_keys": 1,
        "trusted_schema": 0,
        "synchronous": 1,
        "application_id": APPLICATION_ID,
    }
    database.close()


def test_full_synchronisation(path: Path) -> None:
    database = SqliteDatabase(path, parts=[ONE], synchronous="full")
    with database.read_transaction() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2
    database.close()


def test_in_memory() -> None:
    database = SqliteDatabase(":memory:", parts=[ONE])
    with database.write_transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    assert rows(database) == [(1,)]
    database.close()


def test_parts_are_added_to_a_file_that_is_there(path: Path) -> None:
    old = opened(path, ONE)
    with old.write_transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    new = opened(path, ONE, TWO)
    with new.write_transaction() as connection:
        connection.execute("INSERT INTO u VALUES ('a')")
    assert rows(new) == rows(old) == [(1,)]
    old.close()
    new.close()


def test_a_part_that_fails_leaves_nothing(path: Path) -> None:
    opened(path, ONE).close()
    with pytest.raises(StoreError):
        opened(path, ONE, SchemaPart("u", (*TWO.statements, "CREATE TABLE t (x)")))
    database = opened(path, ONE, TWO)
    assert rows(database) == []
    database.close()


def test_files_of_others(path: Path, tmp_path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    with pytest.raises(Unusable, match="of another program"):
        opened(path)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    other.close()
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(Unusable, match="not a SQLite database"):
        opened(text)
    with pytest.raises(Unusable, match="Is a directory"):
        opened(tmp_path)


def test_a_block_that_raises_changes_nothing(path: Path) -> None:
    database = opened(path)

    def insert(*numbers: int, then: Exception | None = None) -> None:
        with database.write_transaction() as connection:
            for number in numbers:
                connection.execute("INSERT INTO t VALUES (?)", (number,))
            if then is not None:
                raise then

    with pytest.raises(KeyError):
        insert(1, then=KeyError())
    with pytest.raises(StoreError, match="does not admit this row"):
        insert(1, 1)
    assert rows(database) == []
    database.close()


def test_busy(path: Path) -> None:
    first, second = opened(path), opened(path, patience=0.05)
    with first.write_transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        assert rows(second) == [], "readers read on"
        message = r"was not free within 0\.05 s; nothing was changed\. Try again"
        with pytest.raises(Busy, match=message), second.write_transaction():
            raise AssertionError("two at a time")
    with second.write_transaction() as connection:
        connection.execute("INSERT INTO t VALUES (2)")
    assert rows(first) == [(1,), (2,)]
    first.close()
    second.close()


def test_busy_from_the_beginning(path: Path) -> None:
    """Somebody holds the new file before it is set up."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        opened(path, patience=0.05)
    threading.Timer(0.1, other.close).start()
    opened(path).close()


def test_bugs_are_not_hidden(path: Path) -> None:
    database = opened(path)
    database.close()
    with pytest.raises(sqlite3.ProgrammingError), database.write_transaction():
        pass


def test_threads_take_turns(path: Path) -> None:
    database = opened(path)

    def work(start: int) -> None:
        for number in range(start, start + 50):
            with database.write_transaction() as connection:
                connection.execute("INSERT INTO t VALUES (?)", (number,))

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(database)) == 200
    database.close()


def test_a_full_disk(path: Path) -> None:
    database = opened(path)
    with database.read_transaction() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    database._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"), database.write_transaction() as connection:
        connection.executemany("INSERT INTO t VALUES (?)", ((number,) for number in range(100_000)))
    database._connection.execute("PRAGMA max_page_count = 100000")
    assert rows(database) == []
    with database.write_transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    database.close()
