"""Which answer belongs to which request: the next line to the oldest, for the contract has no correlation id.

That holds only as long as every line is the answer to the oldest open request. A line that nobody waits for, one that
is no answer, or one that names another call shows that it no longer does. There is no way back from there: the stream
is *spoiled*, nothing more is taken from it, and what the host still owed is lost.

A request is either answered or lost (:class:`HostLost`), once. A loss says whether any byte of the request had left
(``sent``), and whether it was the one the host was busy with (``suspect``): hosts work in order, so it is the oldest.
One that its caller gave up early is no suspect: that says nothing about the action.

Somebody may leave while the host goes on working for others. The place of such a request is kept, and its answer is
taken and dropped when its turn comes.

No I/O here. Whoever owns the pipes feeds what was read and says what was written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final, Literal

from manglecp.toolhost.dispatch.framing import MAX_OUTPUT, Lines
from manglecp.toolhost.dispatch.messages import decode

__all__ = ["WORK_TIME", "HostLost", "Loss", "Pairing", "Request"]

WORK_TIME: Final = 30.0
"""Seconds that a request may keep its host busy, unless somebody knows better."""

Loss = Literal["timeout", "crash", "parse_error", "oversize", "empty_output", "cancelled"]


class HostLost(Exception):
    """No answer will come."""

    def __init__(self, loss: Loss, detail: str, *, sent: bool, suspect: bool) -> None:
        super().__init__(loss, detail)
        self.loss = loss
        self.detail = detail
        self.sent = sent
        self.suspect = suspect


class Request:
    """One line on its way: what is left to write, and who waits for the answer."""

    __slots__ = (
        "answer",
        "call_id",
        "deadline",
        "excused",
        "hasty",
        "left",
        "loss",
        "rest",
        "sent",
        "shared",
        "work_time",
    )

    def __init__(
        self,
        line: bytes,
        answer: asyncio.Future[dict[str, Any]],
        call_id: str | None = None,
        *,
        shared: bool = False,
        hasty: bool = False,
        work_time: float = WORK_TIME,
    ) -> None:
        self.rest: bytes | memoryview = line
        self.call_id = call_id
        self.answer = answer
        self.shared = shared
        self.hasty = hasty
        """Whether its caller waits for less than the action may take."""
        self.work_time = work_time
        """Seconds that the action may take."""
        self.sent = False
        self.excused = False
        self.loss: tuple[Loss, str] | None = None
        self.deadline = inf
        self.left = False
        """Whether the host works on it for nobody."""

    def written(self, count: int) -> None:
        """So many bytes more have left."""
        self.sent = True
        self.rest = b"" if count == len(self.rest) else memoryview(self.rest)[count:]

    def settle(self) -> None:
        """Nobody watches the clock for it any more."""
        self.deadline = inf


class Pairing:
    """The open requests of one host, oldest first, and the lines that it writes."""

    def __init__(
        self,
        on_late: Callable[[], None] | None = None,
        limit: int = MAX_OUTPUT,
        on_left: Callable[[Request], None] | None = None,
    ) -> None:
        self._on_late = on_late
        self._on_left = on_left
        """Hears when it is the turn of a request that nobody waits for."""
        self._lines = Lines(limit)
        self._waiting: deque[Request] = deque()
        self.spoiled = False

    @property
    def idle(self) -> bool:
        """Whether nothing is owed, not even to somebody who has left."""
        return not self._waiting

    @property
    def open(self) -> Iterable[Request]:
        """Those that are owed an answer, oldest first."""
        return self._waiting

    @property
    def oldest(self) -> Request | None:
        """The request that the host is busy with."""
        return self._waiting[0] if self._waiting else None

    def wanted_by_others(self, request: Request) -> bool:
        """Whether somebody else still waits for an answer."""
        return any(other is not request and not other.answer.done() for other in self._waiting)

    def add(self, request: Request) -> None:
        """One more request that was sent; its answer comes after those of the others."""
        self._waiting.append(request)

    def withdraw(self, request: Request) -> None:
        """Expect no answer to a request that was never sent."""
        request.settle()
        with contextlib.suppress(ValueError):  # it may have been lost in the meantime
            self._waiting.remove(request)

    def feed(self, data: bytes) -> None:
        """Take what the host wrote, and answer the requests whose turn it is."""
        if self.spoiled:
            return
        for line in self._lines.feed(data):
            self._take(line)
            if self.spoiled:
                return
        if self._lines.overflowed:
            self._spoil("oversize", f"the answer has more than {self._lines.limit} bytes")

    def half(self) -> bytes:
        """The line that the host never finished."""
        return self._lines.half()

    def lose_all(self, loss: Loss, detail: str) -> None:
        """No more answers: whoever waits is told why, by this reason unless there was an earlier one."""
        self.spoiled = True
        for position, request in enumerate(self._waiting):
            request.settle()
            kind, reason = request.loss or (loss, detail)
            if not request.answer.done():
                suspect = position == 0 and request.sent and not request.excused
                request.answer.set_exception(HostLost(kind, reason, sent=request.sent, suspect=suspect))
        self._waiting.clear()

    def _take(self, line: bytes) -> None:
        if not self._waiting:
            self._spoil("crash", "the host wrote a line that nobody had asked for")
            return
        request = self._waiting[0]
        if not line:
            self._spoil("empty_output", "the host answered with an empty line")
            return
        try:
            document = decode(line)
        except ValueError as error:
            self._spoil("parse_error", f"the answer is no JSON object: {error}; it begins {line[:200]!r}")
            return
        named = document.get("call_id")
        if named is not None and request.call_id is not None and named != request.call_id:
            self._spoil("crash", "the host answered another call than the one whose turn it was")
            return
        if not request.sent or request.rest:
            self._spoil("crash", "the host answered before it had the whole request")
            return
        self._waiting.popleft()
        request.settle()
        if not request.answer.done():
            request.answer.set_result(document)
        elif self._on_late is not None:
            self._on_late()
        if self._on_left is not None and self._waiting and self._waiting[0].answer.done():
            self._on_left(self._waiting[0])

    def _spoil(self, loss: Loss, detail: str) -> None:
        """The order of answers can no longer be trusted. The oldest request is the one it happened to."""
        self.spoiled = True
        if self._waiting and self._waiting[0].loss is None:
            self._waiting[0].loss = (loss, detail)
