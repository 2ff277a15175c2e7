"""One host process: requests to its stdin, answers from its stdout, and the end of its whole process group.

A request is reported as lost only after the process is dead, also after a cancellation, so that its effect cannot
happen after the report. A host whose answers can no longer be matched to requests is ended. Requests that share a host
have no effects: if a caller cancels, or waits for less time than the action may take, the host continues for the other
callers. A shared host is ended only if an action exceeds its own time.

The process leads a session and process group. The group gets SIGTERM and then SIGKILL; also when the leader has exited
by itself, before it is reaped, because then the group id cannot be reused yet. A contained host has a supervisor, which
passes SIGTERM on, kills all processes of the host on SIGHUP, and exits after the last of them.
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
from pathlib import Path
from typing import Any, Final

import msgspec

from manglecp.toolhost.dispatch.launch import HostCommand, LaunchedHost, launch
from manglecp.toolhost.dispatch.messages import OnReport, decode
from manglecp.toolhost.dispatch.responses import WORK_SECONDS, HostLost, LineBuffer, Request, ResponseMatcher

KILL_GRACE: Final = 0.2  # seconds between SIGTERM and SIGKILL
STOP_GRACE: Final = 0.05  # seconds that a host has to exit after an empty line, as the C++ client gives it
STDERR_BYTES: Final = 8_192  # the end of stderr that is kept for error messages
MAX_REPORT_BYTES: Final = 65_536
_REPORT_SECONDS: Final = 0.05  # between two reads of reports while a call is open
PIPE_BYTES: Final = 1_048_576  # the requested capacity of stdin and stdout
_LATE: Final = "no answer before the deadline"  # details of a HostLost
_UNSENT: Final = "the deadline passed before the request could be sent"
_MAX_BUFFERS: Final = 64  # requests that one system call writes
_CHUNK: Final = 65_536
"""Bytes of a read. Most answers have fewer, and malloc does not mmap a buffer of this size each time."""
_LONG_CHUNK: Final = 262_144  # bytes of a read after one that filled its chunk


class HostProcess:
    """A running host; use :meth:`start` to create one."""

    def __init__(
        self,
        launched: LaunchedHost,
        contained: bool,
        on_end: Callable[[], None] | None,
        on_late_answer: Callable[[], None] | None,
    ) -> None:
        process = launched.process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid: Final = process.pid
        self.lease_key: Final = launched.lease_key
        self._process = process
        self._contained = contained
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._stdin: int | None = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        self._chunk_size = _CHUNK
        self._matcher = ResponseMatcher(on_late_answer, on_orphan=self._limit_orphan)
        self._reports = LineBuffer(MAX_REPORT_BYTES)
        self._stderr_tail = b""
        self._unsent: deque[Request] = deque()  # of which some bytes are not written yet
        self._write_blocked = False  # the pipe is full, and the loop waits until it is writable
        self._ending = False
        self._kill_timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._progress = launched.progress
        self._pidfd = os.pidfd_open(self.pid)
        for descriptor in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # a bigger pipe is only faster
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self._stdin, False)
        self._listen(self._stdout, self._read_stdout)
        self._listen(process.stderr.fileno(), self._read_stderr)
        if self._progress is not None:
            os.set_blocking(self._progress, False)
        self._loop.add_reader(self._pidfd, self._exited)

    @classmethod
    def start(
        cls,
        command: HostCommand,
        *,
        on_end: Callable[[], None] | None = None,
        on_late_answer: Callable[[], None] | None = None,
    ) -> HostProcess:
        """Start the process; raises OSError. Requests may be written before it is up.

        ``on_end`` is called when the process is gone; ``on_late_answer`` when a shared request whose caller has left is
        answered, and so no longer keeps the host busy.
        """
        return cls(launch(command), command.contained, on_end, on_late_answer)

    @property
    def alive(self) -> bool:
        """Whether the host accepts requests: it has not exited, and is not being ended."""
        return not self._ending

    @property
    def idle(self) -> bool:
        """Whether no request is open, not even one whose caller has left."""
        return self._matcher.idle

    async def exchange(
        self,
        line: bytes,
        *,
        deadline: float,
        call_id: str | None = None,
        shared: bool = False,
        impatient: bool = False,
        work_seconds: float = WORK_SECONDS,
        last: bool = False,
        on_report: OnReport | None = None,
    ) -> dict[str, Any]:
        """Send a line and return its answer; raises :class:`HostLost`.

        ``deadline`` is a time of the event loop, ``work_seconds`` what the action may take; ``impatient`` marks a
        caller that waits for less. Cancelling a request that was sent ends the host, unless other calls share it. The
        answer to the ``last`` request is returned when the host is dead. ``on_report`` gets the reports with this call
        id, until the answer.
        """
        if deadline <= self._loop.time():
            raise HostLost("timeout", _UNSENT, sent=False, suspect=False)
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        request = Request(line, answer, call_id, shared=shared, impatient=impatient, work_seconds=work_seconds)
        request.on_report = on_report
        if self._matcher.idle and self.alive:
            self._read_stdout()  # a line that the host wrote before the request is not its answer, and ends the host
        if not self.alive:
            raise HostLost("crash", "the host is gone", sent=False, suspect=False)
        self._matcher.add(request)
        self._unsent.append(request)
        self._set_deadline(request, deadline)
        if len(self._unsent) == 1:
            if self._matcher.oldest is request:
                self._write()
            else:  # the host is busy: write all requests of this loop iteration at once
                self._loop.call_soon(self._write)
        try:
            await answer
            if last:
                self._ending = True
                self._kill()
                await self.wait()
            return answer.result()
        except asyncio.CancelledError:
            self._cancel(request)
            if request.sent and self._ending:
                await self._wait_despite_cancellation()
            raise

    def end(self) -> None:
        """Send SIGTERM now and SIGKILL after :data:`KILL_GRACE`, unless the host is ending already."""
        if not self._ending:
            self._ending = True
            self._signal(signal.SIGTERM)
            self._kill_timer = self._loop.call_later(KILL_GRACE, self._kill)

    async def stop(self) -> None:
        """Stop an idle host: an empty line, then SIGTERM, then SIGKILL, as the C++ client does."""
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
        """Wait until the process is gone and its descriptors are closed."""
        await asyncio.shield(self._ended)

    async def _wait_despite_cancellation(self) -> None:
        """Wait for the end, also if cancelled again: until then an effect may still happen."""
        while not self._ended.done():
            with contextlib.suppress(asyncio.CancelledError):
                await self.wait()

    def resident_bytes(self) -> int:
        """Return the resident memory of the process; 0 if unknown."""
        try:
            pid = str(self.pid)
            for _ in range(2 if self._contained else 0):  # from the supervisor to init of the namespace, to the worker
                pid = (Path("/proc") / pid / "task" / pid / "children").read_text().split()[0]
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return 0

    def _write(self) -> None:
        while self._unsent and self._stdin is not None:
            try:
                count = os.writev(self._stdin, [request.unwritten for request in islice(self._unsent, _MAX_BUFFERS)])
            except BlockingIOError:
                self._write_blocked = True
                self._loop.add_writer(self._stdin, self._write)
                return
            except OSError:  # the host closed its stdin; the end of the process settles every request
                self.end()
                return
            while count:
                request = self._unsent[0]
                part = min(count, len(request.unwritten))
                request.written(part)
                count -= part
                if not request.unwritten:
                    self._unsent.popleft()
        if self._write_blocked and self._stdin is not None:
            self._write_blocked = False
            self._loop.remove_writer(self._stdin)

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            self._stdin = None
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _listen(self, descriptor: int, reader: Callable[[], object]) -> None:
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, reader)

    def _read_stdout(self) -> bool:
        """Read a chunk; return whether there may be more."""
        try:
            data = os.read(self._stdout, self._chunk_size)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._stdout)
            # A host that closes stdout is usually exiting: give it time to exit with its own code.
            self._loop.call_later(STOP_GRACE, self.end)
            return False
        self._chunk_size = _CHUNK if len(data) < _CHUNK else _LONG_CHUNK
        self._read_reports()  # the host wrote those of a call before its answer
        if not self._ending:
            self._matcher.feed(data)
            if self._matcher.spoiled:
                self.end()
        return True

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        data = _read_some(self._process.stderr.fileno())
        if data == b"":
            self._loop.remove_reader(self._process.stderr.fileno())
        elif data is not None:
            self._stderr_tail = (self._stderr_tail + data)[-STDERR_BYTES:]

    def _read_reports(self) -> None:
        data = None if self._progress is None else _read_some(self._progress)
        for line in self._reports.feed(data or b""):
            with contextlib.suppress(ValueError):  # noise on this descriptor is ignored
                self._forward_report(decode(line))

    def _forward_report(self, report: dict[str, Any]) -> None:
        """Pass a report on to the open request of this host that it names; drop others, and claims about leases."""
        request = self._matcher.find(report.get("call_id"))
        if request is None or request.on_report is None or report.get("event") not in ("progress", "log"):
            return
        try:
            request.on_report(report)
        except Exception as error:
            self._loop.call_exception_handler({"message": "on_report failed", "exception": error})

    def _deadline_passed(self, request: Request) -> None:
        if request.orphaned:
            self.end()
            return
        request.excused = request.impatient
        if not request.sent:
            self._withdraw(request)
            if not request.answer.done():
                request.answer.set_exception(HostLost("timeout", _UNSENT, sent=False, suspect=False))
            return
        host_is_shared = request.shared and self._matcher.wanted_by_others(request)
        if host_is_shared and (request.impatient or self._matcher.oldest is not request):
            if not request.answer.done():
                request.answer.set_exception(HostLost("timeout", _LATE, sent=True, suspect=False))
            self._abandon(request)
        else:
            request.loss = request.loss or ("timeout", _LATE)
            self.end()

    def _cancel(self, request: Request) -> None:
        request.cancel_timer()
        if not request.sent:
            self._withdraw(request)
        elif request.shared and self._matcher.wanted_by_others(request):
            self._abandon(request)
        else:
            request.loss = request.loss or ("cancelled", "the call was cancelled")
            self.end()

    def _abandon(self, request: Request) -> None:
        """Let the host finish a request whose caller has left, in the time that its action may take."""
        if self._matcher.oldest is request:  # else the matcher calls _limit_orphan when the host begins with it
            self._limit_orphan(request)

    def _limit_orphan(self, request: Request) -> None:
        """Give a request that the host works on, and whose caller has left, the time that its action may take."""
        request.orphaned = True
        self._set_deadline(request, self._loop.time() + request.work_seconds)

    def _set_deadline(self, request: Request, when: float) -> None:
        request.cancel_timer()
        request.deadline = when
        self._wait(request)

    def _wait(self, request: Request) -> None:
        """Wait for the deadline of a request; until then, read reports regularly.

        Reports have no reader of the loop: a host that floods the pipe would keep the loop busy. So it loses reports.
        """
        wake_time = request.deadline
        if self._progress is not None:
            wake_time = min(wake_time, self._loop.time() + _REPORT_SECONDS)
        request.timer = self._loop.call_at(wake_time, self._wake, request)

    def _wake(self, request: Request) -> None:
        if self._loop.time() >= request.deadline:
            self._deadline_passed(request)
        else:
            self._read_reports()
            self._wait(request)

    def _withdraw(self, request: Request) -> None:
        self._matcher.withdraw(request)
        with contextlib.suppress(ValueError):  # the host may have been lost in the meantime
            self._unsent.remove(request)

    def _kill(self) -> None:
        if self._ended.done():  # the process is reaped, and its id may be reused
            return
        if self._contained:
            os.kill(self.pid, signal.SIGHUP)  # the supervisor kills the host
        else:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _exited(self) -> None:
        """Handle the exit of the leader. It is a zombie until wait(), so that its group id is not reused yet."""
        self._loop.remove_reader(self._pidfd)
        self._signal(signal.SIGKILL)
        while self._read_stdout():  # answers that are still in the pipe
            if self._ending:
                break
        self._read_stderr()
        self._read_reports()
        code = self._process.wait()
        self._ending = True
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._close()
        try:
            self._lose_all(code)
        finally:  # also after an error, so that no caller waits for ever
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
            os.close(self._progress)
            self._progress = None
        os.close(self._pidfd)

    def _lose_all(self, code: int) -> None:
        how = f"ended by signal {-code}" if code < 0 else f"exited with code {code}"
        reason = _exit_reason((self._matcher.partial + b"\n" + self._stderr_tail).strip())
        self._matcher.lose_all(
            "crash" if code else "empty_output", f"the host {how}" + (f": {reason}" if reason else "")
        )
        self._unsent.clear()


def _exit_reason(output: bytes) -> str:
    """Return the error that the host printed before it exited, or its last output."""
    with contextlib.suppress(ValueError, RecursionError):
        document = msgspec.json.decode(output)
        if isinstance(document, dict) and isinstance(document.get("error"), str):
            return str(document["error"])
    return output.decode("utf-8", "replace")


def _read_some(descriptor: int) -> bytes | None:
    """Read a chunk; empty at the end of the stream, None if no data is available."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
