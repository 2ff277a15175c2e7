"""Issue memory in a store, with a clock that tests move."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from manglecp.issues import Issue, IssueMemory
from manglecp.issues.model import Add
from manglecp.issues.tables import ISSUES, SESSIONS, StoredIssues
from manglecp.store.store import open_database
from tests.store.postgres import postgres_url

__all__ = ["Workbench", "bench", "in_a_file", "postgres_url"]


class Watch:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 31, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Workbench:
    """Everything that a test of issue memory needs."""

    def __init__(self, where: str | Path) -> None:
        self.where = str(where)
        self.database = open_database(where, parts=[ISSUES, SESSIONS])
        self.store = StoredIssues(self.database)
        self.clock = Watch()
        numbers = itertools.count(1)
        self.memory = IssueMemory(self.store, clock=self.clock, new_id=lambda: f"i-{next(numbers)}")

    def add(self, *issues: str, priority: int = 2) -> None:
        for issue in issues:
            self.memory.add("kim", Add(title=f"do {issue}", priority=priority), issue)

    def issue(self, issue: str) -> Issue:
        with self.memory.view() as view:
            return view.show(issue).issue

    def ready(self) -> list[str]:
        with self.memory.view() as view:
            return [one.id for one in view.ready()]

    def events(self) -> int:
        with self.memory.view() as view:
            return view.head().seq


@pytest.fixture(params=["file", "postgresql"])
def bench(request: pytest.FixtureRequest) -> Iterator[Workbench]:
    if request.param == "postgresql":
        workbench = Workbench(request.getfixturevalue("postgres_url"))
    else:
        workbench = Workbench(request.getfixturevalue("tmp_path") / "issues.db")
    yield workbench
    workbench.store.close()


in_a_file = pytest.mark.parametrize("bench", ["file"], indirect=True)
"""For what is done to a file."""
