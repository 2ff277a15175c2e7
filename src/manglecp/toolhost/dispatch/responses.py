"""Reads the response lines of a host, without I/O.

The IPC contract has no correlation id, so a host has one open request at a time, and its next line is the answer; only
a concurrent host of ours has several, and names the call of each answer. A line without an open request, one that is
not an answer, or one that names another call breaks that order: the stream is *spoiled*, and the requests are lost.

A request is answered or lost (:class:`HostLost`) exactly once. A loss states whether any byte had been written
(``sent``) and whether the action may be the cause (``suspect``): not if an impatient caller set the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from itertools import takewhile
from typing import Any, Final, NamedTuple

from manglecp.toolhost.dispatch.messages import DispatchError, ErrorCode, ErrorType, HostCall, decode, failure

MAX_OUTPUT: Final = 1_048_576  # bytes that one answer may have, its newline not counted


class LineBuffer:
    """Splits a stream into lines at byte 0x0A, holding at most one line.

    Unlike ``splitlines``, it splits at no other character. A line that exceeds the limit is dropped *while* it is read.
    The bytes after it could be its tail, so no further lines are returned: :attr:`overflowed` stays true.
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


class Loss(NamedTuple):
    """Why a request is lost: type, detail and code of the error of its call."""

    kind: ErrorType
    detail: str
    code: ErrorCode | None = None


class HostLost(Exception):
    """A request that will not be answered."""

    def __init__(self, loss: Loss, *, sent: bool = False, suspect: bool = False) -> None:
        super().__init__(loss)
        self.loss = loss
        self.sent = sent
        self.suspect = suspect


@dataclass(slots=True, eq=False)
class Request:
    """One request line: the bytes left to write, and the future of its answer."""

    unwritten: bytes | memoryview = field(repr=False)  # it may contain secrets
    answer: asyncio.Future[dict[str, Any]]
    call_id: str | None = None
    _: KW_ONLY
    deadline: float = 0.0  # in the time of the event loop
    impatient: bool = False  # the caller waits for less time than the action may take
    on_report: Callable[[dict[str, Any]], None] | None = None
    sent: bool = False  # at least one byte was written
    loss: Loss | None = None  # if it is known before the host has ended
    suspect: bool = True  # whether the action may be the cause of a loss

    def written(self, count: int) -> None:
        """Record that this many more bytes were written."""
        self.sent = True
        self.unwritten = b"" if count == len(self.unwritten) else memoryview(self.unwritten)[count:]


class ResponseReader:
    """The lines of one host, and its open requests.

    ``limit`` is the most bytes of one answer. ``redact`` removes secrets from texts for errors. A sequential host has
    one open request, which the next line answers. A ``concurrent`` host has several: each of its lines answers the
    request whose call id it names, or the health request, which has none.
    """

    def __init__(
        self, limit: int = MAX_OUTPUT, redact: Callable[[str], str] = str, *, concurrent: bool = False
    ) -> None:
        self._lines = LineBuffer(limit)
        self._redact = redact
        self._concurrent = concurrent
        self.requests: dict[str | None, Request] = {}  # by call id
        self.spoiled = False

    def open(self, request: Request) -> None:
        """Add a request, whose call id no other open request has."""
        self.requests[request.call_id] = request

    @property
    def partial(self) -> bytes:
        """The incomplete last line."""
        return self._lines.partial

    def feed(self, data: bytes) -> None:
        """Add bytes of the host, and resolve the requests that they answer."""
        if self.spoiled:
            return
        for line in self._lines.feed(data):
            if (loss := self._read(line)) is not None:
                self._spoil(loss)
                return
        if self._lines.overflowed:
            self._spoil(Loss("parse_error", f"the answer has more than {self._lines.limit} bytes", "oversize"))

    def lose(self, loss: Loss) -> None:
        """Fail each open request with the loss that is known for it already, or else with this one."""
        self.spoiled = True
        while self.requests:
            self._lose(self.requests.popitem()[1], loss)

    def _lose(self, request: Request, loss: Loss) -> None:
        if not request.answer.done():
            suspect = request.sent and request.suspect
            request.answer.set_exception(HostLost(request.loss or loss, sent=request.sent, suspect=suspect))

    def _read(self, line: bytes) -> Loss | None:
        """Resolve the request that the line answers, or return why it answers none."""
        if not self.requests:
            return Loss("crash", "the host wrote a line without a request")
        if not line:
            return Loss("parse_error", "the host answered with an empty line", "empty_output")
        try:
            document = decode(line)
        except ValueError as error:
            beginning = self._redact(line.decode("utf-8", "replace"))[:200]
            return Loss("parse_error", f"the answer is not a JSON object: {error}; it begins {beginning!r}")
        call_id = document.get("call_id")
        if self._concurrent:
            request = self.requests.get(call_id) if isinstance(call_id, str | None) else None
        else:
            request = next(iter(self.requests.values()))
            if None not in (call_id, request.call_id) and call_id != request.call_id:
                request = None
        if request is None:
            return Loss("crash", "the host answered another call than an open one")
        if not request.sent or request.unwritten:
            return Loss("crash", "the host answered before it had the whole request")
        del self.requests[request.call_id]
        if self._concurrent and request.loss is not None:  # the host confirms that it has cancelled the call
            self._lose(request, request.loss)
        elif not request.answer.done():
            request.answer.set_result(document)
        return None

    def _spoil(self, loss: Loss) -> None:
        """Mark the stream as spoiled; the open requests get this loss."""
        self.spoiled = True
        for request in self.requests.values():
            request.loss = request.loss or loss


def may_repeat(call: HostCall, lost: HostLost, *, is_probe: bool) -> bool:
    """Return whether the call may be sent to another host.

    A request that was sent is repeated only if it has no effect (tier 0) and is idempotent: the authority of an effect
    is spent when it is sent. Losses that would recur on any host (a deadline, an oversize answer) are final.
    ``is_probe``: the call is the probe of a half-open breaker, which gets no second try.
    """
    if lost.loss.kind not in ("crash", "parse_error") or lost.loss.code == "oversize":
        return False
    return not lost.sent or (call.idempotent and not call.above_tier_0 and not is_probe)


def loss_error(call: HostCall, lost: HostLost) -> DispatchError:
    kind, detail, code = lost.loss
    if lost.sent and not call.idempotent and code != "oversize":  # an oversize answer proves that the action ran
        code = "outcome_unknown"
    return failure(call.aid, kind, detail, code=code, sent=lost.sent)
