"""Stopping an evaluation at its deadline.

Evaluation loops do not read the clock; they compare a count with a bound. To stop an evaluation, another thread sets
the bound to a value that every count exceeds.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

Stop: TypeAlias = Callable[[], None]


class Watchdog:
    """One thread for all deadlines of the process. Times are monotonic; a dropped deadline does not wake it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._earlier_deadline = threading.Condition(self._lock)
        self._deadlines: list[tuple[float, int]] = []  # a heap of times and numbers
        self._stops: dict[int, Stop] = {}  # by number, of the deadlines that were not dropped
        self._numbers = itertools.count()
        self._wake_time = math.inf  # when the thread wakes without a notification
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._stops)

    def after(self, seconds: float, stop: Stop) -> int:
        """Call ``stop`` after ``seconds`` in another thread. Return a number for :meth:`drop`."""
        deadline = time.monotonic() + seconds
        with self._lock:
            number = next(self._numbers)
            self._stops[number] = stop
            if len(self._deadlines) > 2 * len(self._stops) + 64:  # most are dropped: remove them now
                self._deadlines = sorted(entry for entry in self._deadlines if entry[1] in self._stops)
            heapq.heappush(self._deadlines, (deadline, number))
            if self._thread is None or not self._thread.is_alive():
                self._wake_time = math.inf
                self._thread = threading.Thread(target=self._run, daemon=True, name="mangle deadlines")
                self._thread.start()
            if deadline < self._wake_time:
                self._earlier_deadline.notify()
        return number

    def drop(self, number: int) -> None:
        with self._lock:
            self._stops.pop(number, None)

    def _run(self) -> None:
        with self._lock:
            while True:
                self._wake_time = self._deadlines[0][0] if self._deadlines else math.inf
                seconds_left = self._wake_time - time.monotonic()
                if seconds_left > 0:
                    self._earlier_deadline.wait(min(seconds_left, threading.TIMEOUT_MAX))
                    continue
                stop = self._stops.pop(heapq.heappop(self._deadlines)[1], None)
                if stop is not None:
                    stop()


watchdog = Watchdog()
