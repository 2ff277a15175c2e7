"""Find a store, open it, bring it up to date.

A store is where somebody says: a path, ``sqlite:///path``, ``postgresql://…`` or ``:memory:``. Who says nothing gets a
file in the state directory of this user, which nobody else may enter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from manglecp.store.database import PATIENCE, Database, Synchronous
from manglecp.store.errors import Unusable
from manglecp.store.issues.stored import ISSUES
from manglecp.store.migrations import Part
from manglecp.store.postgresql import PostgresDatabase
from manglecp.store.sqlite import SqliteDatabase
from manglecp.store.urls import PostgresUrl, is_postgres

__all__ = ["FILE_NAME", "PARTS", "open_database", "state_directory"]

PARTS: Final[Sequence[Part]] = (ISSUES,)
"""Everything that a store has tables for."""

FILE_NAME: Final = "store.sqlite3"


def open_database(
    where: str | Path | None = None,
    *,
    synchronous: Synchronous = "normal",
    patience: float = PATIENCE,
    parts: Sequence[Part] = PARTS,
) -> Database:
    """Open it, or make it."""
    place = _place(where)
    if isinstance(place, PostgresUrl):
        return PostgresDatabase(place, parts=parts, synchronous=synchronous, patience=patience)
    if place is None:
        return SqliteDatabase(":memory:", parts=parts, synchronous=synchronous, patience=patience)
    return SqliteDatabase(place, parts=parts, synchronous=synchronous, patience=patience)


def state_directory() -> Path:
    """Where this user's stores and secrets are; made if it is not there."""
    if given := os.environ.get("MANGLECP_STATE_DIR"):
        folder = Path(given)
    elif base := os.environ.get("XDG_STATE_HOME"):
        folder = Path(base) / "manglecp"
    else:
        folder = Path.home() / ".local" / "state" / "manglecp"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unusable(
            f"the state directory {folder} cannot be made: {error.strerror}. Set MANGLECP_STATE_DIR to another one."
        ) from None
    return folder


def _place(where: str | Path | None) -> Path | PostgresUrl | None:
    """None is memory."""
    if where is None:
        return state_directory() / FILE_NAME
    if isinstance(where, Path):
        return where
    if where == ":memory:":
        return None
    if is_postgres(where):
        return PostgresUrl(where)
    if where.startswith("sqlite:///"):
        return _path(unquote(where.removeprefix("sqlite:///")))
    scheme, separator, _ = where.partition("://")
    if separator:
        raise Unusable(
            f"there is no store of the kind {scheme[:20]}://; it is a path, sqlite:///PATH, postgresql://… or :memory:"
        )
    return _path(where)


def _path(text: str) -> Path:
    if not text:
        raise Unusable("the path of the store is empty; it is a path, sqlite:///PATH, postgresql://… or :memory:")
    return Path(text)
