"""A store in one SQLite file that several processes share.

The write-ahead log lets readers read while one process writes. A write transaction takes the write lock when it begins
(``BEGIN IMMEDIATE``), so it cannot fail later because another process has this lock. SQLite rolls back the open
transaction of a killed process.

Threads that write share one connection behind a lock. Each read transaction of a file uses a connection of its own, so
that a long query (verifying the ledger) blocks no writer. SQLite checkpoints the log on the committing thread.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from manglecp.store.database import PATIENCE, Dialect, Rows, Synchronous
from manglecp.store.errors import Busy, StoreError, Unusable
from manglecp.store.schema import SchemaPart, create_parts, has_parts

APPLICATION_ID: Final = 0x6D636973  # "mcis"; in the header of the file it marks a store


class SqliteDatabase:
    dialect: Final[Dialect] = "sqlite"

    def __init__(
        self,
        path: Path | Literal[":memory:"],
        *,
        parts: Sequence[SchemaPart],
        synchronous: Synchronous = "normal",
        patience: float = PATIENCE,
    ) -> None:
        self.path = path
        self._patience = patience
        self._synchronous = synchronous
        self._write_lock = threading.RLock()
        self._readers_lock = threading.Lock()  # not the write lock: a read does not wait for a write transaction
        self._idle_readers: list[sqlite3.Connection] = []
        self._closed = False
        if isinstance(path, Path):
            _create_file(path)
        with self._translate_errors():
            self._connection = self._connect()
        try:
            with self._translate_errors():
                self._check_application()
                self._configure(self._connection)
                self._create_parts(parts)
        except BaseException:
            self._connection.close()
            raise

    @property
    def name(self) -> str:
        return str(self.path)

    def close(self) -> None:
        with self._write_lock, self._readers_lock:
            self._closed = True
            while self._idle_readers:
                self._idle_readers.pop().close()
            self._connection.close()

    @contextmanager
    def write_transaction(self) -> Iterator[SqliteTransaction]:
        with self._write_lock, self._translate_errors(), _transaction(self._connection, "BEGIN IMMEDIATE") as tx:
            yield tx

    @contextmanager
    def read_transaction(self) -> Iterator[SqliteTransaction]:
        with self._translate_errors():
            if self.path == ":memory:":  # another connection would have a database of its own
                with self._write_lock, _transaction(self._connection, "BEGIN DEFERRED") as tx:
                    yield tx
                return
            connection = self._take_reader()
            try:
                with _transaction(connection, "BEGIN DEFERRED") as tx:
                    yield tx
            finally:
                with self._readers_lock:
                    if self._closed:
                        connection.close()
                    else:
                        self._idle_readers.append(connection)

    def damage(self) -> list[str]:
        with self.read_transaction() as tx:
            damage = [str(row[0]) for row in tx.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
            damage += [
                f"a row of {table} refers to a missing row of {parent}"
                for table, _, parent, _ in tx.execute("PRAGMA foreign_key_check")
            ]
            return damage

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise store errors in place of SQLite errors."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if is_busy(error):
                raise Busy(
                    f"{self.path} is being written to by another process and was not free within "
                    f"{self._patience:g} s; nothing was changed. Try again, or end the process that holds it."
                ) from None
            raise StoreError(f"{self.path} cannot be used: {error}") from error
        except sqlite3.IntegrityError as error:
            raise StoreError(f"{self.path} does not admit this row: {error}") from error
        except sqlite3.ProgrammingError:  # a bug in this package
            raise
        except sqlite3.DatabaseError as error:
            raise Unusable(f"{self.path} is damaged, or not a SQLite database: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path,
            timeout=self._patience,
            isolation_level=None,  # transactions begin and end in this module only
            check_same_thread=False,
        )

    def _take_reader(self) -> sqlite3.Connection:
        with self._readers_lock:
            if self._closed:
                raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
            if self._idle_readers:
                return self._idle_readers.pop()
        connection = self._connect()
        self._configure(connection)
        return connection

    def _check_application(self) -> None:
        """Raise :class:`Unusable` for a database of another program."""
        # One snapshot: another process may be creating the tables.
        with _transaction(self._connection, "BEGIN DEFERRED") as tx:
            (application_id,) = tx.execute("PRAGMA application_id").fetchone()
            in_use = tx.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
        # A new, empty database has no application id.
        if application_id != APPLICATION_ID and (application_id or in_use):
            raise Unusable(f"{self.path} is a database of another program; it was not changed")

    def _configure(self, connection: sqlite3.Connection) -> None:
        execute = connection.execute
        deadline = time.monotonic() + self._patience
        while self.path != ":memory:" and execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                execute("PRAGMA journal_mode = wal")
            except sqlite3.OperationalError as error:
                # Another process is opening the new file too; SQLite itself does not wait for the lock of this change.
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
        execute(f"PRAGMA synchronous = {self._synchronous}")
        execute("PRAGMA wal_autocheckpoint = 4000")  # pages: writers wait for the disk less often
        execute("PRAGMA foreign_keys = on")
        execute("PRAGMA trusted_schema = off")
        execute("PRAGMA cell_size_check = on")
        execute("PRAGMA secure_delete = on")  # values of ended runs are overwritten, not only unlinked

    def _create_parts(self, parts: Sequence[SchemaPart]) -> None:
        tx = SqliteTransaction(self._connection)
        is_store = tx.execute("SELECT 1 FROM sqlite_schema WHERE name = 'store_part'").fetchone() is not None
        if is_store and has_parts(tx, parts, name=self.name):
            return
        with self.write_transaction() as tx:
            create_parts(tx, parts, name=self.name)
            tx.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _create_file(path: Path) -> None:
    """Create an empty file with mode 0600 unless it exists. SQLite gives the write-ahead log the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Unusable(f"cannot open {path}: {error.strerror}") from None


class SqliteTransaction:
    __slots__ = ("execute", "executemany")

    dialect: Final[Dialect] = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany

    def locked(self, sql: str, params: Sequence[Any] = (), *, wait: bool = False) -> Rows:  # noqa: ARG002
        return self.execute(sql, params)  # a write transaction excludes all others, so no row needs a lock

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[SqliteTransaction]:
    """Begin with the statement ``begin``, and commit; roll back if the block raises."""
    connection.execute(begin)
    try:
        yield SqliteTransaction(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # after some errors, such as a full disk, SQLite has rolled back already
            connection.execute("ROLLBACK")


def is_busy(error: sqlite3.OperationalError) -> bool:
    # The low byte: SQLITE_BUSY has variants such as SQLITE_BUSY_SNAPSHOT.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
