"""Which tests run without coverage, because watching them costs minutes and shows nothing that others do not.

Watching makes Python three times as slow, and doubles what it takes to start a process. So a test with the mark
`no_cover` is not watched (the mark is pytest-cov's), nor is a process that it starts. Tests of properties get the mark
here: what they run over and over is what the plain tests beside them run once. Other heavy tests carry it themselves.
"""

import os
from collections.abc import Generator

import pytest
from coverage import Coverage

__all__ = ["leave_properties_unwatched", "pytest_runtest_protocol", "pytest_sessionstart"]

# What coverage tells the processes that are to be watched, too.
_FOR_PROCESSES = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")


def leave_properties_unwatched(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(tryfirst=True)  # before pytest-cov begins to watch
def pytest_sessionstart(session: pytest.Session) -> None:
    """A worker of xdist is watched already, as any process is. When pytest-cov pauses, that would take over."""
    while hasattr(session.config, "workerinput") and (other := Coverage.current()) is not None:
        other.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The processes of an unwatched test, and those of fixtures that are made for it, are not watched either."""
    if item.get_closest_marker("no_cover") is None:
        return (yield)
    kept = {name: os.environ.pop(name) for name in _FOR_PROCESSES if name in os.environ}
    try:
        return (yield)
    finally:
        os.environ.update(kept)
