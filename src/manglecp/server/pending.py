"""Pending requests, their handling, and their replies. A request has one reply (requirement TRANS-38).

Every failure becomes an error message. Details of internal failures are logged, and not sent to clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from manglecp.intent import Identity, PolicyRefusal
from manglecp.invoke import ApprovalService, OnProgress, PackRuntime, RunObserver
from manglecp.store import Busy, StoreError
from manglecp.wire import WireError, encode, malformed
from manglecp.wire.messages import (
    ApprovalPayload,
    ApprovalResult,
    DecideRequest,
    FactsResult,
    IntentRequest,
    InvokeRequest,
    Message,
    ProgressMessage,
    ProgressPayload,
)

if TYPE_CHECKING:
    from manglecp.server.core import Core

_log = logging.getLogger(__name__)
_MAX_FOREIGN_BYTES: Final = 65_536
_NOT_MCP: Final = "This server speaks MangleCP; `manglecp mcp serve` serves MCP clients"
PendingMessage: TypeAlias = IntentRequest | InvokeRequest | DecideRequest
"""The messages that become pending requests. Replies to other messages need no evaluation and no run."""


class Reply(msgspec.Struct, frozen=True):
    """An encoded message that ends a request: a response or an error."""

    data: bytes
    status: int = 200
    """The status code of HTTP."""
    code: str | None = None
    """The error code; None for a success."""
    retry_after_ms: int | None = None


def error_reply(error: WireError, request_id: str | None = None) -> Reply:
    """Return the error as a reply; ``request_id`` is None if the id of the request is not known."""
    error.__traceback__ = error.__context__ = None  # the frames of both tracebacks would keep the message in memory
    row = error.row  # the row of the error code in the table of all codes
    retry_after_ms = error.retry_after_ms if row.recoverable else None
    return Reply(encode(error.to_message(request_id)), row.status, error.code, retry_after_ms)


def json_rpc_refusal(request_id: object, text: str = _NOT_MCP) -> bytes:
    """Return an encoded error of JSON-RPC, which clients of MCP can read."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32_600, "message": text}})


def foreign_reply(data: bytes) -> Reply | None:
    """Return the reply to a request of JSON-RPC, as clients of MCP send it; None for every other message."""
    if len(data) > _MAX_FOREIGN_BYTES or b'"jsonrpc"' not in data:
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        request = msgspec.json.decode(data)
        if isinstance(request, dict) and {"jsonrpc", "id"} <= request.keys():
            return Reply(json_rpc_refusal(request["id"]), 400, "malformed_message")
    return None


class PendingRequest:
    """A request that has no reply yet. ``reply`` is a future that the server awaits before it shuts down."""

    __slots__ = ("began_ns", "evaluation_task", "id", "identity", "message", "observer", "refusal", "reply", "task")

    def __init__(self, message: PendingMessage, identity: Identity, began_ns: int) -> None:
        assert message.id is not None  # every request has an id (WIRE-03)
        self.id = message.id
        self.message = message
        self.identity = identity
        self.began_ns = began_ns
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.observer = RunObserver() if isinstance(message, InvokeRequest) else None
        """The observer of the run; None for an evaluation."""
        self.evaluation_task: asyncio.Task[Any] | None = None
        """The task that waits for the evaluation; None before and after."""
        self.refusal: WireError | None = None
        """The error with which an abandoned evaluation ends."""
        self.task: asyncio.Task[Reply] | None = None
        """The task that handles a request of a persistent session. This reference keeps it from garbage collection."""

    @property
    def has_request_key(self) -> bool:
        """Whether the client may repeat the request with its key, to get the same reply."""
        return isinstance(self.message, InvokeRequest) and self.message.payload.request_key is not None

    @property
    def tool(self) -> str | None:
        """The name of the tool that is invoked, once it is known."""
        return None if self.observer is None else self.observer.tool

    def cancel(self) -> None:
        """Abandon an evaluation at once, or stop a run before its next step: a last step may succeed (TRANS-39)."""
        if self.observer is not None:
            self.observer.cancel()
        else:
            self.abandon(WireError("cancelled", "The request was cancelled"))

    def disconnect(self) -> None:
        """Cancel the request of a client that is gone, except a run with a request key or an effect."""
        if self.observer is None:
            self.cancel()
        elif not self.has_request_key:
            self.observer.disconnect()

    def abandon(self, refusal: WireError) -> None:
        """Reply to an evaluation with this error at once. Has no effect on runs."""
        if self.observer is None and self.refusal is None:
            self.refusal = refusal
            if self.evaluation_task is not None:
                self.evaluation_task.cancel()

    def progress(self, payload: ProgressPayload) -> bytes | None:
        """Return the encoded progress message; None once the request has a reply (PROG-08)."""
        return None if self.reply.done() else encode(ProgressMessage(id=self.id, payload=payload))

    async def handle(self, core: Core, session: str, progress: OnProgress | None) -> Reply:
        """Evaluate, decide or invoke, and return the reply; ``session`` is the name of the session, for logs.

        Raises only CancelledError.
        """
        try:
            if isinstance(self.message, InvokeRequest):
                return await self._invoke(core, self.message, progress)
            return Reply(encode(await self._evaluate(core, self.message)))
        except WireError as error:
            return error_reply(error, self.id)
        except Busy:
            busy = WireError("rate_limited", "The store is busy", retry_after_ms=core.settings.retry_after_ms)
            return error_reply(busy, self.id)
        except StoreError as error:
            core.revisions.store_failed(error, {"session": session, "request_id": self.id})
        except Exception:
            _log.exception("a request failed", extra={"session": session, "request_id": self.id})
        return error_reply(internal_error(), self.id)

    async def _evaluate(self, core: Core, message: IntentRequest | DecideRequest) -> Message:
        if self.refusal is not None:
            raise self.refusal
        handle = core.revisions.acquire()
        revision = handle.revision
        is_intent = isinstance(message, IntentRequest)
        evaluate: Any = revision.offers.evaluate_blocking if is_intent else revision.invoker.decisions.decide
        task = self.evaluation_task = asyncio.current_task()
        try:
            # The thread may outlive this task; the revision is released when the thread is done.
            result: Any = await core.evaluations.run(evaluate, message, self.identity, on_end=handle.release)
            if isinstance(result, Message):
                return result
            assert isinstance(message, DecideRequest)
            return await revision.invoker.decisions.respond(message, result)
        except PolicyRefusal as refusal:
            await revision.invoker.decision_log.record_refusal(refusal)
            raise
        except asyncio.CancelledError:
            if self.refusal is None or task is None:
                raise
            task.uncancel()  # abandon() cancelled only this wait: the task goes on, and replies with the refusal
            raise self.refusal from None
        finally:
            self.evaluation_task = None

    async def _invoke(self, core: Core, message: InvokeRequest, progress: OnProgress | None) -> Reply:
        handle, observer = core.revisions.acquire(), self.observer
        try:
            core.request_limits.begin_invocation()
            try:
                assert observer is not None  # the request is an invocation
                observer.on_progress = progress
                return Reply(encode(await handle.revision.invoker.invoke(message, self.identity, observer)))
            finally:
                core.request_limits.end_invocation()
        finally:
            handle.release()


def handle_approval(approvals: ApprovalService, approver: Identity, payload: ApprovalPayload) -> ApprovalResult:
    """List, show, approve or deny approval requests, and return them. Blocks. Raises WireError."""
    if payload.operation == "list":
        pending = approvals.pending(approver)
        return ApprovalResult(approvals=tuple(approvals.view(request, text=False) for request in pending))
    if payload.approval is None:
        raise malformed("approval is missing: the id of the request", "$.payload.approval")
    if payload.operation == "show":
        request = approvals.show(approver, payload.approval)
    else:
        decision: Literal["approved", "denied"] = "approved" if payload.operation == "approve" else "denied"
        request = approvals.decide(approver, payload.approval, decision)
    return ApprovalResult(approvals=(approvals.view(request),))


def push_facts(revision: PackRuntime, identity: Identity, source: str, facts: str | list[Any]) -> FactsResult:
    """Replace the facts of a source. Blocks. Raises WireError and StoreError."""
    if revision.facts is None:
        raise WireError("x-source_not_found", "This server has no sources of facts")
    return revision.facts.push(source, facts, identity)


def internal_error() -> WireError:
    """Return the error that clients receive for an internal failure."""
    return WireError("internal_error", "The server failed on this request")
