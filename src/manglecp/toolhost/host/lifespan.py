"""The start and the end of the lifespan of a plugin in its host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from manglecp.toolhost.context import describe
from manglecp.toolhost.plugin import PluginError, error_line

if TYPE_CHECKING:
    import asyncio
    import signal
else:
    import _signal as signal  # the C module behind signal, without its enums

START_SECONDS: Final = 10.0  # less than dispatch waits for a host to start; it waits as long for the lifespan's end
_ALARM_REPEAT_SECONDS: Final = 0.5  # the first alarm may be raised in a background task of the plugin


class _Overdue(BaseException):
    """The start takes too long. Plugins do not catch it together with errors of their own."""


def start_lifespan(
    function: Callable[..., Any], arguments: Mapping[str, Any], get_loop: Callable[[], asyncio.AbstractEventLoop]
) -> tuple[Any, Callable[[], object]]:
    """Return what the lifespan yields, and the function that runs the rest of it; raises PluginError.

    ``get_loop`` returns the event loop of the actions; it is called for an async lifespan only.
    """
    name, code = function.__name__, function.__code__
    previous = signal.signal(signal.SIGALRM, _raise_overdue)
    signal.setitimer(signal.ITIMER_REAL, START_SECONDS, _ALARM_REPEAT_SECONDS)
    try:
        items = function(**arguments)
        if isinstance(items, Iterator):
            return next(items), lambda: next(items, None)
        return _start_in_loop(items, get_loop())
    except _Overdue:
        raise PluginError(f"the lifespan {name} did not start within {START_SECONDS:g} s") from None
    except BaseException as error:
        line = error_line(error, code.co_filename)
        raise PluginError(f"the lifespan {name} cannot start: {describe(error)}{line}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _start_in_loop(items: AsyncIterator[Any], loop: asyncio.AbstractEventLoop) -> tuple[Any, Callable[[], object]]:
    import asyncio

    started: asyncio.Future[Any] = loop.create_future()
    stop = asyncio.Event()

    async def hold() -> None:  # one task, because a cancel scope has to be left in the task that entered it
        async for state in items:
            started.set_result(state)  # raises InvalidStateError for a second yield
            await stop.wait()

    def end() -> None:
        stop.set()
        loop.run_until_complete(task)

    task = loop.create_task(hold())
    loop.run_until_complete(asyncio.wait({started, task}, return_when=asyncio.FIRST_COMPLETED))
    if not started.done():
        task.result()  # raises what the lifespan has raised
        raise RuntimeError("it has not yielded")
    return started.result(), end


def _raise_overdue(*_: object) -> NoReturn:
    raise _Overdue
