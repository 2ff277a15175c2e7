"""What is special about a server: others hold rows, connections break, URLs have passwords."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import psycopg
import pytest

from manglecp.store.database import Database, Transaction
from manglecp.store.errors import Busy, CommitUnknown, StoreError, Unusable
from manglecp.store.postgresql import PostgresUrl
from manglecp.store.schema import SchemaPart
from manglecp.store.store import open_database, open_store

PARTS = [SchemaPart("t", ["CREATE TABLE t (x BIGINT PRIMARY KEY, word TEXT)"])]

Opened: TypeAlias = Callable[..., Database]


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Opened]:
    databases: list[Database] = []

    def open_(url: str = postgres_url, **options: Any) -> Database:
        database = open_database(url, parts=PARTS, **options)
        databases.append(database)
        return database

    yield open_
    for database in databases:
        database.close()


@pytest.fixture
def database(opened: Opened) -> Database:
    database = opened()
    with database.write_transaction() as tx:
        tx.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b"), (3, "c")])
    return database


def numbers(database: Database) -> list[int]:
    with database.read_transaction() as tx:
        return [row[0] for row in tx.execute("SELECT x FROM t ORDER BY x")]


def end_backend(url: str, pid: int) -> None:
    """As an administrator, or a network that breaks."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))


def backend(tx: Transaction) -> int:
    return int(tx.execute("SELECT pg_backend_pid()").fetchone()[0])


def write(database: Database, *statements: str, break_at: str | None = None, then: Sequence[str] = ()) -> None:
    """One transaction, whose connection may be broken between its statements."""
    with database.write_transaction() as tx:
        for statement in statements:
            tx.execute(statement)
        if break_at is not None:
            end_backend(break_at, backend(tx))
        for statement in then:
            tx.execute(statement)


# --- others ---------------------------------------------------------------------------------------------------------


def test_rows_of_others_are_left_out_or_waited_for(database: Database, opened: Opened) -> None:
    other = opened(patience=0.2)
    everything = "SELECT x FROM t ORDER BY x"
    with database.write_transaction() as tx:
        assert tx.locked("SELECT x FROM t WHERE x = ?", (1,), wait=True).fetchall() == [(1,)]
        with other.write_transaction() as second:
            assert second.locked(everything).fetchall() == [(2,), (3,)]
        message = r"was not free within 0\.2 s; nothing was changed\. Try again"
        with pytest.raises(Busy, match=message):
            write(other, "INSERT INTO t VALUES (4, 'd')", "UPDATE t SET word = 'e'")
    assert numbers(other) == [1, 2, 3]
    with other.write_transaction() as second:
        assert len(second.locked(everything, wait=True).fetchall()) == 3


def test_readers_see_one_moment_and_write_nothing(database: Database) -> None:
    with database.read_transaction() as tx:
        assert tx.execute("SELECT count(*) FROM t").fetchone() == (3,)
        with database.write_transaction() as other:
            other.execute("DELETE FROM t")
        assert tx.execute("SELECT count(*) FROM t").fetchone() == (3,)
    assert numbers(database) == []
    with pytest.raises(Exception, match="read-only"), database.read_transaction() as tx:
        tx.execute("INSERT INTO t VALUES (9, '')")


def test_who_waits_in_a_circle_may_try_again(database: Database) -> None:
    both = threading.Barrier(2)
    failures: list[BaseException] = []

    def work(first: int, second: int) -> None:
        try:
            with database.write_transaction() as tx:
                tx.execute("UPDATE t SET word = 'x' WHERE x = ?", (first,))
                both.wait(60)
                tx.execute("UPDATE t SET word = 'y' WHERE x = ?", (second,))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (failure,) = failures
    assert isinstance(failure, Busy)
    with database.read_transaction() as tx:
        assert tx.execute("SELECT count(*) FROM t WHERE word IN ('x', 'y')").fetchone() == (2,)


def test_an_error_that_was_swallowed_does_not_commit(database: Database) -> None:
    def swallow() -> None:
        with database.write_transaction() as tx:
            tx.execute("INSERT INTO t VALUES (4, 'd')")
            with suppress(psycopg.IntegrityError):
                tx.execute("INSERT INTO t VALUES (1, 'again')")

    with pytest.raises(StoreError, match="rolled the transaction back"):
        swallow()
    assert numbers(database) == [1, 2, 3]


def test_values_are_not_quoted(database: Database) -> None:
    with pytest.raises(StoreError) as caught:
        write(database, *["INSERT INTO t VALUES (987654, 'hunter2')"] * 2)
    assert "987654" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert numbers(database) == [1, 2, 3]
    with pytest.raises(StoreError, match="cannot be used"), database.write_transaction() as tx:
        tx.execute("INSERT INTO t VALUES (5, ?)", ("a\0b",))


def test_more_threads_than_connections(opened: Opened) -> None:
    database = opened(patience=0.3)
    with database.read_transaction():
        held: list[AbstractContextManager[Transaction]] = [database.read_transaction() for _ in range(7)]
        for one in held:
            one.__enter__()
        with pytest.raises(Busy, match=r"connections to .* are in use"), database.read_transaction():
            pass
        for one in held:
            one.__exit__(None, None, None)
    assert numbers(database) == []


def test_bugs_are_not_hidden(database: Database) -> None:
    with pytest.raises(psycopg.ProgrammingError), database.read_transaction() as tx:
        tx.execute("SELECT nothing FROM nowhere")
    database.close()
    with pytest.raises(psycopg.InterfaceError), database.read_transaction():
        pass


# --- connections that break -----------------------------------------------------------------------------------------


def test_broken_before_the_commit(database: Database, postgres_url: str) -> None:
    with pytest.raises(Busy, match=r"broke .*; nothing was changed\. Try again"):
        write(database, "INSERT INTO t VALUES (4, 'd')", break_at=postgres_url, then=["INSERT INTO t VALUES (5, 'e')"])
    assert numbers(database) == [1, 2, 3], "the next transaction has another connection"


def test_broken_while_committing(database: Database, postgres_url: str) -> None:
    """Nobody can know whether it was done, and nobody says so."""
    with pytest.raises(CommitUnknown, match="it was made or it was not"):
        write(database, "INSERT INTO t VALUES (4, 'd')", break_at=postgres_url)
    assert numbers(database) == [1, 2, 3]


def test_broken_while_reading(database: Database, postgres_url: str) -> None:
    def read() -> None:
        with database.read_transaction() as tx:
            end_backend(postgres_url, backend(tx))

    with pytest.raises(Busy, match="nothing was changed"):
        read()
    assert numbers(database) == [1, 2, 3]


def test_broken_while_nobody_used_it(database: Database, postgres_url: str) -> None:
    with database.read_transaction() as tx:
        pid = backend(tx)
    end_backend(postgres_url, pid)
    assert numbers(database) == [1, 2, 3]


def test_an_error_of_the_caller_on_a_broken_connection(database: Database, postgres_url: str) -> None:
    def fail() -> None:
        with database.write_transaction() as tx:
            end_backend(postgres_url, backend(tx))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert numbers(database) == [1, 2, 3]


# --- how it is opened -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("synchronous", "setting"), [("normal", "off"), ("full", "on")])
def test_synchronous(opened: Opened, synchronous: str, setting: str) -> None:
    with opened(synchronous=synchronous).read_transaction() as tx:
        assert tx.execute("SHOW synchronous_commit").fetchone() == (setting,)


def test_the_tables_have_a_schema_of_their_own(postgres_url: str) -> None:
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
    assert found == [("manglecp",)]


def test_a_user_without_rights(postgres_url: str, opened: Opened) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS plain")
        connection.execute("CREATE ROLE plain LOGIN")
    netloc = urlsplit(postgres_url).netloc.rpartition("@")[2]
    with pytest.raises(Unusable, match=r"permission denied .* Give the user of the URL this right"):
        opened(urlsplit(postgres_url)._replace(netloc=f"plain:hunter2@{netloc}").geturl())


def test_a_database_that_is_not_there(postgres_url: str, opened: Opened) -> None:
    with pytest.raises(Unusable, match=r"cannot be reached: .*does not exist.*\. Is the server running"):
        opened(urlsplit(postgres_url)._replace(path="/nowhere").geturl())


def test_no_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "psycopg":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.delitem(sys.modules, "psycopg")
    monkeypatch.setattr(builtins, "__import__", without)
    open_store(":memory:").close()
    with pytest.raises(Unusable, match=r"psycopg is not installed.*CHECKOUT\[postgres\]") as caught:
        open_store("postgresql://kim:hunter2@db/x")
    assert "hunter2" not in str(caught.value)


# --- URLs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://kim:hunter2@db.example:5433/x", "postgresql://kim@db.example:5433/x"),
        ("postgres://kim:hunter2@db/x", "postgresql://kim@db/x"),
        ("postgresql://kim:hunter2@h1:1,h2:2/x", "postgresql://kim@h1:1,h2:2/x"),
        ("postgresql://kim:hunter2@[::1]:5433/x", "postgresql://kim@[::1]:5433/x"),
        ("postgresql://kim:hunter2%40%2F@db/x?sslmode=require", "postgresql://kim@db/x"),
        ("postgresql:///x?host=/run/pg&user=kim&password=hunter2", "postgresql://kim@/run/pg/x"),
        ("postgresql://:hunter2@db/x", "postgresql://db/x"),
        ("postgresql://db/x", "postgresql://db/x"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    parsed = PostgresUrl(url)
    assert str(parsed) == shown
    assert repr(parsed) == f"PostgresUrl({shown!r})"
    assert parsed.secret == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://kim:hunter2@x@db/x",
        "postgresql://kim:hunter2/x@db/x",
        "postgresql://kim:123/hunter2@db/x",
        "postgresql://kim:123?hunter2@db/x",
        "postgresql://kim:123#hunter2@db/x",
        "postgresql://kim:hunter2#x@db/x",
        "postgresql://kim:hunter2]@[db/x",
        "postgresql://kim@db:hunter2/x",
    ],
)
def test_a_password_that_is_not_encoded_is_not_quoted(url: str) -> None:
    with pytest.raises(Unusable, match="'@' is %40") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://kim:hunter2@127.0.0.1:1/x",
        "postgresql://kim:hunter2@127.0.0.1:1,127.0.0.1:2/x",
        "postgresql:///x?host=/nowhere/at/all&user=kim&password=hunter2",
        "postgresql://kim:hunter2@127.0.0.1:1/x?no_such_option=hunter2",
        "postgresql://kim:hunter%2@127.0.0.1:1/x",
    ],
)
def test_who_cannot_connect_hears_no_password(url: str) -> None:
    with pytest.raises(Unusable) as caught:
        open_store(url, patience=0.2)
    assert "hunter" not in str(caught.value)
