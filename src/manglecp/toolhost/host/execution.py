"""One call of one action: its input converted, its slots lent, its outcome caught.

Whatever an action does, the host lives on: every exception, ``SystemExit`` too, becomes ``TOOL_ERROR``, and where it
came from is told on standard error. An action works on a copy of the slots, and a copy of that counts if it succeeds.

Nothing of a call reaches into the next one: each has its own context variables, tasks that it leaves behind are
cancelled, timers stopped, and signal handlers put back. A child that an action forked ends where the action does.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Mapping
from contextvars import Context as Variables, copy_context
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from manglecp.toolhost.context import Context, Reports
from manglecp.toolhost.conversion import ConversionError
from manglecp.toolhost.describing import describe, trace
from manglecp.toolhost.host.messages import parse
from manglecp.toolhost.host.signals import Signals
from manglecp.toolhost.plain import encode_value
from manglecp.toolhost.state import Slots, own_slots
from manglecp.toolhost.tool import Tool

if TYPE_CHECKING:
    import asyncio

__all__ = ["InvalidInput", "Outcome", "Worker"]

_CANCELLING: Final = 1.0
"""Seconds that tasks have to end after they were cancelled."""


class InvalidInput(Exception):
    """Input that the action does not take. It was not called."""


class Outcome(NamedTuple):
    """A ToolResult, and the slots after it."""

    status: str
    output_json: str
    error: str
    slots: Slots
    returned: bool = False
    """Of an error: the action itself ended well, and what it returned cannot be told."""


class Worker:
    """Runs actions, one after the other. Those that are async share one event loop, made when the first comes."""

    def __init__(
        self, reports: Reports, signals: Signals | None = None, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._reports = reports
        self._signals = signals
        self._settings = MappingProxyType(dict(settings))
        self._runner: asyncio.Runner | None = None
        self._process: Final = os.getpid()

    def call(self, tool: Tool, input_json: str, slots: Slots, call: Mapping[str, object]) -> Outcome:
        """The outcome of one call; :class:`InvalidInput` if there was none."""
        try:
            arguments = tool.convert(parse(input_json))
        except ConversionError as error:
            raise InvalidInput(f"invalid input: {error}") from error
        except ValueError as error:
            raise InvalidInput(f"invalid input: not JSON: {error}") from error
        lent = dict(slots)
        if tool.context is not None:
            arguments[tool.context] = Context(lent, self._reports, call, self._settings)
        if self._signals is not None:
            self._signals.lend()
        returned = False
        try:
            result = self._result(tool, arguments)
            returned = True
            output = encode_value(result)
            kept = own_slots(lent)  # slots that could not be sent are the action's failure, not the host's
            outcome = Outcome("OK", output, "", kept)
        except BaseException as error:
            if os.getpid() != self._process:
                _end_child(error)
            trace(error)
            outcome = Outcome("TOOL_ERROR", "{}", describe(error), slots, returned)
        if os.getpid() != self._process:
            _end_child(None)
        if self._signals is not None:
            self._signals.put_back()
        return outcome

    def _result(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        variables = copy_context()
        result = variables.run(tool.function, **arguments)
        # A decorator may make an async function of a plain one, or the other way round; what came back decides.
        return self._await(result, variables) if hasattr(type(result), "__await__") else result

    def _await(self, result: Awaitable[Any], variables: Variables) -> Any:
        import asyncio  # only a plugin with async actions pays for it

        if self._runner is None or self._runner.get_loop().is_closed():
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(_awaited(result), context=variables)
        finally:
            self._cancel_rest(self._runner)

    def _cancel_rest(self, runner: asyncio.Runner) -> None:
        """End what the action has left running. A task that will not end takes its loop with it."""
        import asyncio

        loop = runner.get_loop()
        tasks = [] if loop.is_closed() else asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        try:
            _, running = runner.run(asyncio.wait(tasks, timeout=_CANCELLING))
        except BaseException:  # what a task raised beyond all measure; its loop is in an unknown state
            self._runner = None
        else:
            if running:
                self._runner = None


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _end_child(error: BaseException | None) -> NoReturn:
    """Leave a process that an action forked and let run on, as an interpreter would."""
    if isinstance(error, SystemExit):
        os._exit(error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None))
    if error is not None:
        trace(error)
    os._exit(error is not None)
