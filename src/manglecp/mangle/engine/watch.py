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


class Watchdog:
    """One thread for all deadlines of the process; it sleeps while there are none."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._deadlines: list[tuple[float, int]] = []
        self._stops: dict[int, Stop] = {}  # of the deadlines that still matter
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._stops)

    def after(self, seconds: float, stop: Stop) -> int:
        with self._condition:
            number = next(self._numbers)
            self._stops[number] = stop
            if len(self._deadlines) > 2 * len(self._stops) + 64:  # most are dropped: do not wait until they pass
                self._deadlines = sorted(entry for entry in self._deadlines if entry[1] in self._stops)
            heapq.heappush(self._deadlines, (time.monotonic() + seconds, number))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="mangle deadlines")
                self._thread.start()
            if self._deadlines[0][1] == number:
                self._condition.notify()
        return number

    def drop(self, number: int) -> None:
        """The deadline no longer matters, and what it would stop is not held any more."""
        with self._condition:
            self._stops.pop(number, None)

    def _run(self) -> None:
        with self._condition:
            while True:
                while self._deadlines and self._deadlines[0][1] not in self._stops:
                    heapq.heappop(self._deadlines)
                if not self._deadlines:
                    self._condition.wait()
                    continue
                rest = self._deadlines[0][0] - time.monotonic()
                if rest > 0:
                    self._condition.wait(rest)
                    continue
                self._stops.pop(heapq.heappop(self._deadlines)[1])()


watchdog = Watchdog()
