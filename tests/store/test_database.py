"""What every database does alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from manglecp.store.database import Database
from manglecp.store.errors import StoreError
from manglecp.store.schema import SchemaPart
from manglecp.store.store import open_database

ONE = SchemaPart(
    "t",
    (
        "CREATE TABLE t (x BIGINT NOT NULL UNIQUE, word TEXT, bytes {blob}) {strict}",
        "CREATE TABLE pair (a TEXT NOT NULL, b BIGINT NOT NULL, PRIMARY KEY (a, b)) {clustered}",
    ),
)
TWO = SchemaPart("u", ("CREATE TABLE u (y TEXT)",))

Opened: TypeAlias = Callable[..., Database]


@pytest.fixture
def opened(store_where: str) -> Iterator[Opened]:
    """Opens the same database again and again, and closes what is open."""
    databases: list[Database] = []

    def open_(*parts: SchemaPart, patience: float = 5.0) -> Database:
        database = open_database(store_where, parts=parts or (ONE,), patience=patience)
        databases.append(database)
        return database

    yield open_
    for database in databases:
        database.close()


@pytest.fixture
def database(opened: Opened) -> Database:
    return opened()


def rows(database: Database, sql: str = "SELECT * FROM t ORDER BY x") -> list[tuple[object, ...]]:
    with database.read_transaction() as tx:
        return tx.execute(sql).fetchall()


def insert(database: Database, *numbers: int, then: Exception | None = None) -> None:
    with database.write_transaction() as tx:
        for number in numbers:
            tx.execute("INSERT INTO t (x) VALUES (?)", (number,))
        if then is not None:
            raise then


def test_values_come_back(database: Database) -> None:
    with database.write_transaction() as tx:
        tx.execute("INSERT INTO t VALUES (?, ?, ?)", (2**62, "50 % of ?", b"\x00\xff"))
        assert tx.execute("UPDATE t SET word = word || ? WHERE x > ?", ("!", 0)).rowcount == 1
        tx.execute("INSERT INTO t VALUES (1, 'a literal ? and %', NULL)")
        tx.executemany("INSERT INTO pair VALUES (?, ?)", [("a", 1), ("a", 2)])
    assert rows(database) == [(1, "a literal ? and %", None), (2**62, "50 % of ?!", b"\x00\xff")]
    assert rows(database, "SELECT count(*) FROM pair WHERE a LIKE '%a%'") == [(2,)]


def test_a_block_that_raises_changes_nothing(database: Database) -> None:
    with pytest.raises(KeyError):
        insert(database, 1, then=KeyError())
    with pytest.raises(StoreError, match="does not admit this row"):
        insert(database, 1, 1)
    assert rows(database) == []
    insert(database, 1)
    assert len(rows(database)) == 1


def test_a_read_sees_what_is_there_and_holds_nothing(database: Database) -> None:
    for number in range(1, 4):
        insert(database, number)
        with database.read_transaction() as tx:
            assert tx.execute("SELECT count(*) FROM t WHERE x > ?", (0,)).fetchone() == (number,)
    with pytest.raises(Exception, match=r"nowhere"), database.read_transaction() as tx:
        tx.execute("SELECT x FROM nowhere").fetchall()
    insert(database, 4)
    assert len(rows(database)) == 4


def test_texts_are_ordered_by_code_points(database: Database) -> None:
    with database.write_transaction() as tx:
        tx.executemany("INSERT INTO pair VALUES (?, 1)", [("a",), ("B",), ("_",), ("é",), ("Z",)])
    assert [row[0] for row in rows(database, "SELECT a FROM pair ORDER BY a")] == ["B", "Z", "_", "a", "é"]


def test_time_passes(database: Database) -> None:
    with database.write_transaction() as tx:
        first = tx.now_ms()
        assert 1_700_000_000_000 < first <= tx.now_ms()


@pytest.mark.parametrize("wait", [False, True])
def test_locked_rows_are_found(database: Database, wait: bool) -> None:
    insert(database, 1, 2)
    with database.write_transaction() as tx:
        found = tx.locked("SELECT x FROM t WHERE x > ? ORDER BY x LIMIT 1", (1,), wait=wait)
        assert found.fetchall() == [(2,)]


def test_threads(database: Database) -> None:
    def work(start: int) -> None:
        for number in range(start, start + 20):
            insert(database, number)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 1200, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(database)) == 240


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
def test_parts_are_added_to_a_database_that_is_there(opened: Opened) -> None:
    insert(opened(ONE), 1)
    with opened(ONE, TWO).write_transaction() as tx:
        tx.execute("INSERT INTO u VALUES ('a')")
    assert rows(opened(ONE)) == [(1, None, None)]


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
def test_a_part_that_fails_leaves_nothing(opened: Opened) -> None:
    opened(ONE)
    with pytest.raises(Exception, match="already exists"):
        opened(ONE, SchemaPart("u", (*TWO.statements, "CREATE TABLE t (x BIGINT)")))
    assert rows(opened(ONE, TWO)) == []


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
def test_many_open_it_at_once(opened: Opened) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            opened(ONE, TWO)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(opened(ONE, TWO)) == []
