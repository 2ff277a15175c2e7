"""One SQLite file: opened so that several processes can share it, brought up to date, used in transactions.

Write-ahead logging lets readers read while one process writes. A transaction that writes takes the write lock when it
begins (``BEGIN IMMEDIATE``): what it reads stays true until it commits, and it never fails half-way because somebody
else was first. A process that dies leaves nothing of its open transaction behind.

``synchronous`` is ``NORMAL`` unless asked otherwise: a commit survives the death of the process, ``FULL`` makes it
survive the loss of power as well.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from manglecp.store.errors import Busy, StoreError, Unusable

__all__ = ["Database", "Migration"]

Migration: TypeAlias = Sequence[str]
"""The statements that lead from one version of the schema to the next."""

PATIENCE: Final = 5.0
"""Seconds to wait for the lock."""


class Database:
    """An open file. Threads may share it; they take turns."""

    def __init__(
        self,
        path: Path | Literal[":memory:"],
        *,
        application_id: int,
        migrations: Sequence[Migration],
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        patience: float = PATIENCE,
    ) -> None:
        self.path = path
        self._patience = patience
        self._turn = threading.RLock()
        if isinstance(path, Path):
            _create(path)
        with self._failures():
            self._connection = sqlite3.connect(
                path,
                timeout=patience,
                isolation_level=None,  # transactions begin and end where this module says so
                check_same_thread=False,
            )
        try:
            with self._failures():
                self._identify(application_id)
                self._configure(synchronous)
                self._migrate(application_id, migrations)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that commits if the block ends well."""
        with self._turn, self._failures():
            yield from self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees the store as it is at its first question, and goes on seeing that."""
        with self._turn, self._failures():
            yield from self._transaction("BEGIN DEFERRED")

    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        self._connection.execute(begin)
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # a full disk has ended it already
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """What SQLite says, in the words of this room."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if _is_busy(error):
                raise Busy(
                    f"{self.path} is being written to by another process and was not free within "
                    f"{self._patience:g} s; nothing was changed. Try again, or end the process that holds it."
                ) from None
            raise StoreError(f"{self.path} cannot be used: {error}") from error
        except sqlite3.IntegrityError as error:
            raise StoreError(f"{self.path} does not admit this row: {error}") from error
        except sqlite3.ProgrammingError:
            raise  # a bug of ours
        except sqlite3.DatabaseError as error:
            raise Unusable(f"{self.path} is damaged, or no SQLite database: {error}") from error

    def _identify(self, application_id: int) -> None:
        """Leave alone what belongs to another program."""
        found = self._pragma("application_id")
        if found == application_id:
            return
        if found or self._pragma("user_version") or self._connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise Unusable(f"{self.path} is a database of another program; it was left alone")

    def _configure(self, synchronous: str) -> None:
        execute = self._connection.execute
        deadline = time.monotonic() + self._patience
        while self.path != ":memory:" and self._pragma("journal_mode") != "wal":
            try:
                execute("PRAGMA journal_mode = wal")
            except sqlite3.OperationalError as error:
                # SQLite does not wait for this lock by itself, and others may open the new file at this moment.
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
        execute(f"PRAGMA synchronous = {synchronous}")
        execute("PRAGMA foreign_keys = on")
        execute("PRAGMA trusted_schema = off")
        execute("PRAGMA cell_size_check = on")

    def _migrate(self, application_id: int, migrations: Sequence[Migration]) -> None:
        if self._pragma("user_version") == len(migrations):
            return
        with self.writing() as connection:
            version = self._pragma("user_version")  # again, now that nobody else can change it
            if version > len(migrations):
                raise Unusable(
                    f"{self.path} has schema version {version} and this manglecp knows {len(migrations)}; "
                    "use the newer manglecp that wrote it"
                )
            for migration in migrations[version:]:
                for statement in migration:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {application_id}")
            connection.execute(f"PRAGMA user_version = {len(migrations)}")

    def _pragma(self, name: str) -> Any:
        return self._connection.execute(f"PRAGMA {name}").fetchone()[0]


def _create(path: Path) -> None:
    """An empty file that only its owner reads, if there is none. SQLite gives its side files the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Unusable(f"cannot open {path}: {error.strerror}") from None


def _is_busy(error: sqlite3.OperationalError) -> bool:
    # The low byte: SQLITE_BUSY has variants such as SQLITE_BUSY_SNAPSHOT.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
