"""Stopping an evaluation from outside: when its time is up, or when nobody wants the answer any more.

An evaluation never looks at the clock in its loops; it compares a count with a bound there anyway. Whoever wants it to
stop sets that bound to something every count passes.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

Stop: TypeAlias = Callable[[], None]


class Cancellation:
    """Hand it to evaluations; :meth:`cancel` stops those that run and those that start later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: set[Stop] = set()
        self.cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def add(self, stop: Stop) -> None:
        with self._lock:
            self._stops.add(stop)
        if self.cancelled:
            stop()

    def discard(self, stop: Stop) -> None:
        with self._lock:
            self._stops.discard(stop)


class _Watchdog:
    """One thread for all deadlines of the process; it sleeps while there are none."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._deadlines: list[tuple[float, int, Stop]] = []
        self._dropped: set[int] = set()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, stop: Stop) -> int:
        with self._condition:
            number = next(self._numbers)
            heapq.heappush(self._deadlines, (time.monotonic() + seconds, number, stop))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="mangle deadlines")
                self._thread.start()
            self._condition.notify()
        return number

    def drop(self, number: int) -> None:
        with self._condition:
            self._dropped.add(number)
            self._condition.notify()

    def _run(self) -> None:
        with self._condition:
            while True:
                while self._deadlines and self._deadlines[0][1] in self._dropped:
                    self._dropped.discard(heapq.heappop(self._deadlines)[1])
                if not self._deadlines:
                    self._condition.wait()
                    continue
                rest = self._deadlines[0][0] - time.monotonic()
                if rest > 0:
                    self._condition.wait(rest)
                    continue
                heapq.heappop(self._deadlines)[2]()


watchdog = _Watchdog()
