"""What an action may ask of its host while it runs: settings, slots to work with, and a way to say how far it is.

An action that wants it has a parameter annotated ``Context``; callers do not see that parameter. Reports leave the host
on a descriptor of their own, one line of JSON each. They are advice: a reader who is too slow loses some, and learns
how many, but never stops the action.

What is told about leases is no advice. It waits for the reader, and where there is none, or too much of it waits, it
goes to standard error. A long text in it, such as a call id, is shortened and named by its digest.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from manglecp.toolhost.short_json import writer
from manglecp.toolhost.state import Slots

__all__ = ["SETTINGS", "Context", "Reports"]

SETTINGS: Final = "MANGLECP_SETTINGS"
"""The variable in which a host is told the settings of its pack: a JSON object of texts."""
_LINE: Final = 4096
"""PIPE_BUF: a line up to this size is written whole or not at all."""
_TEXT: Final = 512
_SHORT: Final = 32
_WAITING: Final = 1024
"""Lines about leases that wait for their reader."""
_LARGEST: Final = 1e308
_encode: Final = writer()


class Reports:
    """Where reports go. Without a descriptor, logs and leases go to standard error and the rest nowhere.

    A descriptor of the null device says that nobody listens: nothing is reported then.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._nowhere = descriptor is not None and _is_null(descriptor)
        self._lost = 0
        self._waiting: list[bytes] = []
        if descriptor is not None:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def send(self, event: str, details: Mapping[str, object]) -> None:
        """Send one report, if there is room for it now."""
        if self._nowhere:
            return
        audited = event.startswith("lease_")
        if self._descriptor is None:
            if event == "log":
                _complain(f"{details.get('message')}\n")
            elif audited:
                _complain(_encode({"event": event, **details}) + "\n")
            return
        report: dict[str, object] = {"event": event, **details}
        if self._lost:
            report["lost_before"] = self._lost
        line = _encode(report).encode() + b"\n"
        if len(line) > _LINE:
            line = _encode({name: _short(value) for name, value in report.items()}).encode() + b"\n"
        if audited:
            self._waiting.append(line)
            self._lost = 0
            self._drain()
        elif self._drain() and self._write(line) == 0:
            self._lost = 0
        else:  # the action is more important than what it tells
            self._lost += 1

    def close(self) -> None:
        """Tell what still waits, one way or the other."""
        self._drain()
        self._give_up()

    def _drain(self) -> bool:
        """Send what waits, in its order; whether nothing waits any more."""
        while self._waiting:
            problem = self._write(self._waiting[0])
            if problem:
                if problem != errno.EAGAIN or len(self._waiting) > _WAITING:
                    self._give_up()
                return False
            del self._waiting[0]
        return True

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            _complain(b"".join(waiting).decode())

    def _write(self, line: bytes) -> int:
        """Write one line; the number of the error, 0 for none."""
        assert self._descriptor is not None
        try:
            os.write(self._descriptor, line)
        except OSError as error:  # full or closed
            return error.errno or errno.EIO
        return 0


class Context:
    """One call, as its action sees it."""

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
        """The state: what is in this dict when the action returns is part of the answer, unless the action fails."""
        return self._slots

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the pack (``--set NAME=VALUE``), by name. A caller cannot change them."""
        return self._settings

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the action is. What is no number in JSON is told as none."""
        self._send("progress", {"done": _number(done), "total": _number(total), "message": message[:_TEXT]})

    def log(self, message: str, level: str = "info") -> None:
        """Say something to whoever operates the host."""
        self._send("log", {"level": level[:_TEXT], "message": message[:_TEXT]})

    def _send(self, event: str, details: dict[str, Any]) -> None:
        self._reports.send(event, {**self._call, **details})


def _is_null(descriptor: int) -> bool:
    return os.fstat(descriptor).st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116  # a host loads no pathlib


def _number(value: float | None) -> float | None:
    return value if isinstance(value, (int, float)) and -_LARGEST < value < _LARGEST else None


def _short(value: object) -> object:
    """A text that surely fits, and cannot be taken for another."""
    if not isinstance(value, str) or len(value) <= _SHORT * 2:
        return value
    from manglecp.toolhost.hashing import hex_digest

    return f"{value[:_SHORT]} sha256:{hex_digest(value.encode('utf-8', 'surrogatepass'))}"


def _complain(text: str) -> None:
    """Tell a person, if there is one: a tool may have closed the stream."""
    try:
        sys.stderr.write(text)
    except (AttributeError, OSError, ValueError):
        return
