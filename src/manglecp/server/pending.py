"""Pending requests and their replies. A request has one reply (TRANS-38)."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import msgspec

from manglecp.intent import Identity
from manglecp.invoke import RunObserver
from manglecp.wire import WireError, encode
from manglecp.wire.messages import (
    DecideRequest,
    IntentRequest,
    InvokeRequest,
    Message,
    ProgressMessage,
    ProgressPayload,
)

__all__ = ["Handled", "PendingRequest", "Reply", "failure", "success"]

Handled: TypeAlias = IntentRequest | InvokeRequest | DecideRequest


class Reply(msgspec.Struct, frozen=True):
    """An encoded message that ends a request: a response or an error."""

    data: bytes
    status: int = 200
    """The status code of HTTP."""
    code: str | None = None
    """The error code; None for a success."""
    retry_after_ms: int | None = None


def success(message: Message) -> Reply:
    return Reply(encode(message))


def failure(error: WireError, request_id: str | None = None) -> Reply:
    """Return the error message for a request; ``request_id`` is None if its id is not known."""
    error.__traceback__ = error.__context__ = None  # its frames would keep the message alive
    retry_after_ms = error.retry_after_ms if error.row.recoverable else None
    return Reply(encode(error.to_message(request_id)), error.row.status, error.code, retry_after_ms)


class PendingRequest:
    """A request from its admission to its reply. ``reply`` is a future that drain waits for."""

    __slots__ = ("began_ns", "evaluating", "identity", "message", "observer", "refusal", "reply", "task")

    def __init__(self, message: Handled, identity: Identity, began_ns: int) -> None:
        self.message = message
        self.identity = identity
        self.began_ns = began_ns
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.observer = RunObserver() if isinstance(message, InvokeRequest) else None
        """The observer of the run; None for an evaluation."""
        self.evaluating: asyncio.Task[Any] | None = None
        """The task that waits for the evaluation; None before and after."""
        self.refusal: WireError | None = None
        """The error with which an abandoned evaluation ends."""
        self.task: asyncio.Task[Reply] | None = None
        """The task that handles a request of a persistent session. This reference keeps it from garbage collection."""

    @property
    def id(self) -> str:
        assert self.message.id is not None  # requests have one (WIRE-03)
        return self.message.id

    @property
    def has_idempotency_key(self) -> bool:
        """Whether the client may repeat the request with its key, to get the same reply."""
        return isinstance(self.message, InvokeRequest) and self.message.payload.request_key is not None

    @property
    def tool(self) -> str | None:
        """The name of the tool that is invoked, once it is known."""
        return None if self.observer is None else self.observer.tool

    def cancel(self) -> None:
        """Abandon an evaluation at once; stop a run before its next step, so that it may still succeed (TRANS-39)."""
        if self.observer is not None:
            self.observer.cancelled.set()
        else:
            self.abandon(WireError("cancelled", "The request was cancelled"))

    def disconnect(self) -> None:
        """Cancel a request that a lost client cannot repeat with a key. A run that had an effect continues."""
        if self.observer is None:
            self.cancel()
        elif not self.has_idempotency_key:
            self.observer.disconnected.set()

    def abandon(self, refusal: WireError) -> None:
        """Reply to an evaluation with this error at once. Has no effect on runs."""
        if self.observer is None and self.refusal is None:
            self.refusal = refusal
            if self.evaluating is not None:
                self.evaluating.cancel()

    def progress(self, payload: ProgressPayload) -> bytes | None:
        """Return the encoded progress message; None once there is a reply (PROG-08)."""
        return None if self.reply.done() else encode(ProgressMessage(id=self.id, payload=payload))
