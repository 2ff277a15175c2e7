"""Fail a test of the fast lane that starts a process, opens a socket or uses PostgreSQL."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from typing import Any, Final

import pytest

from tests.lanes.marks import FAST

__all__ = ["LaneError", "pytest_runtest_protocol", "pytest_runtest_teardown", "uses"]

EVENTS: Final = {
    **dict.fromkeys(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"), "process"),
    **dict.fromkeys(("socket.bind", "socket.connect", "socket.sendto"), "socket"),
}
"""Audit events, and the mark of tests that raise them."""


class LaneError(RuntimeError):
    """A test of the fast lane uses a resource."""


class _Running:
    """The test that runs now, and the threads that earlier ones left behind."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.earlier = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self.wrong: list[str] = []

    def uses(self, mark: str, what: str) -> None:
        if self.item.get_closest_marker(FAST) is None or threading.get_ident() in self.earlier:
            return
        self.wrong.append(
            f"{self.item.nodeid} is in the fast lane and uses {what}, which tests/lanes/reach.py did not derive: "
            f"mark the test with @pytest.mark.{mark}, or extend the tables there"
        )
        raise LaneError(self.wrong[-1])


_running: _Running | None = None


def uses(mark: str, what: str) -> None:
    """Raise `LaneError` in a test of the fast lane."""
    if _running is not None:
        _running.uses(mark, what)


def _audit(event: str, args: tuple[Any, ...]) -> None:  # noqa: ARG001
    if event in EVENTS:
        uses(EVENTS[event], event)


sys.addaudithook(_audit)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _running
    _running = _Running(item)
    try:
        return (yield)
    finally:
        _running = None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        # The code under test may have taken the error for one of its own.
        if _running is not None and _running.wrong:
            pytest.fail(_running.wrong[0], pytrace=False)
