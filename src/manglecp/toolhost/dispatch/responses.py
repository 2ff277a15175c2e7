"""Matches the response lines of a host to its requests, without I/O.

The IPC contract has no correlation id: the next line answers the oldest open request. A line without an open request,
one that is not an answer, or one that names another call breaks that order: the stream is *spoiled*, and every open
request is lost.

A request is answered or lost (:class:`HostLost`) exactly once. A loss states whether any byte had been written
(``sent``) and whether the request may be the cause (``suspect``): the host was working on it (hosts work in order, so
that is the oldest request), and the action had all the time that it may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from itertools import takewhile
from typing import Any, Final, Literal

from manglecp.toolhost.dispatch.messages import DispatchError, ErrorCode, ErrorType, HostCall, decode, failure

MAX_OUTPUT: Final = 1_048_576  # bytes that one answer may have, its newline not counted


class LineBuffer:
    """Splits a stream into lines at byte 0x0A, holding at most one line.

    Unlike ``splitlines``, it splits at no other character. A line that exceeds the limit is dropped *while* it is read.
    The bytes after that could be its tail, so no further lines are returned: :attr:`overflowed` stays true.
    """

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self.limit = limit
        self.overflowed = False
        self.partial = b""  # the line that has no end yet

    def feed(self, data: bytes) -> list[bytes]:
        """Add a chunk; return the lines that it completes, without their newlines."""
        if self.overflowed:
            return []
        *lines, self.partial = (self.partial + data).split(b"\n")
        fitting = list(takewhile(lambda line: len(line) <= self.limit, lines))
        if len(fitting) < len(lines) or len(self.partial) > self.limit:
            self.overflowed = True
            self.partial = b""
        return fitting


WORK_SECONDS: Final = 30.0  # that an action may take, by default

Loss = Literal["timeout", "crash", "parse_error", "oversize", "empty_output", "cancelled"]


class HostLost(Exception):
    """A request that will not be answered."""

    def __init__(self, loss: Loss, detail: str, *, sent: bool, suspect: bool) -> None:
        super().__init__(loss, detail)
        self.loss = loss
        self.detail = detail
        self.sent = sent
        self.suspect = suspect


@dataclass(slots=True, eq=False)
class Request:
    """One request line: the bytes left to write, and the future of its answer."""

    unwritten: bytes | memoryview
    answer: asyncio.Future[dict[str, Any]]
    call_id: str | None = None
    _: KW_ONLY
    shared: bool = False  # other requests may be open at the same time
    impatient: bool = False  # the caller waits for less time than the action may take
    work_seconds: float = WORK_SECONDS  # that the action may take
    sent: bool = False  # at least one byte was written
    excused: bool = False  # lost because of an impatient caller, so never a suspect
    loss: tuple[Loss, str] | None = None  # kind and detail, if it is known before the host has ended
    deadline: float = math.inf  # in the time of the event loop
    timer: asyncio.TimerHandle | None = None  # of its deadline, or of the next read of reports before that
    orphaned: bool = False  # the host works on it, and its caller has left
    on_report: Callable[[dict[str, Any]], None] | None = None

    def written(self, count: int) -> None:
        """Record that this many more bytes were written."""
        self.sent = True
        self.unwritten = b"" if count == len(self.unwritten) else memoryview(self.unwritten)[count:]

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class ResponseMatcher:
    """The open requests of one host, oldest first.

    A caller may leave while other requests are open: its request stays in the queue, and its answer is dropped.
    ``on_late_answer`` is called after such an answer; ``on_orphan`` when the host begins with a request whose caller
    has left. ``limit`` is the most bytes of one answer.
    """

    def __init__(
        self,
        on_late_answer: Callable[[], None] | None = None,
        limit: int = MAX_OUTPUT,
        on_orphan: Callable[[Request], None] | None = None,
    ) -> None:
        self._on_late_answer = on_late_answer
        self._on_orphan = on_orphan
        self._lines = LineBuffer(limit)
        self._open: deque[Request] = deque()
        self.spoiled = False

    @property
    def idle(self) -> bool:
        """Whether no request is open, not even one whose caller has left."""
        return not self._open

    @property
    def oldest(self) -> Request | None:
        """The request that the host works on."""
        return self._open[0] if self._open else None

    def find(self, call_id: object) -> Request | None:
        """Return the open request with this call id, if its caller still waits."""
        named = (request for request in self._open if request.call_id == call_id and not request.answer.done())
        return next(named, None)

    def wanted_by_others(self, request: Request) -> bool:
        """Return whether the caller of another request than this one still waits."""
        return any(other is not request and not other.answer.done() for other in self._open)

    def add(self, request: Request) -> None:
        self._open.append(request)

    def withdraw(self, request: Request) -> None:
        request.cancel_timer()
        with contextlib.suppress(ValueError):  # it may have been lost in the meantime
            self._open.remove(request)

    def feed(self, data: bytes) -> None:
        """Add bytes of the host, and resolve the requests that they answer."""
        if self.spoiled:
            return
        for line in self._lines.feed(data):
            self._match(line)
            if self.spoiled:
                return
        if self._lines.overflowed:
            self._spoil("oversize", f"the answer has more than {self._lines.limit} bytes")

    @property
    def partial(self) -> bytes:
        """The incomplete last line."""
        return self._lines.partial

    def lose_all(self, loss: Loss, detail: str) -> None:
        """Fail every open request, with this loss unless its own is known."""
        self.spoiled = True
        for position, request in enumerate(self._open):
            request.cancel_timer()
            if not request.answer.done():
                suspect = position == 0 and request.sent and not request.excused
                lost = HostLost(*(request.loss or (loss, detail)), sent=request.sent, suspect=suspect)
                request.answer.set_exception(lost)
        self._open.clear()

    def _match(self, line: bytes) -> None:
        if not self._open:
            self._spoil("crash", "the host wrote a line without a request")
            return
        request = self._open[0]
        if not line:
            self._spoil("empty_output", "the host answered with an empty line")
            return
        try:
            document = decode(line)
        except ValueError as error:
            self._spoil("parse_error", f"the answer is not a JSON object: {error}; it begins {line[:200]!r}")
            return
        call_id = document.get("call_id")
        if call_id is not None and request.call_id is not None and call_id != request.call_id:
            self._spoil("crash", "the host answered another call than the oldest one")
            return
        if not request.sent or request.unwritten:
            self._spoil("crash", "the host answered before it had the whole request")
            return
        self._open.popleft()
        request.cancel_timer()
        if not request.answer.done():
            request.answer.set_result(document)
        elif self._on_late_answer is not None:
            self._on_late_answer()
        if self._on_orphan is not None and self._open and self._open[0].answer.done():
            self._on_orphan(self._open[0])

    def _spoil(self, loss: Loss, detail: str) -> None:
        """Mark the stream as spoiled; the oldest request gets this loss."""
        self.spoiled = True
        if self._open and self._open[0].loss is None:
            self._open[0].loss = (loss, detail)


_ERRORS: Final[dict[Loss, tuple[ErrorType, ErrorCode | None]]] = {  # of a call, by the loss of its request
    "timeout": ("timeout", None),
    "crash": ("crash", None),
    "parse_error": ("parse_error", None),
    "oversize": ("parse_error", "oversize"),
    "empty_output": ("parse_error", "empty_output"),
    "cancelled": ("exception", "cancelled"),
}
_REPEATABLE: Final = frozenset[Loss]({"crash", "parse_error", "empty_output"})


def lost_to_neighbour(call: HostCall, lost: HostLost) -> bool:
    """Return whether a call without effects was lost because of another call on its host, the neighbour."""
    return lost.sent and not lost.suspect and not call.exclusive


def may_repeat(call: HostCall, lost: HostLost, *, is_probe: bool) -> bool:
    """Return whether the call may be sent to another host.

    A request that was sent is repeated only if it has no effect (tier 0), and is idempotent or was lost to a neighbour:
    the authority of an effect is spent when it is sent. Losses that would recur on any host (a deadline, an oversize
    answer) are final. ``is_probe``: the call is the probe of a half-open breaker, which gets no second try of its own.
    """
    if lost.loss not in _REPEATABLE:
        return False
    return not lost.sent or lost_to_neighbour(call, lost) or (call.idempotent and not call.exclusive and not is_probe)


def loss_type(lost: HostLost) -> ErrorType:
    return _ERRORS[lost.loss][0]


def loss_error(call: HostCall, lost: HostLost) -> DispatchError:
    kind, code = _ERRORS[lost.loss]
    if lost.sent and not call.idempotent and code != "oversize":  # an oversize answer proves that the action ran
        code = "outcome_unknown"
    return failure(call.aid, kind, lost.detail, code=code, sent=lost.sent)
