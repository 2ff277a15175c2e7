"""The host's services for a running action: settings, slots, progress and logs.

An action that needs them has a parameter annotated ``Context``; callers do not see that parameter. Reports leave the
host on their own descriptor, one line of JSON each. They are advisory: a slow reader loses some, and receives their
number, but never blocks the action.

Lease events are not advisory: if the pipe is full they go to standard error. A long text in them, such
as a call id, is truncated and named by its digest.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from manglecp.toolhost.state import Slots

_MAX_DESCRIPTION: Final = 4_000
_MAX_TRACE: Final = 64_000


def describe(error: BaseException) -> str:
    """Return the name and text of an exception (of a group, its first cause), even if its ``__str__`` raises."""
    name = type(error).__name__
    try:
        text = str(error)
        if isinstance(error, BaseExceptionGroup):
            text = f"{text}: {describe(error.exceptions[0])}"
        return (f"{name}: {text}" if text else name)[:_MAX_DESCRIPTION]
    except BaseException:
        return name[:_MAX_DESCRIPTION]


def trace(error: BaseException) -> None:
    try:
        from traceback import format_exception  # only failures pay for it

        sys.stderr.write("".join(format_exception(error))[-_MAX_TRACE:])
    except BaseException:  # standard error is unusable
        return


SETTINGS: Final = "MANGLECP_SETTINGS"  # the environment variable with the settings of the pack: a JSON object of texts
_LINE: Final = 4096  # PIPE_BUF: a line up to this size is written whole or not at all
_TEXT: Final = 512
_SHORT: Final = 32
_LARGEST: Final = 1e308
_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Reports:
    """Sends reports. Without a descriptor, logs and lease events go to standard error; the null device disables all."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._disabled = False
        self._lost = 0
        if descriptor is not None:
            null = os.stat(os.devnull).st_rdev  # noqa: PTH116  # a host loads no pathlib
            self._disabled = os.fstat(descriptor).st_rdev == null
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def send(self, event: str, details: Mapping[str, object]) -> None:
        """Send one report, if there is room for it now."""
        if self._disabled:
            return
        audited = event.startswith("lease_")
        if self._descriptor is None:
            if event == "log":
                _write_stderr(f"{details.get('message')}\n")
            elif audited:
                _write_stderr(_encode({"event": event, **details}) + "\n")
            return
        report: dict[str, object] = {"event": event, **details}
        if self._lost:
            report["lost_before"] = self._lost
        line = _encode(report).encode() + b"\n"
        if len(line) > _LINE:
            line = _encode({name: _short(value) for name, value in report.items()}).encode() + b"\n"
        try:
            os.write(self._descriptor, line)
            self._lost = 0
        except OSError:  # full or closed; an action never fails because of its reports
            if audited:
                _write_stderr(line.decode())
            else:
                self._lost += 1


class Context:
    """The context of a call, for its action."""

    __slots__ = ("_call", "_reports", "_settings", "_slots")

    def __init__(
        self,
        slots: Slots,
        reports: Reports,
        call: Mapping[str, object],
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._slots = slots
        self._reports = reports
        self._call = call
        self._settings = settings

    @property
    def slots(self) -> Slots:
        """The state. If the action succeeds, the content of this dict becomes the new state."""
        return self._slots

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the pack (``--set NAME=VALUE``), by name. A caller cannot change them."""
        return self._settings

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress. A value that JSON cannot represent is sent as null."""
        self._send("progress", {"done": _number(done), "total": _number(total), "message": message[:_TEXT]})

    def log(self, message: str, level: str = "info") -> None:
        self._send("log", {"level": level[:_TEXT], "message": message[:_TEXT]})

    def _send(self, event: str, details: dict[str, Any]) -> None:
        self._reports.send(event, {**self._call, **details})


def _number(value: float | None) -> float | None:
    return value if isinstance(value, (int, float)) and -_LARGEST < value < _LARGEST else None


def _short(value: object) -> object:
    if not isinstance(value, str) or len(value) <= _SHORT * 2:
        return value
    return f"{value[:_SHORT]} sha256:{sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _write_stderr(text: str) -> None:
    try:
        sys.stderr.write(text)
    except (AttributeError, OSError, ValueError):
        return
