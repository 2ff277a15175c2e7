"""An empty journal in a file and on PostgreSQL. To empty tables is much quicker than to make another database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from manglecp.store.database import Database
from manglecp.store.store import open_database
from tests.store.postgres import empty_database
from tests.store.runs.bench import PARTS, Bench


class Opened(NamedTuple):
    where: str
    database: Database


@pytest.fixture(scope="package")
def on_postgresql() -> Iterator[Opened]:
    with empty_database() as url:
        database = open_database(url, parts=PARTS, patience=60)
        yield Opened(url, database)
        database.close()


@pytest.fixture
def postgresql(on_postgresql: Opened) -> Opened:
    with on_postgresql.database.write_transaction() as tx:
        tx.execute("TRUNCATE runs, run_values, run_kept, steps")
    return on_postgresql


@pytest.fixture
def in_a_file(tmp_path: Path) -> Iterator[Opened]:
    where = str(tmp_path / "store.sqlite3")
    database = open_database(where, parts=PARTS, patience=60)
    yield Opened(where, database)
    database.close()


@pytest.fixture(params=["in_a_file", "postgresql"])
def opened(request: pytest.FixtureRequest) -> Opened:
    opened: Opened = request.getfixturevalue(request.param)
    return opened


@pytest.fixture
def where(opened: Opened) -> str:
    """For whoever opens the store of the test once more."""
    return opened.where


@pytest.fixture
def bench(opened: Opened) -> Bench:
    return Bench(opened.database)
