"""The host's services for a running action: settings, slots, progress, logs, and errors that callers may read.

An action that needs these has a parameter annotated ``Context``, which callers do not see. Reports (progress, logs,
lease events) leave the host on a descriptor of their own, one line of JSON each. Progress and logs are advisory:
if the reader is slow, some are dropped and the next report states how many; the action never waits.

Lease events are not dropped: those that cannot be sent go to standard error.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic

from manglecp.toolhost.state import Slots

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    StateT = TypeVar("StateT", default=Any)
else:  # type parameters with defaults need Python 3.13
    from typing import TypeVar

    StateT = TypeVar("StateT")

_MAX_DESCRIPTION: Final = 4_000  # characters
_MAX_TRACE: Final = 16_000  # characters
MAX_ERROR_MESSAGE: Final = 2_000  # characters of the message of an ActionError
MAX_ERROR_DATA: Final = 16_384  # characters of the data of an ActionError, as JSON
ACTION_CODE: Final = r"x-[a-z0-9][a-z0-9_-]{0,61}"


class ActionError(Exception):
    """A failure that callers and models may read, raised by an action; the text of other exceptions is not sent.

    ``message`` describes the problem and what to do about it. ``code`` becomes the error code of the invocation if the
    run has had no effect. ``data`` is any value that an action may return.
    """

    def __init__(self, message: str, *, code: str | None = None, data: object = None) -> None:
        if not str(message).strip():
            raise ValueError("an ActionError needs a message")
        if code is not None and re.fullmatch(ACTION_CODE, code) is None:
            raise ValueError(f"{code!r} is no code of an action: these are x- and up to 62 of a-z, 0-9, _ and -")
        super().__init__(message)
        self.message = str(message)
        self.code = code
        self.data = data


def describe(error: BaseException) -> str:
    """Return name and text of an exception (of a group: with its first member); only the name if ``__str__`` raises."""
    name = type(error).__name__
    try:
        text = str(error)
        if isinstance(error, BaseExceptionGroup):
            text = f"{text}: {describe(error.exceptions[0])}"
        return _encodable(f"{name}: {text}" if text else name)[:_MAX_DESCRIPTION]
    except BaseException:
        return name[:_MAX_DESCRIPTION]


def trace(error: BaseException) -> str:
    """Write a traceback to standard error, and return it."""
    try:
        from traceback import format_exception  # not at the top: its import would slow the start of every host

        text = _encodable("".join(format_exception(error))[-_MAX_TRACE:])
    except BaseException:  # a method of the exception raised
        return ""
    _write_stderr(text)
    return text


def failure_members(error: BaseException) -> dict[str, Any]:
    """Write a traceback to standard error; return members of the answer to a failed call, for operators and callers."""
    members: dict[str, Any] = {"traceback": trace(error)}
    if isinstance(error, ActionError):
        cause = members["action_error"] = {"message": _encodable(error.message)[:MAX_ERROR_MESSAGE], "code": error.code}
        try:
            from manglecp.toolhost.conversion import encode_value  # not at the top: it imports this module

            cause["data_json"] = text = encode_value(error.data)
            if len(text) > MAX_ERROR_DATA:
                raise ValueError(f"{len(text)} characters of JSON, and {MAX_ERROR_DATA} are allowed")
        except Exception as problem:  # the message is sent without the data
            cause.pop("data_json", None)
            members["traceback"] += f"its data are not sent: {describe(problem)}\n"
    return members


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which some readers of JSON refuse."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


SETTINGS: Final = "MANGLECP_SETTINGS"  # the environment variable with the settings of the pack: a JSON object of texts
_MAX_LINE: Final = 4096  # PIPE_BUF: a line up to this size is written whole or not at all
_MAX_TEXT: Final = 512  # characters of a message or a level that an action reports
_MAX_NUMBER: Final = 1e308  # nearly the largest float: a larger integer would be infinity for most readers of JSON
_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


class Reports:
    """Sends reports on a descriptor.

    Without a descriptor, logs and lease events go to standard error, and progress is dropped. Without
    ``lease_events``, lease events are dropped, because the issuer of the leases audits them.
    """

    def __init__(self, descriptor: int | None, *, lease_events: bool = True) -> None:
        self._descriptor = descriptor
        self._lease_events = lease_events
        self._dropped = 0  # the number of reports since the last sent one
        if descriptor is not None:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def send(self, event: str, details: Mapping[str, object]) -> None:
        """Send one report. If the pipe has no room, drop it, or write a lease event to standard error."""
        is_lease_event = event.startswith("lease_")
        if is_lease_event and not self._lease_events:
            return
        if self._descriptor is None:
            if event == "log":
                _write_stderr(f"{details.get('message')}\n")
            elif is_lease_event:
                _write_stderr(_encode({"event": event, **details}) + "\n")
            return
        report: dict[str, object] = {"event": event, **details}
        if self._dropped:
            report["lost_before"] = self._dropped
        line = _encodable(_encode(report)) + "\n"
        if _write_whole(self._descriptor, line.encode()):
            self._dropped = 0
        elif is_lease_event:
            _write_stderr(line)
        else:
            self._dropped += 1


NO_STATE: Final = object()


class Context(Generic[StateT]):
    """The context of a call, for its action. ``call`` has the members that identify the call in its reports.

    ``Context[Pool]`` is the context in a plugin whose ``@lifespan`` yields a Pool.
    """

    __slots__ = ("_call", "_reports", "_settings", "_slots", "_state")

    def __init__(
        self,
        slots: Slots,
        reports: Reports,
        call: Mapping[str, object],
        settings: Mapping[str, str] = MappingProxyType({}),
        state: Any = NO_STATE,
    ) -> None:
        self._slots = slots
        self._reports = reports
        self._call = call
        self._settings = settings
        self._state = state

    @property
    def state(self) -> StateT:
        """What the lifespan of the plugin has yielded; one object for all calls of a host.

        Raises RuntimeError if the plugin has no ``@lifespan``, and in the lifespan itself.
        """
        if self._state is NO_STATE:
            raise RuntimeError("there is no context.state: declare a function that yields it with @lifespan")
        state: StateT = self._state
        return state

    @property
    def slots(self) -> Slots:
        """The state of the run. If the action succeeds, the content of this dict becomes the new state."""
        return self._slots

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the pack (``--set NAME=VALUE``), by name. A caller cannot change them."""
        return self._settings

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress to the caller. A value that JSON cannot represent is sent as null."""
        self._send("progress", {"done": _number(done), "total": _number(total), "message": message[:_MAX_TEXT]})

    def log(self, message: str, level: str = "info") -> None:
        """Write a line to the server's log; ``level`` is debug, info, warning, error or critical."""
        self._send("log", {"level": level[:_MAX_TEXT], "message": message[:_MAX_TEXT]})

    def _send(self, event: str, details: dict[str, Any]) -> None:
        self._reports.send(event, {**self._call, **details})


def _number(value: float | None) -> float | None:
    return value if isinstance(value, (int, float)) and -_MAX_NUMBER < value < _MAX_NUMBER else None


def _write_whole(descriptor: int, line: bytes) -> bool:
    """Write a line; return False if it is too long, or the pipe is full or closed."""
    try:
        return len(line) <= _MAX_LINE and bool(os.write(descriptor, line))
    except OSError:  # an action never fails because of its reports
        return False


def _write_stderr(text: str) -> None:
    try:
        sys.stderr.write(text)
    except Exception:  # standard error is None, broken or closed, or replaced by the plugin
        return
