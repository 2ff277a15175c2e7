"""One host process: lines to its stdin, lines from its stdout, and an end that leaves nothing behind.

A request is either answered or lost, as :mod:`.pairing` says, and it is lost only once the process is really dead, so
that nothing of it can happen any more when the caller hears of it; that holds for callers who cancel, too. A host whose
answers can no longer be paired is ended.

Requests that share a host have no effects, and nobody's haste may cost the others theirs. Whoever leaves early, by
cancelling or by a deadline shorter than the action's own, leaves alone: the host goes on for the others, and ends only
if there are none. Only the request that it is busy with may end it for all, when the time of its action is over.

The process leads a session of its own. Deadlines and cancelled calls send SIGTERM to its whole group and, a little
later, SIGKILL; the group also gets SIGKILL when its leader is gone, before the leader is reaped, while its number
cannot yet mean anybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import msgspec

from manglecp.toolhost.dispatch.deadlines import Deadlines
from manglecp.toolhost.dispatch.framing import Lines
from manglecp.toolhost.dispatch.launching import HostCommand, Launched, launch
from manglecp.toolhost.dispatch.messages import decode
from manglecp.toolhost.dispatch.pairing import WORK_TIME, HostLost, Pairing, Request

__all__ = ["HostLost", "HostProcess"]

KILL_GRACE: Final = 0.2
"""Seconds between SIGTERM and SIGKILL."""
STOP_GRACE: Final = 0.05
"""Seconds that a host has to leave by itself after an empty line, as upstream gives it."""
STDERR_KEPT: Final = 8_192
EVENT_LIMIT: Final = 65_536
PIPE_SIZE: Final = 1_048_576
_REPORTS: Final = frozenset({"progress", "log"})
"""What a host may report. Of leases, only dispatch tells the truth, to its auditor."""
_LATE: Final = "no answer before the deadline"
_UNSENT: Final = "the deadline passed before the request could be sent"
_AT_ONCE: Final = 64
_CHUNK: Final = 65_536
"""Bytes that are read at first. Most answers have fewer, and so small a buffer is not mapped and unmapped each time."""
_LONG_CHUNK: Final = 262_144
"""Bytes that are read after as many came as there was room for."""
_F_SETPIPE_SZ: Final = 1031


class HostProcess:
    """A running host. Made by :meth:`start`; over when :attr:`alive` is false."""

    def __init__(
        self,
        launched: Launched,
        on_event: Callable[[dict[str, Any]], None] | None,
        on_end: Callable[[], None] | None,
        on_late: Callable[[], None] | None,
    ) -> None:
        process = launched.process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid: Final = process.pid
        self.lease_key: Final = launched.lease_key
        self._process = process
        self._on_event = on_event
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._stdin: int | None = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        self._chunk = _CHUNK
        self._pairing = Pairing(on_late, on_left=self._bound)
        self._deadlines = Deadlines(self._loop, self._pairing, self._overdue)
        self._events = Lines(EVENT_LIMIT)
        self._stderr = b""
        self._unsent: deque[Request] = deque()
        self._blocked = False
        self._ending = False
        self._kill_timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._progress = launched.progress
        self._pidfd = os.pidfd_open(self.pid)
        for descriptor in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # a bigger pipe is only faster
                fcntl.fcntl(descriptor, _F_SETPIPE_SZ, PIPE_SIZE)
        os.set_blocking(self._stdin, False)
        self._listen(self._stdout, self._read_stdout)
        self._listen(process.stderr.fileno(), self._read_stderr)
        if self._progress is not None:
            self._listen(self._progress, self._read_events)
        self._loop.add_reader(self._pidfd, self._exited)

    @classmethod
    def start(
        cls,
        command: HostCommand,
        *,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        on_end: Callable[[], None] | None = None,
        on_late: Callable[[], None] | None = None,
    ) -> HostProcess:
        """Start the process; OSError if it cannot be. It is not up yet, but may be written to.

        ``on_late`` hears of answers to shared calls that were cancelled: until then the host was not idle.
        """
        return cls(launch(command, heard=on_event is not None), on_event, on_end, on_late)

    @property
    def alive(self) -> bool:
        """Whether a request may still be answered."""
        return not self._ending

    @property
    def idle(self) -> bool:
        """Whether the host owes nothing, not even to somebody who has left."""
        return self._pairing.idle

    async def exchange(
        self,
        line: bytes,
        *,
        deadline: float,
        call_id: str | None = None,
        shared: bool = False,
        hasty: bool = False,
        work_time: float = WORK_TIME,
    ) -> dict[str, Any]:
        """Send a line and wait for its answer; :class:`HostLost` if none comes.

        ``deadline`` is a time of the event loop, ``work_time`` the seconds that the action may take; ``hasty`` is a
        caller who waits for less. Cancelling a request that has left ends the host, unless others share it.
        """
        if deadline <= self._loop.time():
            raise HostLost("timeout", _UNSENT, sent=False, suspect=False)
        request = Request(line, self._loop.create_future(), call_id, shared=shared, hasty=hasty, work_time=work_time)
        if self._pairing.idle and self.alive:
            self._read_stdout()  # what lies here before anything was asked is no answer
        if not self.alive:
            raise HostLost("crash", "the host is gone", sent=False, suspect=False)
        self._pairing.add(request)
        self._unsent.append(request)
        self._deadlines.set(request, deadline)
        if len(self._unsent) == 1:
            if self._pairing.oldest is request:
                self._write()
            else:  # the host is busy: who calls in the same moment goes along, and the host is woken once for all
                self._loop.call_soon(self._write)
        try:
            return await request.answer
        except asyncio.CancelledError:
            self._cancelled(request)
            if request.sent and self._ending:
                await self._dead()
            raise

    def end(self) -> None:
        """Have the whole group end, first by asking."""
        if not self._ending:
            self._ending = True
            self._signal(signal.SIGTERM)
            self._kill_timer = self._loop.call_later(KILL_GRACE, self._signal, signal.SIGKILL)

    async def stop(self) -> None:
        """Part from a host that owes nothing: an empty line, then as upstream does, less and less politely."""
        if self.alive and self._stdin is not None:
            if not self._unsent:
                with contextlib.suppress(OSError):
                    os.write(self._stdin, b"\n")
            self._close_stdin()
            await asyncio.wait([self._ended], timeout=STOP_GRACE)
        if not self._ended.done():
            self.end()
        await self.wait()

    async def wait(self) -> None:
        """Until the process is gone and everything it held is closed."""
        await asyncio.shield(self._ended)

    async def _dead(self) -> None:
        """As :meth:`wait`, whoever loses patience: until then something may still happen."""
        while not self._ended.done():
            with contextlib.suppress(asyncio.CancelledError):
                await self.wait()

    def resident_bytes(self) -> int:
        """The memory that the process occupies now; 0 if nobody can say."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as statm:  # noqa: PTH123 - no path object for two integers
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return 0

    # ------------------------------------------------------------------------------------------------ writing

    def _write(self) -> None:
        while self._unsent and self._stdin is not None:
            try:
                count = os.writev(self._stdin, [request.rest for request in islice(self._unsent, _AT_ONCE)])
            except BlockingIOError:
                self._blocked = True
                self._loop.add_writer(self._stdin, self._write)
                return
            except OSError:  # nobody reads any more; the end of the process follows and settles everything
                self.end()
                return
            while count:
                request = self._unsent[0]
                part = min(count, len(request.rest))
                request.written(part)
                count -= part
                if not request.rest:
                    self._unsent.popleft()
        if self._blocked and self._stdin is not None:
            self._blocked = False
            self._loop.remove_writer(self._stdin)

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            self._stdin = None
            assert self._process.stdin is not None
            self._process.stdin.close()

    # ------------------------------------------------------------------------------------------------ reading

    def _listen(self, descriptor: int, reader: Callable[[], object]) -> None:
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, reader)

    def _read_stdout(self) -> bool:
        """Take what is there; whether there may be more."""
        try:
            data = os.read(self._stdout, self._chunk)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._stdout)
            # Most likely it is exiting, with a code that is worth knowing; if it is not, it is of no use any more.
            self._loop.call_later(STOP_GRACE, self.end)
            return False
        self._chunk = _CHUNK if len(data) < _CHUNK else _LONG_CHUNK
        if not self._ending:
            self._pairing.feed(data)
            if self._pairing.spoiled:
                self.end()
        return True

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        data = _read_some(self._process.stderr.fileno())
        if data == b"":
            self._loop.remove_reader(self._process.stderr.fileno())
        elif data is not None:
            self._stderr = (self._stderr + data)[-STDERR_KEPT:]

    def _read_events(self) -> None:
        assert self._progress is not None
        data = _read_some(self._progress)
        if data == b"":
            self._loop.remove_reader(self._progress)
        elif data is not None:
            for line in self._events.feed(data):
                with contextlib.suppress(ValueError):  # noise here harms nobody
                    self._report(decode(line))

    def _report(self, event: dict[str, Any]) -> None:
        """Pass a report on. What a plugin could have written is not believed to be more than its host's claim."""
        assert self._on_event is not None
        if event.get("event") not in _REPORTS:
            event["claimed_by"] = "host"
        try:
            self._on_event(event)
        except Exception as error:
            self._loop.call_exception_handler({"message": "on_event failed", "exception": error})

    # ------------------------------------------------------------------------------------------------ losing

    def _overdue(self, request: Request) -> None:
        if request.left:
            self.end()
            return
        request.excused = request.hasty  # the action had less time than it may take
        if not request.sent:
            self._withdraw(request)
            if not request.answer.done():
                request.answer.set_exception(HostLost("timeout", _UNSENT, sent=False, suspect=False))
            return
        alone = not (request.shared and self._pairing.wanted_by_others(request))
        if not alone and (request.hasty or self._pairing.oldest is not request):
            if not request.answer.done():
                request.answer.set_exception(HostLost("timeout", _LATE, sent=True, suspect=False))
            self._left(request)
        else:
            request.loss = request.loss or ("timeout", _LATE)
            self.end()

    def _cancelled(self, request: Request) -> None:
        request.settle()
        if not request.sent:
            self._withdraw(request)
        elif request.shared and self._pairing.wanted_by_others(request):
            self._left(request)
        else:
            request.loss = request.loss or ("cancelled", "the call was cancelled")
            self.end()

    def _left(self, request: Request) -> None:
        """Nobody waits for this request any more, but for others behind or before it."""
        if self._pairing.oldest is request:
            self._bound(request)

    def _bound(self, request: Request) -> None:
        """The host works for nobody now. It may do so as long as the action may take, and no longer."""
        request.left = True
        self._deadlines.set(request, self._loop.time() + request.work_time)

    def _withdraw(self, request: Request) -> None:
        self._pairing.withdraw(request)
        with contextlib.suppress(ValueError):  # the host may have been lost in the meantime
            self._unsent.remove(request)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _exited(self) -> None:
        """The leader is a zombie: its group number is still ours, and what it wrote is still in the pipe."""
        self._loop.remove_reader(self._pidfd)
        self._signal(signal.SIGKILL)
        while self._read_stdout():
            if self._ending:
                break
        self._read_stderr()
        if self._progress is not None:
            self._read_events()
        code = self._process.wait()
        self._ending = True
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._deadlines.close()
        self._close()
        try:
            self._lose_all(code)
        finally:  # whatever goes wrong above, nobody waits for ever
            self._ended.set_result(None)
            if self._on_end is not None:
                self._on_end()

    def _close(self) -> None:
        self._close_stdin()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            self._loop.remove_reader(stream.fileno())
            stream.close()
        if self._progress is not None:
            self._loop.remove_reader(self._progress)
            os.close(self._progress)
        os.close(self._pidfd)

    def _lose_all(self, code: int) -> None:
        how = f"ended by signal {-code}" if code < 0 else f"exited with code {code}"
        said = _last_words((self._pairing.half() + b"\n" + self._stderr).strip())
        self._pairing.lose_all("crash" if code else "empty_output", f"the host {how}" + (f": {said}" if said else ""))
        self._unsent.clear()


def _last_words(said: bytes) -> str:
    """What a host says that cannot begin is an object with its reason."""
    with contextlib.suppress(ValueError, RecursionError):
        told = msgspec.json.decode(said)
        if isinstance(told, dict) and isinstance(told.get("error"), str):
            return str(told["error"])
    return said.decode("utf-8", "replace")


def _read_some(descriptor: int) -> bytes | None:
    """A piece of what is there; empty at the end of the stream, None if nothing is there yet."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
