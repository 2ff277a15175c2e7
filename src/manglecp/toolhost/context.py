"""What an action may ask of its host while it runs: slots to work with, and a way to say how far it is.

An action that wants it has a parameter annotated ``Context``; callers do not see that parameter. Reports leave the host
on a descriptor of their own, one line of JSON each. They are advice: a reader who is too slow loses some, and learns
how many, but never stops the action.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from manglecp.toolhost.state import Slots

__all__ = ["Context", "Reports"]

_LINE: Final = 4096
"""PIPE_BUF: a line up to this size is written whole or not at all."""
_TEXT: Final = 512
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class Reports:
    """Where reports go. Without a descriptor, logs go to standard error and the rest nowhere."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._lost = 0
        if descriptor is not None:
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)

    def send(self, event: str, details: Mapping[str, object]) -> None:
        """Send one report, if there is room for it now."""
        if self._descriptor is None:
            if event == "log":
                print(details.get("message"), file=sys.stderr)  # noqa: T201  # a person reads it
            return
        report: dict[str, object] = {"event": event, **details}
        if self._lost:
            report["lost_before"] = self._lost
        line = _encode(report).encode() + b"\n"
        try:
            if len(line) > _LINE:
                raise OSError("a report is one short line")
            os.write(self._descriptor, line)
            self._lost = 0
        except OSError:  # full, closed or too long: the action is more important than what it tells
            self._lost += 1


class Context:
    """One call, as its action sees it."""

    __slots__ = ("_call", "_reports", "_slots")

    def __init__(self, slots: Slots, reports: Reports, call: Mapping[str, object]) -> None:
        self._slots = slots
        self._reports = reports
        self._call = call

    @property
    def slots(self) -> Slots:
        """The state: what is in this dict when the action returns is part of the answer, unless the action fails."""
        return self._slots

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the action is."""
        self._send("progress", {"done": done, "total": total, "message": message[:_TEXT]})

    def log(self, message: str, level: str = "info") -> None:
        """Say something to whoever operates the host."""
        self._send("log", {"level": level[:_TEXT], "message": message[:_TEXT]})

    def _send(self, event: str, details: dict[str, Any]) -> None:
        self._reports.send(event, {**self._call, **details})
