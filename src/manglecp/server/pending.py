"""A request that is not answered yet. It is answered once: whatever comes second is not sent (TRANS-38)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from manglecp.server.replies import Reply, failure
from manglecp.wire import WireError, encode
from manglecp.wire.messages import IntentRequest, InvokeRequest, Progress, ProgressPayload

__all__ = ["Pending"]


class Pending:
    """A request from its arrival to its answer."""

    __slots__ = ("_answer", "_answered", "_reply", "_then", "began_ns", "cancelled", "message", "stop", "tool")

    def __init__(
        self, message: IntentRequest | InvokeRequest, answered: Callable[[Pending, Reply], None], began_ns: int
    ) -> None:
        """``answered`` is called with the answer, at once."""
        self.message = message
        self.began_ns = began_ns
        self._answered = answered
        self._reply: Reply | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._then: Callable[[Reply], None] | None = None
        self.cancelled = asyncio.Event() if isinstance(message, InvokeRequest) else None
        """What stops a run at its next step."""
        self.stop: Callable[[], object] | None = None
        """What keeps an evaluation from being begun, if it is not."""
        self.tool: str | None = None
        """The name of the tool that is invoked, once that is known."""

    @property
    def id(self) -> str:
        """That of the request, which its answer repeats."""
        assert self.message.id is not None  # requests have one (WIRE-03)
        return self.message.id

    @property
    def finished(self) -> bool:
        """Is it answered?"""
        return self._reply is not None

    @property
    def answer(self) -> asyncio.Future[Reply]:
        """For who waits for it, and may give that up. It is there for others all the same."""
        if self._answer is None or self._answer.cancelled():
            self._answer = asyncio.get_running_loop().create_future()
            if self._reply is not None:
                self._answer.set_result(self._reply)
        return self._answer

    def __await__(self) -> Generator[Any, None, Reply]:
        return self.answer.__await__()

    def then(self, told: Callable[[Reply], None]) -> None:
        """For somebody who has no task to wait in: ``told`` is called with the answer."""
        if self._reply is None:
            self._then = told
        else:
            told(self._reply)

    @property
    def keyed(self) -> bool:
        """May the same request come again, and expect the answer of this one?"""
        return isinstance(self.message, InvokeRequest) and self.message.payload.request_key is not None

    def named(self, tool: str) -> None:
        """Which tool is invoked, as is known by now."""
        self.tool = tool

    def finish(self, reply: Reply) -> None:
        """Answer it, unless it is answered."""
        if self._reply is None:
            self._reply, self.stop = reply, None
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(reply)
            self._answered(self, reply)
            then, self._then = self._then, None
            if then is not None:
                then(reply)

    def cancel(self) -> None:
        """An evaluation is answered now, and its outcome thrown away. A run stops at its next step, and says how it
        stands; it may as well come to its normal end (TRANS-39)."""
        if self.cancelled is not None:
            self.cancelled.set()
        self.give_up(WireError("cancelled", "The request was cancelled"))

    def give_up(self, why: WireError) -> None:
        """Answer an evaluation with this error; runs are not concerned."""
        if isinstance(self.message, IntentRequest):
            stop = self.stop
            self.finish(failure(why, self.id))
            if stop is not None:
                stop()

    def progress(self, payload: ProgressPayload) -> bytes | None:
        """The message for it; None once the answer is there (PROG-08)."""
        return None if self.finished else encode(Progress(id=self.id, payload=payload))
