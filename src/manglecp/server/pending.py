"""A request that is not answered yet, and the reply that ends it. A request has one reply (TRANS-38)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from manglecp.intent import Identity
from manglecp.invoke import RunObserver
from manglecp.wire import WireError, encode
from manglecp.wire.messages import IntentRequest, InvokeRequest, Message, ProgressMessage, ProgressPayload

__all__ = ["PendingRequest", "Reply", "failure", "success"]


class Reply(msgspec.Struct, frozen=True):
    """A terminal message, ready to be sent."""

    data: bytes
    status: int = 200
    """Of HTTP."""
    code: str | None = None
    """Of the error, if it is one."""
    retry_after_ms: int | None = None


def success(message: Message) -> Reply:
    return Reply(encode(message))


def failure(error: WireError, request: str | None) -> Reply:
    error.__traceback__ = error.__context__ = None  # its frames would keep the message alive
    retry_after_ms = error.retry_after_ms if error.row.recoverable else None
    return Reply(encode(error.answering(request)), error.row.status, error.code, retry_after_ms)


class PendingRequest:
    """A request from its admission to its reply. ``reply`` is a future that drain waits for."""

    __slots__ = ("began_ns", "evaluating", "identity", "message", "observer", "refusal", "reply", "task")

    def __init__(self, message: IntentRequest | InvokeRequest, identity: Identity, began_ns: int) -> None:
        self.message = message
        self.identity = identity
        self.began_ns = began_ns
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.observer = RunObserver() if isinstance(message, InvokeRequest) else None
        """Of the run, if the request is an invocation."""
        self.evaluating: asyncio.Task[Any] | None = None
        """The task that waits for the evaluation, while it does."""
        self.refusal: WireError | None = None
        """Why an evaluation was given up."""
        self.task: asyncio.Task[Reply] | None = None
        """The task of a request of a session that lasts; on HTTP it is the task of the HTTP request."""

    @property
    def id(self) -> str:
        assert self.message.id is not None  # requests have one (WIRE-03)
        return self.message.id

    @property
    def keyed(self) -> bool:
        """Whether the client may repeat the request, and expects the reply of this one."""
        return isinstance(self.message, InvokeRequest) and self.message.payload.request_key is not None

    @property
    def tool(self) -> str | None:
        """The name of the tool that is invoked, once it is known."""
        return None if self.observer is None else self.observer.tool

    def cancel(self) -> None:
        """End an evaluation now; stop a run at its next step. A run may still come to its normal end (TRANS-39)."""
        if self.observer is not None:
            self.observer.cancelled.set()
        else:
            self.give_up(WireError("cancelled", "The request was cancelled"))

    def give_up(self, refusal: WireError) -> None:
        """Reply to an evaluation with this error. Has no effect on runs."""
        if self.observer is None and self.refusal is None:
            self.refusal = refusal
            if self.evaluating is not None:
                self.evaluating.cancel()

    def progress(self, payload: ProgressPayload) -> bytes | None:
        """The encoded message; None once there is a reply (PROG-08)."""
        return None if self.reply.done() else encode(ProgressMessage(id=self.id, payload=payload))
