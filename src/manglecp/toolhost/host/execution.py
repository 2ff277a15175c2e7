"""One call of one action: its input is converted, and its result or exception becomes an outcome.

Every exception of an action, ``SystemExit`` too, becomes ``TOOL_ERROR`` with its traceback on standard error; the host
survives. An action works on a copy of the slots, the state between calls; success commits the copy.

No call affects the next: each has its own context variables, tasks that it leaves behind are cancelled, timers stopped,
signal handlers restored, and new files in the temporary folder removed. A forked child that returns from the action is
ended there: it must not answer requests.
"""

from __future__ import annotations

import os
from _operator import is_  # the C module behind operator
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn

from manglecp.toolhost.context import NO_STATE, Context, Reports, describe, failure_members, trace
from manglecp.toolhost.conversion import ConversionError, encode_value
from manglecp.toolhost.host.messages import parse
from manglecp.toolhost.plugin import Lifespan, PluginAction
from manglecp.toolhost.state import Slots, own_slots

if TYPE_CHECKING:
    import asyncio
    import signal

    from manglecp.toolhost.host.destinations import UndeclaredDestinations
else:
    import _signal as signal  # the C module behind signal, without its enums


_SIGNALS: Final = range(1, 32)
# Signals that end a process, and SIGCHLD: if that were ignored, the plugin could not wait for its children.
_DEFAULT_BETWEEN_CALLS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD)
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def let_sigint_end_host() -> None:
    """Replace Python's handler of SIGINT with the default action; a parent that ignores SIGINT stays respected."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Signals:
    """Signal handlers and timers as they were after the plugin was loaded; restored after each call.

    Handlers that the plugin set while it was loaded are active during calls only. Between calls their signals are
    ignored, except those that end a process, which have their default action.
    """

    def __init__(self) -> None:
        self._plugin_handlers: Final = {n: handler for n in _SIGNALS if callable(handler := signal.getsignal(n))}
        for number in self._plugin_handlers:
            signal.signal(number, signal.SIG_DFL if number in _DEFAULT_BETWEEN_CALLS else signal.SIG_IGN)
        self._idle_handlers: Final = _handlers()
        self.restore()

    def activate(self) -> None:
        """Activate the plugin's handlers for a call."""
        for number, handler in self._plugin_handlers.items():
            signal.signal(number, handler)

    def restore(self) -> None:
        """Deactivate the plugin's handlers and all timers after a call."""
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        current = _handlers()
        if all(map(is_, self._idle_handlers, current)):  # the usual case: compared in C
            return
        for number, wanted, handler in zip(_SIGNALS, self._idle_handlers, current, strict=True):
            if handler is not wanted and wanted is not None:  # None: set by C code, which Python cannot restore
                signal.signal(number, wanted)


def _handlers() -> list[Any]:
    return list(map(signal.getsignal, _SIGNALS))


_CANCEL_SECONDS: Final = 1.0  # the time in which a cancelled task has to end


class InvalidInput(Exception):
    """Input that the action does not accept. The action was not called."""


class ActionOutcome(NamedTuple):
    """The result of an action, and the slots after it."""

    status: Literal["OK", "TOOL_ERROR"]
    output_json: str
    error: str
    slots: Slots
    failure: Mapping[str, Any] = MappingProxyType({})
    """More members of the answer to a failed call: see :func:`failure_members`.

    ``code`` is ``bad_output`` if the action returned, but its result cannot be encoded, or its slots are invalid.
    """


class ActionExecutor:
    """Runs actions, one after the other. Async ones share one event loop, which the first of them creates.

    ``concurrent``: actions run in the tasks of that loop which await :meth:`call`.

    ``settings`` are those of the pack, ``temporary`` the temporary folder of this host, if it has one.
    ``ignore_extra_inputs``: inputs that an action has no parameter for are dropped, not refused. The errors of actions
    name the ``undeclared`` destinations that a call tried to reach.
    """

    def __init__(
        self,
        reports: Reports,
        signals: Signals | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        temporary: str | None = None,
        *,
        ignore_extra_inputs: bool = False,
        concurrent: bool = False,
        undeclared: UndeclaredDestinations | None = None,
    ) -> None:
        self.concurrent: Final = concurrent
        self._running = 0  # the number of calls
        self._overlapping = False  # whether a call began while another was running
        self._end_lifespan: Callable[[], object] | None = None
        self._state: Any = NO_STATE
        self._lasting_tasks: set[asyncio.Task[Any]] = set()  # those of the lifespan
        self._ignore_extra_inputs = ignore_extra_inputs
        self._undeclared = undeclared
        self._reports = reports
        self._signals = signals
        self._settings = MappingProxyType(dict(settings))
        self._runner: asyncio.Runner | None = None
        self._process: Final = os.getpid()
        self._temporary = temporary
        self._lasting_files = frozenset(_names(temporary))  # files that loading the plugin created
        if concurrent and signals is not None:
            signals.activate()

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of async actions; create it if there is none."""
        import asyncio  # only a plugin with async functions pays for this import

        if self._runner is None or self._runner.get_loop().is_closed():
            self._runner = asyncio.Runner()
            if self.concurrent:
                from manglecp.toolhost.host.concurrency import track_calls

                track_calls(self._runner.get_loop())
        return self._runner.get_loop()

    def start(self, lifespan: Lifespan, secrets: Mapping[str, str]) -> None:
        """Start the lifespan of the plugin before the first call; raises PluginError. ``secrets``: values by name."""
        from manglecp.toolhost.host.lifespan import start_lifespan

        arguments = lifespan.arguments(Context({}, Reports(None), {}, self._settings), secrets)
        self._state, self._end_lifespan = start_lifespan(lifespan.function, arguments, self.event_loop)
        self._lasting_files = frozenset(_names(self._temporary))
        if self._runner is not None:
            import asyncio

            self._lasting_tasks = asyncio.all_tasks(self._runner.get_loop())
        if self._signals is not None and not self.concurrent:
            self._signals.restore()

    def stop(self) -> None:
        """Stop the lifespan, if there is one, after the last call; raises whatever it raises."""
        if self._end_lifespan is not None:
            self._end_lifespan()

    async def call(
        self,
        tool: PluginAction,
        input_json: str,
        slots: Slots,
        fields: Mapping[str, object],
        secrets: object = None,
    ) -> ActionOutcome:
        """Run one call; raises :class:`InvalidInput` before the action runs. Reports of the call have ``fields``.

        ``secrets`` has values by name.
        """
        try:
            inputs = parse(input_json)
            if self._ignore_extra_inputs and isinstance(inputs, dict):
                inputs = {name: value for name, value in inputs.items() if name in tool.parameters}
            arguments = tool.convert(inputs)
        except ConversionError as error:
            raise InvalidInput(f"invalid input: {error}") from error
        except ValueError as error:
            raise InvalidInput(f"invalid input: not JSON: {error}") from error
        for parameter, name in tool.secrets.items():
            value = secrets.get(name) if isinstance(secrets, dict) else None
            if isinstance(value, str):
                arguments[parameter] = value
            elif parameter not in tool.defaults:
                raise InvalidInput(f"the request has no value of the secret {name}")
        slots_of_action = dict(slots)
        if tool.context is not None:
            arguments[tool.context] = Context(slots_of_action, self._reports, fields, self._settings, self._state)
        if self._signals is not None and not self.concurrent:
            self._signals.activate()
        if self._undeclared is not None and not self._running:
            self._undeclared.forget()
        self._overlapping = self._running > 0
        returned = False
        self._running += 1
        try:
            if self.concurrent:
                from manglecp.toolhost.host.concurrency import run_in_scope

                result = await run_in_scope(tool.function, arguments)
            else:
                result = self._run(tool, arguments)
            returned = True
            output = encode_value(result)
            outcome = ActionOutcome("OK", output, "", own_slots(slots_of_action))
        except BaseException as error:
            if os.getpid() != self._process:
                _end_child(error)
            failure = {**failure_members(error), **({"code": "bad_output"} if returned else {})}
            text = describe(error)
            if self._undeclared is not None and not self._overlapping:  # else they may be destinations of other calls
                text += self._undeclared.explain()
            outcome = ActionOutcome("TOOL_ERROR", "{}", text, slots, failure)
        if os.getpid() != self._process:
            _end_child(None)
        if self._signals is not None and not self.concurrent:
            self._signals.restore()
        self._running -= 1
        if self._temporary is not None and not self._running and tool.declaration.generator is None:
            # a pass of a generator has many calls
            self._remove_new_files(self._temporary)
        return outcome

    def _remove_new_files(self, folder: str) -> None:
        for name in _names(folder):
            if name not in self._lasting_files:
                from shutil import rmtree  # only an action that leaves files pays for this import

                path = f"{folder}/{name}"
                is_folder = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
                with suppress(OSError, RecursionError):  # made hard to remove on purpose; removed with the host
                    (rmtree if is_folder else os.unlink)(path)

    def _run(self, tool: PluginAction, arguments: dict[str, Any]) -> Any:
        variables = copy_context()
        result = variables.run(tool.function, **arguments)
        # The result decides, not the definition: a decorator may make a function async, or an async one plain.
        if not hasattr(type(result), "__await__"):
            return result
        self.event_loop()
        assert self._runner is not None
        try:
            return self._runner.run(_as_coroutine(result), context=variables)
        finally:
            if tool.declaration.generator is None:  # the tasks of a pass live until its end
                self._cancel_tasks(self._runner)

    def _cancel_tasks(self, runner: asyncio.Runner) -> None:
        """Cancel the tasks that an action left running. If a task does not end, the next action gets another loop."""
        import asyncio

        loop = runner.get_loop()
        tasks = set() if loop.is_closed() else asyncio.all_tasks(loop) - self._lasting_tasks
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        try:
            still_running = runner.run(asyncio.wait(tasks, timeout=_CANCEL_SECONDS))[1]
        except BaseException:  # the loop is in an unknown state
            still_running = set(tasks)
        if still_running and self._end_lifespan is None:  # the state of a lifespan belongs to its loop
            self._runner = None


def _names(folder: str | None) -> list[str]:
    try:
        return [] if folder is None else os.listdir(folder)  # noqa: PTH208  # pathlib would be the slowest import
    except OSError:  # the action has used up all descriptors, and the next one cannot open a file either
        return []


async def _as_coroutine(result: Awaitable[Any]) -> Any:
    """Return the result of an awaitable: :class:`asyncio.Runner` accepts only coroutines."""
    return await result


def _end_child(error: BaseException | None) -> NoReturn:
    """Exit a forked process that returned from its action, with the status that an interpreter would exit with."""
    if isinstance(error, SystemExit):
        # A code that is not a number is a message, and stands for a failure; None for a success.
        os._exit(error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None))
    if error is not None:
        trace(error)
    os._exit(0 if error is None else 1)
