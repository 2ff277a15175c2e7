"""The side of dispatch in the conversation with the broker of a host (:mod:`manglecp.toolhost.host.broker`).

The broker connects only while a call is open, so calls are announced before they are sent. Its reports of connections
go to the log of each call that was open then. Unlike the reports of a host, a plugin cannot forge them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, Final

import msgspec

_MAX_REPORT: Final = 65_536  # bytes
_MAX_PROBLEMS: Final = 3  # refused connections that the error of a call names
_log = logging.getLogger("manglecp.egress")


class Connection(msgspec.Struct, frozen=True):
    """One connection of a host, as its broker reports it."""

    destination: str
    address: str
    problem: str
    """Why there is no connection; empty if there is one."""
    calls: tuple[str, ...]
    """The ids of the calls that were open."""

    def __str__(self) -> str:
        if self.problem:
            return f"no connection to {self.destination}: {self.problem}"
        return f"connected to {self.destination} at {self.address}"


class BrokerChannel:
    """Announces calls to the broker; reads its reports."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setblocking(False)
        self._problems: dict[str, list[str]] = {}  # of the open calls, by call id

    def begin(self, call_id: str) -> None:
        """Announce a call before it is sent. Raises OSError if the broker is gone, or does not read."""
        self._problems[call_id] = []
        self._socket.send(b"+" + call_id.encode())

    def end(self, call_id: str) -> None:
        """Announce the end of a call. Raises OSError as :meth:`begin` does."""
        del self._problems[call_id]
        self._socket.send(b"-" + call_id.encode())

    def read(self, forward: Callable[[dict[str, Any]], bool]) -> None:
        """Read the reports that have arrived. Raises OSError if the broker is gone.

        ``forward`` gets a report in the form of the log of an action for each call that was open; if it returns False,
        the report is logged here.
        """
        while True:
            try:
                data = self._socket.recv(_MAX_REPORT)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionError("the broker has ended")
            connection = msgspec.json.decode(data, type=Connection)
            level = "warning" if connection.problem else "info"
            for call_id in connection.calls:
                problems = self._problems.get(call_id)
                if problems is not None and connection.problem and len(problems) < _MAX_PROBLEMS:
                    problems.append(str(connection))
                report = {"event": "log", "call_id": call_id, "level": level, "message": str(connection)}
                if not forward(report):
                    _log.log(logging.WARNING if connection.problem else logging.INFO, "%s", connection)

    def explain(self, call_id: str, document: dict[str, Any]) -> None:
        """Add the connections that the broker refused to the answer of a call, if its action failed."""
        if document.get("status") == "TOOL_ERROR" and (problems := self._problems.get(call_id)):
            document["error"] = "; ".join([str(document.get("error", "")), *dict.fromkeys(problems)])

    def close(self) -> None:
        self._socket.close()
