"""Signals and timers, as they were before a tool ran.

A tool may set a timer and return before it fires, or leave a handler behind. Between two calls that would be an
exception in the middle of the host, and perhaps in the middle of an answer. So all of it is undone after each call.

What the top level of a plugin sets up is there for its calls, and only then: in between, its signals wait, except those
that end a process, which end an idle host as they always do.
"""

from __future__ import annotations

from _operator import is_
from typing import TYPE_CHECKING, Any, Final

from manglecp.toolhost.describing import trace

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # what the module of the standard library is made of, without its enums

__all__ = ["Signals", "default_interrupt"]

_NUMBERS: Final = range(1, 32)
_ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def default_interrupt() -> None:
    """Let an interrupt end the host, not surprise it. A shell that had it ignored still has."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Signals:
    """What was set when this was made, after the plugin was loaded."""

    def __init__(self) -> None:
        handled = {number: handler for number in _NUMBERS if callable(handler := signal.getsignal(number))}
        self._ending: Final = {number: handled.pop(number) for number in _ENDING if number in handled}
        self._waiting: Final = list(handled)
        for number in self._ending:
            signal.signal(number, signal.SIG_DFL)
        self._handlers: Final = _handlers()
        self.put_back()

    def lend(self) -> None:
        """Let the handlers of the plugin work, for a call. What one of them raises about earlier times is told."""
        for number, handler in self._ending.items():
            signal.signal(number, handler)
        if self._waiting:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, self._waiting)
            except BaseException as error:
                trace(error)

    def put_back(self) -> None:
        """Undo what was changed since."""
        if self._waiting:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._waiting)
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        now = _handlers()
        if all(map(is_, self._handlers, now)):  # the usual case, after each call: not one step of it is Python's
            return
        for number, before, after in zip(_NUMBERS, self._handlers, now, strict=True):
            if after is not before and before is not None:  # None: not Python's to set
                signal.signal(number, before)


def _handlers() -> list[Any]:
    return list(map(signal.getsignal, _NUMBERS))
