"""Request handlers: evaluate an intent, decide about a call or invoke a tool, and return the reply.

Every failure becomes an error message. Details of internal failures are logged, and not sent to clients.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal

from manglecp.intent import Identity
from manglecp.invoke import ApprovalService, OnProgress
from manglecp.server.pending import PendingRequest, Reply, failure, success
from manglecp.store import Busy, StoreError
from manglecp.wire import WireError, malformed, messages

if TYPE_CHECKING:
    from manglecp.server.core import Core

__all__ = ["handle_approval", "internal_error", "respond"]

_log = logging.getLogger(__name__)


async def respond(core: Core, session: str, pending: PendingRequest, progress: OnProgress | None) -> Reply:
    """Handle the request and return the reply; ``session`` is its name, for logs. Raises only CancelledError."""
    message, log_fields = pending.message, {"session": session, "request_id": pending.id}
    try:
        if isinstance(message, messages.InvokeRequest):
            return success(await _invoke(core, pending, message, progress))
        return success(await _evaluate(core, pending, message))
    except WireError as error:
        return failure(error, pending.id)
    except Busy:
        busy = WireError("rate_limited", "The store is busy", retry_after_ms=core.settings.retry_after_ms)
        return failure(busy, pending.id)
    except StoreError as error:
        core.revisions.store_failed(error, log_fields)
    except Exception:
        _log.exception("a request failed", extra=log_fields)
    return failure(internal_error(), pending.id)


async def _evaluate(
    core: Core, pending: PendingRequest, message: messages.IntentRequest | messages.DecideRequest
) -> messages.Message:
    if pending.refusal is not None:
        raise pending.refusal
    handle = core.revisions.acquire()
    revision = handle.revision
    is_intent = isinstance(message, messages.IntentRequest)
    evaluate: Any = revision.offers.evaluate_blocking if is_intent else revision.invoker.decisions.decide
    task = pending.evaluating = asyncio.current_task()
    try:
        # The thread may outlive this task; the revision is released when the thread is done.
        return await core.evaluations.run(evaluate, message, pending.identity, done=handle.release)
    except asyncio.CancelledError:
        if pending.refusal is None or task is None:
            raise
        task.uncancel()  # PendingRequest.abandon cancelled this wait; the task continues with the refusal
        raise pending.refusal from None
    finally:
        pending.evaluating = None


async def _invoke(
    core: Core, pending: PendingRequest, message: messages.InvokeRequest, progress: OnProgress | None
) -> messages.InvokeResponse:
    with core.revisions.use() as revision:
        core.admission.begin_invocation()
        try:
            assert pending.observer is not None  # the request is an invocation
            pending.observer.on_progress = progress
            return await revision.invoker.invoke(message, pending.identity, pending.observer)
        finally:
            core.admission.end_invocation()


def handle_approval(
    approvals: ApprovalService, approver: Identity, payload: messages.ApprovalPayload
) -> messages.ApprovalResult:
    """List, show, approve or deny approval requests, and return them. Blocks. Raises WireError."""
    if payload.operation == "list":
        pending = approvals.pending(approver)
        return messages.ApprovalResult(approvals=tuple(approvals.view(request, text=False) for request in pending))
    if payload.approval is None:
        raise malformed("approval is missing: the id of the request", "$.payload.approval")
    if payload.operation == "show":
        request = approvals.show(approver, payload.approval)
    else:
        decision: Literal["approved", "denied"] = "approved" if payload.operation == "approve" else "denied"
        request = approvals.decide(approver, payload.approval, decision)
    return messages.ApprovalResult(approvals=(approvals.view(request),))


def internal_error() -> WireError:
    """Return the error that clients receive for an internal failure."""
    return WireError("internal_error", "The server failed on this request")
