"""Set the lane marks of collected tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.lanes.reach import Reach

__all__ = ["FAST", "RESOURCES", "declare_lanes", "mark_lanes"]

FAST: Final = "fast"
RESOURCES: Final = ("process", "socket", "postgres")
MARKS: Final = {
    "fast": "uses no process, socket or database server",
    "process": "starts a process",
    "socket": "binds or connects a socket",
    "postgres": "needs a PostgreSQL server",
    "docs": "checks a page of the documentation",
    "property": "runs on generated examples",
}


def declare_lanes(config: pytest.Config) -> None:
    for name, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}; set by tests/lanes")


def mark_lanes(items: Sequence[pytest.Item]) -> None:
    reach = Reach()
    roots = [_roots(item) for item in items]
    reach.expand(root for of_one in roots for root in of_one)
    for item, of_one in zip(items, roots, strict=True):
        callspec = getattr(item, "callspec", None)
        for mark in reach.marks(of_one, () if callspec is None else callspec.params.values()):
            item.add_marker(mark)
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
        if not any(item.get_closest_marker(resource) for resource in RESOURCES):
            item.add_marker(FAST)


def _roots(item: pytest.Item) -> list[Any]:
    """Return the code of a test: its function, its class, and all its fixtures, autouse ones included."""
    if not isinstance(item, pytest.Function):
        raise pytest.UsageError(f"{item.nodeid}: tests/lanes can derive the lane of functions only")
    fixtures = item._fixtureinfo.name2fixturedefs
    found = [item.function, *([] if item.cls is None else [item.cls])]
    return found + [fixture.func for name in item.fixturenames for fixture in fixtures.get(name, ())]
