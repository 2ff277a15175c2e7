"""A persistent cache of scan results in a SQLite file.

The keys are: the hash of the content for analyses, the path for files (with their stamp), the hash for commits. Entries
are validated when they are read; invalid entries count as missing. A corrupt file is replaced, and without a folder
there is no cache. Several processes can share a file.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from .analysis import VERSION, Analysis
from .file_reader import Stamp
from .history import Commit

__all__ = ["Cache", "CachedFile"]

_FILE: Final = "scan.sqlite"
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS analysis (hash TEXT, language TEXT, found BLOB, PRIMARY KEY (hash, language)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (path TEXT PRIMARY KEY, what BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS made (name TEXT PRIMARY KEY, what BLOB) WITHOUT ROWID;
"""
_BUSY_SECONDS: Final = 5.0
T = TypeVar("T")


class CachedFile(msgspec.Struct, frozen=True, array_like=True):
    """The stamp, the content hash and the language of a file."""

    stamp: Stamp
    digest: str
    language: str


class Cache:
    """The cache of one repository. Its methods do not raise: a failed read returns no entries."""

    def __init__(self, folder: Path | None) -> None:
        self._connection = _open(folder / _FILE) if folder is not None else None

    def load_files(self) -> dict[str, CachedFile]:
        """Return the files by path."""
        rows = ((path, _decoded(what, CachedFile)) for path, what in self._rows("SELECT path, what FROM seen"))
        return {str(path): what for path, what in rows if what is not None}

    def load_analysis(self, digest: str, language: str) -> Analysis | None:
        """Return the analysis of a content hash, if it is cached."""
        query = "SELECT found FROM analysis WHERE hash = ? AND language = ?"
        for (found,) in self._rows(query, (digest, language)):
            return _decoded(found, Analysis)
        return None

    def load_commits(self) -> dict[str, Commit]:
        """Return the commits by hash."""
        rows = ((name, _decoded(what, Commit)) for name, what in self._rows("SELECT name, what FROM made"))
        return {str(name): commit for name, commit in rows if commit is not None}

    def store_files(
        self,
        seen: Iterable[tuple[str, CachedFile]],
        gone: Iterable[str],
        analyses: Iterable[tuple[str, str, Analysis]],
    ) -> None:
        """Store the files and analyses of a pass, and delete removed files."""
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

    def store_commits(self, made: Iterable[tuple[str, Commit]]) -> None:
        """Store commits by hash."""
        rows = ((name, msgspec.json.encode(commit)) for name, commit in made)
        self._write(("INSERT OR REPLACE INTO made VALUES (?, ?)", rows))

    def delete_unused_analyses(self, used: Iterable[tuple[str, str]]) -> None:
        """Delete the analyses whose hash and language are not in ``used``."""
        self._write(
            ("CREATE TEMP TABLE IF NOT EXISTS used (hash TEXT, language TEXT)", [()]),
            ("DELETE FROM used", [()]),
            ("INSERT INTO used VALUES (?, ?)", used),
            ("DELETE FROM analysis WHERE (hash, language) NOT IN (SELECT hash, language FROM used)", [()]),
        )

    def close(self) -> None:
        """Close the database."""
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
        except sqlite3.OperationalError:  # disk full, no permission, or locked by another process
            return None
        except sqlite3.DatabaseError:  # not a database
            with contextlib.suppress(OSError):
                path.unlink()
    return None


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # lost entries are computed again
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
