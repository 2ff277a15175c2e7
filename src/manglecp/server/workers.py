"""Several processes that serve one address: each listens on the same socket, and all share the store.

They are forked before anything is loaded. The parent does nothing but pass signals on and replace those that died; one
that dies again and again at once is not worth replacing.
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

_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_YOUNG: Final = 5.0
"""Seconds: one that dies younger did not come to serve at all."""
_MOST_YOUNG: Final = 5
_REFUSED: Final = (1, 2)
"""The statuses of one that said what is wrong: the next one would say the same."""
_CRASHED: Final = 70
_DEATH_SIGNAL: Final = 1
_log = logging.getLogger(__name__)


def run_workers(count: int, serve: Callable[[], int], ended: Callable[[int], None]) -> int:
    """The exit status: 0 if all of them ended well after a signal. ``ended`` is told of each that is no more."""
    return _Workers(count, serve, ended).run()


class _Workers:
    def __init__(self, count: int, serve: Callable[[], int], ended: Callable[[int], None]) -> None:
        self._count = count
        self._serve = serve
        self._ended = ended
        self._born: dict[int, float] = {}
        self._stopping = False
        self._young = 0

    def run(self) -> int:
        for one in _PASSED_ON:
            signal.signal(one, self._pass_on)
        for _ in range(self._count):
            self._start()
        status = 0
        while self._born:
            try:
                pid, status_word = os.wait()
            except ChildProcessError:
                break
            born = self._born.pop(pid, None)
            if born is None:
                continue
            code = os.waitstatus_to_exitcode(status_word)
            self._ended(pid)
            if self._stopping:
                status = status or abs(code)
            elif not self._replaced(pid, code, born):
                status = abs(code) or 1
                self._stop(signal.SIGTERM)
        return status

    def _start(self) -> None:
        """Signals wait meanwhile: no child is overlooked when they are passed on, and none takes itself for us."""
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        if self._stopping:  # one came before that
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            return
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for one in _PASSED_ON:
                    signal.signal(one, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
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
        self._born[pid] = time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)

    def _replaced(self, pid: int, code: int, born: float) -> bool:
        young = time.monotonic() - born < _YOUNG
        self._young = self._young + 1 if young else 0
        if self._young >= _MOST_YOUNG or code in _REFUSED:
            return False
        _log.warning("the process %d ended with %d, and is replaced", pid, code)
        self._start()
        return True

    def _pass_on(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:
            self._tell(number)
        else:
            self._stop(number)

    def _stop(self, number: int) -> None:
        self._stopping = True
        self._tell(number)

    def _tell(self, number: int) -> None:
        for pid in tuple(self._born):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _die_with(parent: int) -> None:
    """A parent that is killed takes its children along."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
