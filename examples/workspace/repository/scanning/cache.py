"""What was expensive to find out, in a SQLite file that outlives the process.

Analyses are kept by the hash of the content, files by their name with the stamp that they had, commits by their name.
Everything is checked when it is read: what has not the right shape is not there. A file that is broken is begun anew,
and without a folder nothing is kept. Several processes may use one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from .analysis import VERSION, Analysis
from .history import Commit
from .reading import Stamp

__all__ = ["Cache", "Seen"]

_FILE: Final = "scan.sqlite"
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS analysis (hash TEXT, language TEXT, found BLOB, PRIMARY KEY (hash, language)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (path TEXT PRIMARY KEY, what BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS made (name TEXT PRIMARY KEY, what BLOB) WITHOUT ROWID;
"""
_PATIENCE: Final = 5.0
T = TypeVar("T")


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """How a file looked, and what it held."""

    stamp: Stamp
    digest: str
    language: str


class Cache:
    """Reading and writing it never fails: at worst nothing is known."""

    def __init__(self, folder: Path | None) -> None:
        self._connection = _open(folder / _FILE) if folder is not None else None

    def seen(self) -> dict[str, Seen]:
        """Files by their names."""
        rows = ((path, _decoded(what, Seen)) for path, what in self._rows("SELECT path, what FROM seen"))
        return {str(path): what for path, what in rows if what is not None}

    def analysis(self, digest: str, language: str) -> Analysis | None:
        """Of a content."""
        query = "SELECT found FROM analysis WHERE hash = ? AND language = ?"
        for (found,) in self._rows(query, (digest, language)):
            return _decoded(found, Analysis)
        return None

    def made(self) -> dict[str, Commit]:
        """Commits by their names."""
        rows = ((name, _decoded(what, Commit)) for name, what in self._rows("SELECT name, what FROM made"))
        return {str(name): commit for name, commit in rows if commit is not None}

    def keep_files(
        self,
        seen: Iterable[tuple[str, Seen]],
        gone: Iterable[str],
        analyses: Iterable[tuple[str, str, Analysis]],
    ) -> None:
        """What a pass has found out about files."""
        self._write(
            ("DELETE FROM seen WHERE path = ?", ((path,) for path in gone)),
            (
                "INSERT OR REPLACE INTO seen VALUES (?, ?)",
                ((path, msgspec.json.encode(what)) for path, what in seen),
            ),
            (
                "INSERT OR REPLACE INTO analysis VALUES (?, ?, ?)",
                ((digest, language, msgspec.json.encode(found)) for digest, language, found in analyses),
            ),
        )

    def keep_commits(self, made: Iterable[tuple[str, Commit]]) -> None:
        """By their names."""
        rows = ((name, msgspec.json.encode(commit)) for name, commit in made)
        self._write(("INSERT OR REPLACE INTO made VALUES (?, ?)", rows))

    def forget_analyses(self, but: Iterable[tuple[str, str]]) -> None:
        """Those of contents that no file has any more."""
        self._write(
            ("CREATE TEMP TABLE IF NOT EXISTS used (hash TEXT, language TEXT)", [()]),
            ("DELETE FROM used", [()]),
            ("INSERT INTO used VALUES (?, ?)", but),
            ("DELETE FROM analysis WHERE (hash, language) NOT IN (SELECT hash, language FROM used)", [()]),
        )

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self, query: str, values: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
        if self._connection is None:
            return []
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error:
            return []

    def _write(self, *statements: tuple[str, Iterable[tuple[object, ...]]]) -> None:
        if self._connection is None:
            return
        with contextlib.suppress(sqlite3.Error), self._connection:
            for statement, rows in statements:
                self._connection.executemany(statement, rows)


def _decoded(data: object, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=kind) if isinstance(data, bytes) else None
    except msgspec.MsgspecError:
        return None


def _open(path: Path) -> sqlite3.Connection | None:
    for _ in range(2):
        try:
            return _connected(path)
        except sqlite3.OperationalError:  # no place, no permission, or somebody is busy
            return None
        except sqlite3.DatabaseError:  # not a database
            with contextlib.suppress(OSError):
                path.unlink()
    return None


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_PATIENCE)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # what is lost is found out again
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            for table in ("analysis", "seen", "made"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.executescript(_TABLES)
        connection.execute(f"PRAGMA user_version = {VERSION:d}")
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection
