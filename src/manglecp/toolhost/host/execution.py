"""One call of one action: its input converted, its slots lent, its outcome caught.

Whatever an action does, the host lives on: every exception, ``SystemExit`` too, becomes ``TOOL_ERROR``. An action works
on a copy of the slots, and the copy counts only if it succeeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from manglecp.toolhost.context import Context, Reports
from manglecp.toolhost.conversion import ConversionError
from manglecp.toolhost.host.messages import parse
from manglecp.toolhost.state import Slots, full
from manglecp.toolhost.tool import Tool

if TYPE_CHECKING:
    import asyncio

__all__ = ["InvalidInput", "Outcome", "Worker"]

_ERROR: Final = 4000
"""Characters of an exception that are answered."""


class InvalidInput(Exception):
    """Input that the action does not take. It was not called."""


class Outcome(NamedTuple):
    """A ToolResult, and the slots after it."""

    status: str
    output_json: str
    error: str
    slots: Slots


class Worker:
    """Runs actions, one after the other. Those that are async share one event loop, made when the first comes."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._runner: asyncio.Runner | None = None

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
            arguments[tool.context] = Context(lent, self._reports, call)
        try:
            result = tool.function(**arguments)
            if tool.is_async:
                result = self._await(result)
            output = _encode(result)
            full(lent)  # slots that could not be sent are the action's failure, not the host's
        except BaseException as error:
            return Outcome("TOOL_ERROR", "{}", _said(error), slots)
        return Outcome("OK", output, "", lent)

    def _await(self, result: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:
            from asyncio import Runner  # only a plugin with async actions pays for it

            self._runner = Runner()
        return self._runner.run(result)


def _said(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # an exception may fail to describe itself
        text = ""
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:_ERROR]


def _plain(value: Any) -> Any:
    """What JSON has no word for, as what it has one for. Its library is imported already, or it could not be here."""
    if hasattr(value, "__dataclass_fields__"):
        return sys.modules["dataclasses"].asdict(value)
    if hasattr(value, "__struct_fields__"):
        return sys.modules["msgspec"].to_builtins(value)
    if (enum := sys.modules.get("enum")) is not None and isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"the result holds a {type(value).__name__}, which has no meaning in JSON")


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode
