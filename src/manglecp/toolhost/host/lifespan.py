"""The lifespan of a plugin in its host: what is open from before the first call to after the last one.

An async lifespan runs in one task, because a cancel scope has to be left in the task that entered it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

from manglecp.toolhost.context import Context, describe
from manglecp.toolhost.plugin import PluginError, error_line

if TYPE_CHECKING:
    import asyncio
    import signal
else:
    import _signal as signal  # the C module behind signal, without its enums

SECONDS: Final = 10.0  # for the start, less than dispatch gives a host; dispatch gives the end as many
_REPEAT: Final = 0.5


class _Overdue(BaseException):
    """The start takes too long. Plugins do not catch it together with errors of their own."""


class HostLifespan:
    """The lifespan of this host; ``loop`` returns the event loop of its calls, for an async one only."""

    def __init__(self, function: Callable[..., Any], loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._function = function
        self._get_loop = loop
        self._end: Callable[[], object] = lambda: None

    def start(self, context: Context) -> Any:
        """Return what the lifespan yields; raises PluginError."""
        name, path = self._function.__name__, self._function.__code__.co_filename
        previous = signal.signal(signal.SIGALRM, _raise_overdue)
        signal.setitimer(signal.ITIMER_REAL, SECONDS, _REPEAT)
        try:
            return self._start(self._function(*[context] * self._function.__code__.co_argcount))
        except _Overdue:
            raise PluginError(f"the lifespan {name} did not start within {SECONDS:g} s") from None
        except BaseException as error:
            raise PluginError(
                f"the lifespan {name} cannot start: {describe(error)}{error_line(error, path)}"
            ) from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

    def _start(self, items: Iterator[Any] | AsyncIterator[Any]) -> Any:
        if isinstance(items, Iterator):
            self._end = lambda: next(items, None)
            return next(items)
        import asyncio

        loop, stop = self._get_loop(), asyncio.Event()
        started: asyncio.Future[Any] = loop.create_future()
        task = loop.create_task(_hold(items, started, stop))
        loop.run_until_complete(asyncio.wait({started, task}, return_when=asyncio.FIRST_COMPLETED))
        if not started.done():
            task.result()
            raise RuntimeError("it has not yielded")

        def end() -> None:
            stop.set()
            loop.run_until_complete(task)

        self._end = end
        return started.result()

    def stop(self) -> None:
        """Run what follows the yield; raises whatever it raises."""
        self._end()


async def _hold(items: AsyncIterator[Any], started: asyncio.Future[Any], stop: asyncio.Event) -> None:
    async for state in items:
        started.set_result(state)  # raises InvalidStateError for a second yield
        await stop.wait()


def _raise_overdue(*_: object) -> NoReturn:
    raise _Overdue
