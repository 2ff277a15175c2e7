"""Request handlers: evaluate an intent or invoke a tool, and turn the result or the error into a reply.

Every failure becomes an error message. Details of internal failures are logged, and not sent to clients.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from manglecp.intent import Identity
from manglecp.invoke import ApprovalService, OnProgress, progress_reporter
from manglecp.server.pending import PendingRequest, Reply, failure, success
from manglecp.store import Busy, StoreError
from manglecp.wire import WireError, malformed
from manglecp.wire.messages import (
    ApprovalPayload,
    ApprovalResult,
    IntentRequest,
    IntentResponse,
    InvokeRequest,
    InvokeResponse,
)

if TYPE_CHECKING:
    from manglecp.server.core import Core

__all__ = ["handle_approval", "internal_error", "respond"]

_log = logging.getLogger(__name__)


async def respond(core: Core, session: str, pending: PendingRequest, progress: OnProgress | None) -> Reply:
    """Handle the request and return the reply. Raises only if this task is cancelled."""
    message, log_fields = pending.message, {"session": session, "request_id": pending.id}
    try:
        if isinstance(message, IntentRequest):
            return success(await _evaluate(core, pending, message))
        return success(await _invoke(core, pending, message, progress))
    except WireError as error:
        return failure(error, pending.id)
    except Busy:
        retry = WireError("rate_limited", "The store is busy", retry_after_ms=core.settings.retry_after_ms)
        return failure(retry, pending.id)
    except StoreError as error:
        core.revisions.store_failed(error, log_fields)
    except Exception:
        _log.exception("a request failed", extra=log_fields)
    return failure(internal_error(), pending.id)


async def _evaluate(core: Core, pending: PendingRequest, message: IntentRequest) -> IntentResponse:
    if pending.refusal is not None:
        raise pending.refusal
    handle = core.revisions.acquire()
    evaluate = handle.revision.offers.evaluate_blocking
    task = pending.evaluating = asyncio.current_task()
    try:
        # The thread may outlive this task; the revision is released when the thread is done.
        return await core.evaluations.run(evaluate, message, pending.identity, done=handle.release)
    except asyncio.CancelledError:
        if pending.refusal is None or task is None:
            raise
        task.uncancel()  # the request was abandoned, not the task
        raise pending.refusal from None
    finally:
        pending.evaluating = None


async def _invoke(
    core: Core, pending: PendingRequest, message: InvokeRequest, progress: OnProgress | None
) -> InvokeResponse:
    handle = core.revisions.acquire()
    try:
        core.admission.begin()
        try:
            invoker, observer = handle.revision.invoker, pending.observer
            assert observer is not None  # the request is an invocation
            observer.progress = progress_reporter(progress)
            return await invoker.invoke(message, pending.identity, observer)
        finally:
            core.admission.end()
    finally:
        handle.release()


def handle_approval(approvals: ApprovalService, approver: Identity, payload: ApprovalPayload) -> ApprovalResult:
    """Do what the approver requests, and return the requests. Blocks. Raises WireError."""
    if payload.operation == "list":
        return ApprovalResult(approvals=tuple(approvals.view(one, text=False) for one in approvals.pending(approver)))
    if payload.approval is None:
        raise malformed("approval is missing: the id of the request", "$.payload.approval")
    if payload.operation == "show":
        found = approvals.show(approver, payload.approval)
    else:
        found = approvals.decide(approver, payload.approval, "approved" if payload.operation == "approve" else "denied")
    return ApprovalResult(approvals=(approvals.view(found),))


def internal_error() -> WireError:
    """Return the error that clients receive for an internal failure."""
    return WireError("internal_error", "The server failed on this request")
