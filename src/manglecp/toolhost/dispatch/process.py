"""One host process: requests to its stdin, answers from its stdout, and the end of its whole process group.

A request is reported as lost only after the process is dead, also after a cancellation, so that its effect cannot
happen after the report. A host whose answer is late or unreadable is ended.

A concurrent host is sent the cancellation of a call that is late or cancelled, and confirms it with an answer. The host
is ended if it does not within :data:`CANCEL_GRACE`; the other calls are lost with it.

The process leads a session and process group. The group gets SIGTERM and then SIGKILL. When the leader has exited by
itself, the group gets SIGKILL before the leader is reaped: until then, the group id cannot be reused. A contained host
has a supervisor, which passes SIGTERM on, kills all processes of the host on SIGHUP, and exits after the last of them.

Answers, reports and the text of errors are redacted here: nothing that a host has written leaves this class unredacted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from manglecp.base.redaction import Redactor, SecretValue
from manglecp.toolhost.dispatch.egress import BrokerChannel
from manglecp.toolhost.dispatch.launch import HostCommand, LaunchedHost, launch
from manglecp.toolhost.dispatch.messages import OnReport, decode
from manglecp.toolhost.dispatch.responses import HostLost, LineBuffer, Loss, Request, ResponseReader

KILL_GRACE: Final = 0.2  # seconds between SIGTERM and SIGKILL
CANCEL_GRACE: Final = 1.0  # seconds that a concurrent host has to confirm a cancellation
STOP_GRACE: Final = 0.05  # seconds that a host has to exit after an empty line, as the C++ client gives it
_LIFESPAN: Final = "_lifespan"  # its start and its end, where the broker expects the id of a call
LIFESPAN_GRACE: Final = 10.0  # the same for our own host, which ends its lifespan first
STDERR_BYTES: Final = 8_192  # the end of stderr that is kept for error messages
MAX_REPORT_BYTES: Final = 65_536
_REPORT_SECONDS: Final = 0.05  # between two reads of reports while a call is open
PIPE_BYTES: Final = 1_048_576  # the requested capacity of stdin and stdout
_CHUNK: Final = 65_536  # bytes of a read


class HostProcess:
    """A running host; use :meth:`start` to create one."""

    def __init__(
        self,
        launched_host: LaunchedHost,
        contained: bool,
        on_end: Callable[[], None] | None,
        redactor: Redactor,
        *,
        concurrent: bool = False,
        stop_grace: float = STOP_GRACE,
    ) -> None:
        process = launched_host.process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid: Final = process.pid
        self.lease_key: Final = launched_host.lease_key
        self._process = process
        self.secrets: Final[set[SecretValue]] = set()  # received values; they are redacted while this host is alive
        self.start_secrets: frozenset[SecretValue] = frozenset()  # those of the lifespan
        self._redactor = redactor
        self._contained = contained
        self._concurrent = concurrent
        self._stop_grace = stop_grace
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._stdin: int | None = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        self._responses = ResponseReader(redact=redactor.text, concurrent=concurrent)
        self._unwritten: deque[Request] = deque()  # requests of which not all bytes are written
        self._reports = LineBuffer(MAX_REPORT_BYTES)
        self._stderr_tail = b""
        self._timer: asyncio.TimerHandle | None = None  # wakes at the next deadline, or earlier to read reports
        self._ending = False
        self._kill_timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._progress = launched_host.progress
        self._broker = None if launched_host.egress is None else BrokerChannel(launched_host.egress)
        self._starting = True  # until the first answer: the lifespan of the plugin may connect
        self._tell_broker(BrokerChannel.begin, _LIFESPAN)
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
        redactor: Redactor | None = None,
        secrets: Iterable[SecretValue] = (),
    ) -> HostProcess:
        """Start the process; raises OSError. A request may be written before the host is up.

        ``on_end`` is called when the process is gone. ``secrets`` are the values of ``command.start_secrets``.
        """
        stop_grace = STOP_GRACE if command.parent_option is None else LIFESPAN_GRACE
        launched, redactor = launch(command), redactor or Redactor()
        concurrent = command.concurrency > 1
        host = cls(launched, command.contained, on_end, redactor, concurrent=concurrent, stop_grace=stop_grace)
        if command.start_secrets:
            host._send_secrets(frozenset(secrets))
        return host

    def _send_secrets(self, values: frozenset[SecretValue]) -> None:
        self.start_secrets = values
        self.secrets.update(values)
        line = msgspec.json.encode({value.name: value.text for value in values}) + b"\n"
        self._unwritten.append(Request(line, self._loop.create_future()))  # the host does not answer this line
        self._write()

    @property
    def alive(self) -> bool:
        """Whether the host accepts requests: it has not exited, and is not being ended."""
        return not self._ending

    async def exchange(
        self,
        line: bytes,
        *,
        deadline: float,
        call_id: str | None = None,
        impatient: bool = False,
        last: bool = False,
        on_report: OnReport | None = None,
    ) -> dict[str, Any]:
        """Send a line and return its answer; raises :class:`HostLost`.

        A sequential host takes one line at a time. ``deadline`` is a time of the event loop; ``impatient`` marks a
        caller that waits for less time than the action may take. A deadline that passes, and a cancellation, end the
        call: a sequential host is ended, and a concurrent one if it does not confirm the end of the call. The answer to
        the ``last`` request is returned when the host is dead. ``on_report`` gets the reports with this call id, until
        the answer.
        """
        if deadline <= self._loop.time():
            raise HostLost(Loss("timeout", "the deadline passed before the request could be sent"))
        if self.alive:
            self._read_stdout()  # a line that the host wrote before the request is not its answer, and ends the host
        if not self.alive:
            raise HostLost(Loss("crash", "the host is gone"))
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        request = Request(line, answer, call_id, deadline=deadline, impatient=impatient, on_report=on_report)
        self._responses.open(request)
        self._unwritten.append(request)
        self._schedule_wake()
        if call_id is not None:
            self._tell_broker(BrokerChannel.begin, call_id)
        self._write()
        try:
            if self._concurrent:
                await asyncio.wait([answer])  # a cancellation must not cancel the answer, which is awaited below
            else:
                await answer
            document = answer.result()
            if call_id is not None:
                self._tell_broker(BrokerChannel.explain, call_id, document)
            if last:
                self._ending = True
                self._kill()
                await self.wait()
            return self._redactor.answer(document)
        except asyncio.CancelledError:
            if request.loss is None:  # else the call is being ended already
                request.loss = Loss("exception", "the call was cancelled", "cancelled")
                self._abandon(request)
            await self._wait_despite_cancellation(answer if self._concurrent else self._ended)
            if self._concurrent:
                answer.exception()  # so that it counts as retrieved
            raise
        finally:
            self._schedule_wake()
            if call_id is not None:
                self._tell_broker(BrokerChannel.end, call_id)
            if self._starting:
                self._starting = False
                self._tell_broker(BrokerChannel.end, _LIFESPAN)

    def _abandon(self, request: Request) -> None:
        """End the call of a request; its loss is set."""
        if not self._concurrent or request.call_id is None:
            self.end()
        elif self._responses.requests.get(request.call_id) is not request:  # it is answered
            return
        elif not request.sent:
            self._unwritten.remove(request)
            del self._responses.requests[request.call_id]
            request.answer.set_exception(HostLost(request.loss or Loss("exception", "the call was cancelled")))
        else:
            line = msgspec.json.encode({"aid": "_cancel", "call_id": request.call_id}) + b"\n"
            self._unwritten.append(Request(line, request.answer))
            self._write()
            self._loop.call_later(CANCEL_GRACE, self._end_unless_done, request)

    def _end_unless_done(self, request: Request) -> None:
        """End the host if it has not confirmed the end of a call."""
        if not request.answer.done() and not self._ending:
            loss = Loss("crash", "the host was ended, because another call did not react to its cancellation")
            for other in self._responses.requests.values():
                if other.loss is None:
                    other.loss, other.suspect = loss, False
            self.end()

    def _tell_broker(self, message: Callable[..., None], *arguments: object) -> None:
        """Send a message to the broker, or read its reports; end the host if the broker is gone."""
        if self._broker is not None:
            try:
                message(self._broker, *arguments)
            except (OSError, ValueError):  # a ValueError: the broker sends something else than reports
                self.end()

    def end(self) -> None:
        """Send SIGTERM now and SIGKILL after :data:`KILL_GRACE`, unless the host is ending already."""
        if not self._ending:
            self._ending = True
            self._signal(signal.SIGTERM)
            self._kill_timer = self._loop.call_later(KILL_GRACE, self._kill)

    async def stop(self) -> None:
        """Stop an idle host: an empty line, then SIGTERM, then SIGKILL, as the C++ client does."""
        if self.alive and self._stdin is not None:
            if not self._responses.requests:
                self._tell_broker(BrokerChannel.begin, _LIFESPAN)
                with contextlib.suppress(OSError):
                    os.write(self._stdin, b"\n")
            self._close_stdin()
            await asyncio.wait([self._ended], timeout=STOP_GRACE if self._responses.requests else self._stop_grace)
        if not self._ended.done():
            self.end()
        await self.wait()

    async def wait(self) -> None:
        """Wait until the process is gone and its descriptors are closed."""
        await asyncio.shield(self._ended)

    async def _wait_despite_cancellation(self, end: asyncio.Future[Any]) -> None:
        """Wait for the end of a call, also if cancelled again: before the end, an effect may still happen."""
        while not end.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([end])

    def resident_bytes(self) -> int:
        """Return the resident memory of the process; 0 if unknown."""
        try:
            pid = str(self.pid)
            # From the supervisor, whose first child may be a broker, to init of the namespace, to the host.
            for child in (-1, 0) if self._contained else ():
                pid = (Path("/proc") / pid / "task" / pid / "children").read_text().split()[child]
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return 0

    def _write(self) -> None:
        try:
            while self._unwritten and self._stdin is not None:
                request = self._unwritten[0]
                request.written(os.write(self._stdin, request.unwritten))
                if not request.unwritten:
                    self._unwritten.popleft()
        except BlockingIOError:  # the pipe is full
            assert self._stdin is not None
            self._loop.add_writer(self._stdin, self._write)
            return
        except OSError:  # the host closed its stdin; the end of the process settles the request
            self.end()
        if self._stdin is not None:
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
        data = _read_some(self._stdout)
        if data is None:
            return False
        if not data:
            self._loop.remove_reader(self._stdout)
            # A host that closes stdout is usually exiting: give it time to exit with its own code.
            self._loop.call_later(STOP_GRACE, self.end)
            return False
        self._read_reports()  # the host wrote the reports of a call before the answer
        if not self._ending:
            self._responses.feed(data)
            if self._responses.spoiled:
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
        self._tell_broker(BrokerChannel.read, self._forward_report)
        data = None if self._progress is None else _read_some(self._progress)
        for line in self._reports.feed(data or b""):
            with contextlib.suppress(ValueError):  # noise on this descriptor is ignored
                self._forward_report(decode(line))

    def _forward_report(self, report: dict[str, Any]) -> bool:
        """Pass on a report that names the call of an open request; drop other reports, and claims about leases.

        Returns whether the report was passed on.
        """
        call_id = report.get("call_id")
        request = self._responses.requests.get(call_id) if isinstance(call_id, str) else None
        if request is None or request.on_report is None:
            return False
        if report.get("event") not in ("progress", "log"):
            return False
        try:
            request.on_report(self._redactor.answer(report))
        except Exception as error:
            self._loop.call_exception_handler({"message": "on_report failed", "exception": error})
        return True

    def _schedule_wake(self) -> None:
        """Wake at the next deadline of an open request; until then, regularly, to read reports.

        The event loop does not watch this pipe: a host that floods it would keep the loop busy. Its reports are lost.
        """
        if self._timer is not None:
            self._timer.cancel()
        deadlines = [request.deadline for request in self._responses.requests.values() if request.loss is None]
        if deadlines:
            wake_time = min(deadlines)
            if self._progress is not None:
                wake_time = min(wake_time, self._loop.time() + _REPORT_SECONDS)
            self._timer = self._loop.call_at(wake_time, self._wake)

    def _wake(self) -> None:
        self._read_reports()
        now = self._loop.time()
        for request in list(self._responses.requests.values()):
            if request.loss is None and request.deadline <= now:
                request.suspect = not request.impatient
                request.loss = Loss("timeout", "no answer before the deadline")
                self._abandon(request)
        self._schedule_wake()

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
        """Handle the exit of the leader. The leader is a zombie until wait(), so its group id is not reused yet."""
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
            self._lose_request(code)
        finally:  # also after an error, so that the caller does not wait for ever
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
        if self._broker is not None:
            self._broker.close()
            self._broker = None
        os.close(self._pidfd)

    def _lose_request(self, code: int) -> None:
        how = f"ended by signal {-code}" if code < 0 else f"exited with code {code}"
        outputs = (output.decode("utf-8", "replace") for output in (self._responses.partial, self._stderr_tail))
        reason = _exit_reason("\n".join(self._redactor.text(output, truncated=True) for output in outputs).strip())
        detail = f"the host {how}" + (f": {reason}" if reason else "")
        self._responses.lose(Loss("crash", detail) if code else Loss("parse_error", detail, "empty_output"))


def _exit_reason(output: str) -> str:
    """Return the error that the host printed before it exited, or its last output."""
    with contextlib.suppress(ValueError, RecursionError):
        document = msgspec.json.decode(output)
        if isinstance(document, dict) and isinstance(document.get("error"), str):
            return str(document["error"])
    return output


def _read_some(descriptor: int) -> bytes | None:
    """Read a chunk; empty at the end of the stream, None if no data is available."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
