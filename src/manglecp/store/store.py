"""Opens a store, and creates missing tables.

The location of a store is a path, ``sqlite:///path``, ``postgresql://…`` or ``:memory:``; by default a file in the
state directory of the user, which no other user may enter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from manglecp.store.approvals import APPROVALS, Approvals
from manglecp.store.database import PATIENCE, Database, Synchronous, Transaction
from manglecp.store.decisions import DECISIONS, Decisions
from manglecp.store.errors import Unusable
from manglecp.store.fact_sources import FACT_SOURCES, FactSources
from manglecp.store.ledger import LEDGER, Ledger
from manglecp.store.postgresql import PostgresDatabase, PostgresUrl, is_postgres
from manglecp.store.registry import REGISTRY, Registry
from manglecp.store.run_store import RUNS, RunStore
from manglecp.store.schema import SchemaPart
from manglecp.store.seals import Seals
from manglecp.store.sqlite import SqliteDatabase
from manglecp.store.writer import Writer

PARTS: Final[Sequence[SchemaPart]] = (LEDGER, REGISTRY, APPROVALS, RUNS, DECISIONS, FACT_SOURCES)

FILE_NAME: Final = "store.sqlite3"


@dataclass(frozen=True, slots=True)
class Store:
    """All durable state, in one database, so that one transaction can change several parts of it."""

    database: Database
    ledger: Ledger
    registry: Registry
    approvals: Approvals
    runs: RunStore
    decisions: Decisions
    fact_sources: FactSources
    seals: Seals
    writer: Writer

    def write_transaction(self) -> AbstractContextManager[Transaction]:
        return self.database.write_transaction()

    def read_transaction(self) -> AbstractContextManager[Transaction]:
        return self.database.read_transaction()

    def close(self) -> None:
        self.writer.close()
        self.database.close()


def open_store(
    where: str | Path | None = None,
    *,
    synchronous: Synchronous | None = None,
    key: bytes | None = None,
    patience: float = PATIENCE,
) -> Store:
    """Open a store as :func:`open_database` does. ``key``: 32 bytes that seal values of runs, offers and approvals."""
    seals = Seals(key)
    database = open_database(where, synchronous=synchronous, patience=patience)
    ledger, runs = Ledger(), RunStore(database, seals)
    decisions = Decisions(ledger, seals)
    writer = Writer(database, ledger, decisions)
    return Store(database, ledger, Registry(), Approvals(seals), runs, decisions, FactSources(seals), seals, writer)


def open_database(
    where: str | Path | None = None,
    *,
    synchronous: Synchronous | None = None,
    patience: float = PATIENCE,
    parts: Sequence[SchemaPart] = PARTS,
) -> Database:
    """Open or create the database at ``where``, with the tables of ``parts``.

    ``synchronous`` defaults to the environment variable ``MANGLECP_STORE_SYNCHRONOUS``, then to "normal". ``patience``:
    timeout in seconds for a lock or a connection. Raises :class:`StoreError`.
    """
    location = parse_location(where)
    synchronous = synchronous or _default_synchronous()
    if isinstance(location, PostgresUrl):
        return PostgresDatabase(location, parts=parts, synchronous=synchronous, patience=patience)
    # parse_location returns None for a database in memory.
    return SqliteDatabase(location or ":memory:", parts=parts, synchronous=synchronous, patience=patience)


def state_directory() -> Path:
    """Return the directory of this user's stores and secrets; create a missing one."""
    if configured := os.environ.get("MANGLECP_STATE_DIR"):
        folder = Path(configured)
    elif base := os.environ.get("XDG_STATE_HOME"):
        folder = Path(base) / "manglecp"
    else:
        folder = Path.home() / ".local" / "state" / "manglecp"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unusable(
            f"the state directory {folder} cannot be created: {error.strerror}. Set MANGLECP_STATE_DIR to another one."
        ) from None
    return folder


def _default_synchronous() -> Synchronous:
    match os.environ.get("MANGLECP_STORE_SYNCHRONOUS") or "normal":
        case "normal":
            return "normal"
        case "full":
            return "full"
    raise Unusable("MANGLECP_STORE_SYNCHRONOUS is normal or full")


def parse_location(where: str | Path | None) -> Path | PostgresUrl | None:
    """Parse the location of a store (None: the default); return None for ``:memory:``. Raises :class:`Unusable`."""
    if where is None:
        return state_directory() / FILE_NAME
    if isinstance(where, Path):
        return where
    if where == ":memory:":
        return None
    if is_postgres(where):
        return PostgresUrl(where)
    if where.startswith("sqlite:///"):
        where = unquote(where.removeprefix("sqlite:///"))
    elif "://" in where:
        scheme = where.partition("://")[0]
        raise Unusable(
            f"there is no store of the kind {scheme[:20]}://; it is a path, sqlite:///PATH, postgresql://… or :memory:"
        )
    if not where:
        raise Unusable("the path of the store is empty; it is a path, sqlite:///PATH, postgresql://… or :memory:")
    return Path(where)
