"""Several processes that serve one address: all listen on the same socket and share the store.

They are forked before the server is loaded. The parent forwards signals and replaces processes that died, unless they
die repeatedly after a short time.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Final

__all__ = ["run_workers"]

_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_YOUNG: Final = 5.0
"""A process that lived for fewer seconds probably did not serve at all."""
_MAX_YOUNG: Final = 5
_REFUSED: Final = (1, 2)
"""The statuses of a process that reported an error of its options or files: a new process would do the same."""
_CRASHED: Final = 70
_PR_SET_PDEATHSIG: Final = 1
_log = logging.getLogger(__name__)


def run_workers(count: int, serve: Callable[[], int], ended: Callable[[int], None]) -> int:
    """Run ``serve`` in ``count`` processes, and ``ended`` with the id of each that ended. Return the exit status.

    The status is 0 if all processes ended with 0 after a signal.
    """
    return _Workers(count, serve, ended).run()


class _Workers:
    def __init__(self, count: int, serve: Callable[[], int], ended: Callable[[int], None]) -> None:
        self._count = count
        self._serve = serve
        self._ended = ended
        self._started_at: dict[int, float] = {}
        self._stopping = False
        self._young_deaths = 0

    def run(self) -> int:
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        for _ in range(self._count):
            self._start()
        status = 0
        while self._started_at:
            try:
                pid, wait_status = os.wait()
            except ChildProcessError:
                break
            started_at = self._started_at.pop(pid, None)
            if started_at is None:
                continue
            code = os.waitstatus_to_exitcode(wait_status)
            self._ended(pid)
            if self._stopping:
                status = status or abs(code)
            elif not self._replace(pid, code, started_at):
                status = abs(code) or 1
                self._forward(signal.SIGTERM)
        return status

    def _start(self) -> None:
        """Fork with signals blocked, so that each is forwarded to all children, and by the parent only."""
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        if self._stopping:  # a signal came before they were blocked
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
            return
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for number in _FORWARDED:
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
                _die_with(parent)
                status = self._serve()
            except KeyboardInterrupt:
                status = 130
            except Exception:
                traceback.print_exc()
                status = _CRASHED
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        self._started_at[pid] = time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)

    def _replace(self, pid: int, code: int, started_at: float) -> bool:
        young = time.monotonic() - started_at < _YOUNG
        self._young_deaths = self._young_deaths + 1 if young else 0
        if self._young_deaths >= _MAX_YOUNG or code in _REFUSED:
            return False
        _log.warning("process %d ended with status %d and is replaced", pid, code)
        self._start()
        return True

    def _forward(self, number: int, _: object = None) -> None:
        self._stopping = self._stopping or number != signal.SIGHUP
        for pid in tuple(self._started_at):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _die_with(parent: int) -> None:
    """Have the kernel terminate this process when its parent dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
