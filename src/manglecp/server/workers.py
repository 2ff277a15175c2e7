"""Several processes that serve one address: all listen on the same socket and share the store.

The processes are forked before the server is loaded. The parent forwards signals, and replaces processes that die. The
parent ends all processes if several die in succession soon after their start, or if a process reports wrong options.
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

_FORWARDED_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_EARLY_SECONDS: Final = 5.0
"""A process that lived for a shorter time probably did not serve at all."""
_MAX_EARLY_DEATHS: Final = 5
_ERROR_STATUSES: Final = (1, 2)
"""The statuses of a process that reported an error of its options or files: a new process would do the same."""
_CRASH_STATUS: Final = 70  # EX_SOFTWARE of sysexits.h; the process is replaced
_PR_SET_PDEATHSIG: Final = 1
_log = logging.getLogger(__name__)


def run_workers(count: int, serve: Callable[[], int], on_end: Callable[[int], None]) -> int:
    """Run ``serve``, which returns an exit status, in ``count`` processes until a signal ends them.

    Return 0 if the processes return 0 after the signal, else the first status that is not 0. ``on_end`` is called with
    the id of each process that has ended.
    """
    return _Workers(count, serve, on_end).run()


class _Workers:
    def __init__(self, count: int, serve: Callable[[], int], on_end: Callable[[int], None]) -> None:
        self._count = count
        self._serve = serve
        self._on_end = on_end
        self._started_at: dict[int, float] = {}
        self._is_stopping = False
        self._early_deaths = 0  # the number of consecutive ones

    def run(self) -> int:
        for number in _FORWARDED_SIGNALS:
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
            code = os.waitstatus_to_exitcode(wait_status)  # negative: the number of a signal
            self._on_end(pid)
            if self._is_stopping:
                status = status or abs(code)  # the first status that is not 0
            elif not self._replace(pid, code, started_at):
                status = abs(code) or 1
                self._forward(signal.SIGTERM)
        return status

    def _start(self) -> None:
        """Fork, with signals blocked until the parent has recorded the child and the child has reset the handlers."""
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED_SIGNALS)
        if self._is_stopping:  # after a signal that arrived before the signals were blocked
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED_SIGNALS)
            return
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for number in _FORWARDED_SIGNALS:
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED_SIGNALS)
                _terminate_with(parent)
                status = self._serve()
            except KeyboardInterrupt:
                status = 130  # 128 + SIGINT, as in a shell
            except Exception:
                traceback.print_exc()
                status = _CRASH_STATUS
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        self._started_at[pid] = time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED_SIGNALS)

    def _replace(self, pid: int, code: int, started_at: float) -> bool:
        """Start a process in place of one that died; return False if that would not help."""
        is_early = time.monotonic() - started_at < _EARLY_SECONDS
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        if self._early_deaths >= _MAX_EARLY_DEATHS or code in _ERROR_STATUSES:
            return False
        _log.warning("process %d ended with status %d and is replaced", pid, code)
        self._start()
        return True

    def _forward(self, number: int, _: object = None) -> None:
        self._is_stopping = self._is_stopping or number != signal.SIGHUP  # SIGHUP only reloads
        for pid in tuple(self._started_at):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _terminate_with(parent: int) -> None:
    """Have the kernel terminate this process when its parent dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before prctl
        os._exit(1)
