"""The relay between a host and one server: ``manglecp guard relay``.

Frames are forwarded in order, as the bytes that were received, except those that are ambiguous, those that the gate
refuses or filters. In shadow mode nothing is refused but frames that are too large; an ambiguous frame is written
anew, so that the server reads what the decision was made about.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from manglecp.guard.frames import (
    FrameSplitter,
    encode,
    error_frame,
    is_failure,
    read_envelope,
    read_frame,
    tool_error_frame,
)
from manglecp.guard.gate import Admission, Gate, warn

_CHUNK_BYTES: Final = 262_144
_GRACE_SECONDS: Final = 5.0
"""The time that a server has to end after the host has closed its input, before it is terminated."""
_KILL_SECONDS: Final = 1.0
"""Below the two seconds after which hosts kill a relay that they have terminated."""
_INVALID_REQUEST: Final = -32600
_INTERNAL_ERROR: Final = -32603
_INVALID_PARAMS: Final = -32602
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WATCHDOG: Final = ("/bin/sh", "-c", 'exec >/dev/null 2>&1; read -r _; kill -9 -"$1"', "sh")
"""Kills a process group when its standard input is closed: the kernel closes it when the relay dies."""
_RequestKey: TypeAlias = tuple[type, str | int]
_Filter: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class Relay:
    """The frames of one connection. ``to_host`` and ``to_server`` write bytes."""

    def __init__(self, gate: Gate, to_host: Callable[[bytes], None], to_server: Callable[[bytes], None]) -> None:
        self._gate = gate
        self._to_host = to_host
        self._to_server = to_server
        self._open: dict[_RequestKey, Admission | None] = {}
        """The forwarded requests without a response; of a call, its admission."""
        self._filters: dict[_RequestKey, _Filter] = {}
        """The requests without a response whose result is filtered."""

    async def from_host(self, frame: bytes) -> None:
        """Forward, rewrite or refuse a frame of the host."""
        read = read_frame(frame)
        if read.problem is None:
            await self._forward(frame, read.value)
        elif self._gate.enforce or read.is_cut:
            is_known = read.is_json or "method" in (read.value or ())  # otherwise it may be a response
            self._refuse(read.value if is_known else None, f"The frame was not forwarded: {read.problem}")
        elif read.is_json:
            await self._forward(encode(read.value) + b"\n", read.value)
        else:
            if frame.strip():
                warn(f"a frame of the host is forwarded without a decision: {read.problem}")
            self._to_server(frame)

    async def _forward(self, frame: bytes, message: Any) -> None:
        enforce = self._gate.enforce
        if not isinstance(message, dict):
            if enforce:
                self._refuse(message, "A frame has to be one JSON-RPC message, not a batch")
                return
            for item in message if isinstance(message, list) else ():
                if isinstance(item, dict) and item.get("method") == "tools/call":
                    await self._admit(item)
        elif "method" in message:
            method, key = message["method"], _request_key(message)
            needs_id = "id" in message or method in ("tools/call", "tools/list")
            if enforce and needs_id and (key is None or key in self._open or key in self._filters):
                self._refuse(message, f"{method} needs an id that no open request has")
                return
            admission = None
            if method == "tools/call":
                admission = await self._admit(message)
                if admission is None:
                    return
            if key is not None and (filter_result := self._gate.result_filter(message)) is not None:
                self._filters[key] = filter_result
            elif key is not None:
                self._open[key] = admission
        self._to_server(frame)

    async def _admit(self, message: dict[str, Any]) -> Admission | None:
        """Return the admission of a call that is forwarded; answer any other, and return None."""
        params: Any = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        args = None if name is None else params.get("arguments")
        if not isinstance(name, str) or not isinstance(args, dict | None):
            if not self._gate.enforce:
                return Admission()
            self._to_host(
                error_frame(message.get("id"), _INVALID_PARAMS, "a name and an object of arguments are needed")
            )
            return None
        admission = await self._gate.admit(name, args or {})
        if admission.refusal is None:
            return admission
        self._to_host(tool_error_frame(message, admission.refusal))
        return None

    def _refuse(self, message: Any, reason: str) -> None:
        warn(reason)
        is_response = isinstance(message, dict) and "method" not in message
        if not is_response:  # an error would be read as the response to a request of the host
            request_id = message.get("id") if isinstance(message, dict) else None
            self._to_host(error_frame(request_id, _INVALID_REQUEST, reason))

    def from_server(self, frame: bytes) -> None:
        """Forward, rewrite or drop a frame of the server."""
        # A host that waits for tools could read them out of a frame that was forwarded unread.
        read = read_frame(frame) if self._filters else read_envelope(frame)
        message, problem = read.value, read.problem
        is_refused = problem is not None and (self._gate.enforce or read.is_cut)
        if not isinstance(message, dict):
            problem = problem or "it is not one JSON-RPC message"
        elif "method" not in message:
            key = _request_key(message)
            if key in self._filters and read.is_json:
                self._filter(frame, message, self._filters.pop(key))
                return
            if key in self._open or key in self._filters:
                self._filters.pop(key, None)
                if (admission := self._open.pop(key, None)) is not None:
                    self._gate.report(admission, failed=is_failure(message))
                if is_refused:
                    frame = error_frame(message["id"], _INTERNAL_ERROR, f"the response was not forwarded: {problem}")
                    problem = None
            elif "result" in message or message.get("id") is not None:
                # A host may read "1" or true as 1, or have sent a request that has not arrived here.
                problem = problem or "no open request has its id"
        if problem is None or not (self._gate.enforce or read.is_cut):
            self._to_host(frame)
        else:
            warn(f"a frame of the server is dropped: {problem}")

    def _filter(self, frame: bytes, message: dict[str, Any], filter_result: _Filter) -> None:
        result = message.get("result")
        if isinstance(result, dict):
            result = filter_result(result)
        if not self._gate.enforce:
            self._to_host(frame)
            return
        # Members that differ only in case from those of the protocol are another list for some hosts.
        known = {name: message[name] for name in ("jsonrpc", "id", "error") if name in message}
        self._to_host(encode(known | ({"result": result} if "result" in message else {})) + b"\n")


def _request_key(message: Mapping[str, Any]) -> _RequestKey | None:
    """Return the id with its type, because 1, 1.0 and true are equal in Python; None if it is no id of MCP."""
    request_id: Any = message.get("id")
    is_id = isinstance(request_id, int | str) and not isinstance(request_id, bool)
    return (type(request_id), request_id) if is_id else None


async def run_relay(gate: Gate, command: Sequence[str]) -> int:
    """Start a server, relay until it or the host ends, and return the exit status. Raises OSError."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    host_input, host_output = await _host_streams(loop, stop)
    server = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    watchdog = await asyncio.create_subprocess_exec(
        *(*_WATCHDOG, str(server.pid)), stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    relay = Relay(gate, host_output.write, server.stdin.write)
    try:
        down = asyncio.create_task(_pump_server(relay, server.stdout, host_output))
        up = asyncio.create_task(_pump_host(relay, host_input, server.stdin))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([down, up, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not down.done():  # the host has closed its end, or a signal came
            with contextlib.suppress(OSError):
                server.stdin.close()
            await asyncio.wait([down, stopping], timeout=_GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if down.done():
            with contextlib.suppress(asyncio.TimeoutError):  # it closed its output, and ends
                await asyncio.wait_for(server.wait(), _KILL_SECONDS)
        failures = [task.exception() for task in (down, up) if task.done() and not task.cancelled()]
        for failure in failures:
            if failure is not None and not isinstance(failure, ConnectionError):  # the host or the server has ended
                raise failure
    finally:
        await _end(server)
        watchdog.kill()
        stopping.cancel()
        down.cancel()
        await gate.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(host_output.drain(), _KILL_SECONDS)
    return 0 if stop.is_set() or host_input.at_eof() else _exit_status(server.returncode)


async def _pump_host(relay: Relay, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    splitter = FrameSplitter()
    while data := await source.read(_CHUNK_BYTES):
        for frame in splitter.feed(data):
            await relay.from_host(frame)
        with contextlib.suppress(ConnectionError):
            await target.drain()
    if rest := splitter.rest():
        await relay.from_host(rest)


async def _pump_server(relay: Relay, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    splitter = FrameSplitter()
    while data := await source.read(_CHUNK_BYTES):
        for frame in splitter.feed(data):
            relay.from_server(frame)
        await target.drain()
    if rest := splitter.rest():
        relay.from_server(rest)
    await target.drain()


class _HostOutput(asyncio.streams.FlowControlMixin):
    """Notes that the host has closed its end, also while the server takes no input and nothing is read."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop.set()


async def _host_streams(
    loop: asyncio.AbstractEventLoop, stop: asyncio.Event
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader = asyncio.StreamReader(loop=loop)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(lambda: _HostOutput(stop), sys.stdout)
    transport.set_write_buffer_limits(0)  # drain() returns when everything is written
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def _end(server: asyncio.subprocess.Process) -> None:
    """Terminate the process group of the server, and kill what is left of it."""
    for number, seconds in ((signal.SIGTERM, _KILL_SECONDS), (signal.SIGKILL, None)):
        if server.returncode is None:
            _kill_group(server.pid, number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(server.wait(), seconds)
    _kill_group(server.pid, signal.SIGKILL)  # processes that the server started


def _kill_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _exit_status(code: int | None) -> int:
    return 1 if code is None else code if code >= 0 else 128 - code
