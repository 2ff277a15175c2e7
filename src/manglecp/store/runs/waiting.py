"""Waiting for a run that somebody else carries out, perhaps on another machine.

One looks, and looks again after a pause that grows. That works on every database, costs one indexed read per look, and
cannot miss anything: what is waited for is a state, not a signal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from manglecp.store.database import Database
from manglecp.store.runs.errors import NoRun
from manglecp.store.runs.model import Run, RunState
from manglecp.store.runs.reading import find_run

__all__ = ["pauses", "wait"]


def pauses(first: float = 0.002, longest: float = 0.1) -> Iterator[float]:
    """Seconds between one look and the next."""
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)


def wait(database: Database, run_id: str, timeout: float, seen: int | None = None) -> Run:
    """The run as soon as it is not running or has another revision than ``seen``; else as it is after ``timeout``."""
    deadline = time.monotonic() + timeout
    pause = pauses()
    while True:
        with database.read_transaction() as tx:
            run = find_run(tx, run_id)
        if run is None:
            raise NoRun(run_id)
        left = deadline - time.monotonic()
        if run.state != RunState.RUNNING or (seen is not None and run.revision != seen) or left <= 0:
            return run
        time.sleep(min(next(pause), left))
