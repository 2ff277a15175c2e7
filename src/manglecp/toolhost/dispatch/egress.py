"""The channel to the broker of a host (:mod:`manglecp.toolhost.host.broker`), which connects only while a call is open.

The reports of the broker go to the log of each call that was open. Unlike those of a host, no plugin can forge them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

_MAX_REPORT: Final = 65_536  # bytes
_MAX_READ: Final = 256  # reports that are read at once
_MAX_PROBLEMS: Final = 3  # failed connections that the error of a call names
_log = logging.getLogger("manglecp.egress")


class _Connection(msgspec.Struct, frozen=True):
    """A connection of the host, or a failed one, during these calls."""

    message: str
    failed: bool
    calls: tuple[str, ...]


class BrokerChannel:
    """Announces calls and reads reports. Raises OSError or ValueError if the broker has ended or is faulty."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setblocking(False)
        self._problems: dict[str, list[str]] = {}  # by the id of an open call

    def begin(self, call_id: str) -> None:
        """Announce a call, before the host gets it."""
        self._problems[call_id] = []
        self._socket.send(b"+" + call_id.encode())

    def end(self, call_id: str) -> None:
        del self._problems[call_id]
        self._socket.send(b"-" + call_id.encode())

    def read(self, forward: Callable[[dict[str, Any]], bool]) -> None:
        """Pass each report, as a log line of an action, to ``forward``; if that returns False, log it here."""
        with suppress(BlockingIOError):
            for _ in range(_MAX_READ):  # a plugin may connect without end
                data = self._socket.recv(_MAX_REPORT)
                if not data:
                    raise ConnectionError("the broker has ended")
                self._receive(msgspec.json.decode(data, type=_Connection), forward)

    def _receive(self, connection: _Connection, forward: Callable[[dict[str, Any]], bool]) -> None:
        level = logging.WARNING if connection.failed else logging.INFO
        line = {"event": "log", "level": logging.getLevelName(level).lower(), "message": connection.message}
        for call_id in connection.calls:
            problems = self._problems.get(call_id, [])
            if connection.failed and connection.message not in problems and len(problems) < _MAX_PROBLEMS:
                problems.append(connection.message)
            if not forward({**line, "call_id": call_id}):
                _log.log(level, "%s", connection.message)

    def explain(self, call_id: str, document: dict[str, Any]) -> None:
        """Add the failed connections of a call to its answer, if its action failed."""
        if document.get("status") == "TOOL_ERROR":
            document["error"] = "; ".join([str(document.get("error", "")), *self._problems[call_id]])

    def close(self) -> None:
        self._socket.close()
