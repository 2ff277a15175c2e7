"""The work behind a request: an intent is evaluated or a tool invoked, and what comes of it becomes the reply.

Whatever goes wrong is an error message for whoever asked. What is nobody's business but the server's is in its log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from manglecp.intent import Identity
from manglecp.invoke import OnProgress, invocations
from manglecp.server.evaluating import Outcome
from manglecp.server.pending import Pending
from manglecp.server.replies import Reply, failure, success
from manglecp.store import Busy, StoreError
from manglecp.wire import WireError
from manglecp.wire.messages import IntentRequest, InvokeRequest

if TYPE_CHECKING:
    from manglecp.server.core import Core

__all__ = ["evaluate", "internal_error", "invoke"]

_log = logging.getLogger(__name__)


def evaluate(core: Core, session: str, pending: Pending, message: IntentRequest, identity: Identity) -> None:
    """Have it answered in its turn; a WireError if it cannot be. The edition is held until the evaluation is over,
    whether anybody waits for it or not."""
    kept = core.serving.hold()

    def answered(answer: Outcome) -> None:
        kept.let_go()
        if not pending.finished:
            pending.finish(_reply(core, session, pending, answer))

    def stop() -> None:
        if core.evaluating.withdraw(turn):
            kept.let_go()

    try:
        turn = core.evaluating.ask(kept.edition.invoker, message, identity, answered)
    except BaseException:
        kept.let_go()
        raise
    pending.stop = stop


def invoke(
    core: Core, session: str, pending: Pending, message: InvokeRequest, identity: Identity, progress: OnProgress | None
) -> None:
    """Have the tool invoked; a WireError if it cannot be. The edition is held until the run is over."""
    kept = core.serving.hold()

    def answered(answer: invocations.Outcome) -> None:
        core.admission.end()
        kept.let_go()
        pending.finish(_reply(core, session, pending, answer))

    try:
        core.admission.begin()
    except WireError:
        kept.let_go()
        raise
    kept.edition.invoker.ask(
        message, identity, answered, progress=progress, cancel=pending.cancelled, named=pending.named
    )


def _reply(core: Core, session: str, pending: Pending, answer: Outcome | invocations.Outcome) -> Reply:
    if not isinstance(answer, BaseException):
        try:
            return success(answer)
        except Exception as error:  # it cannot be written
            answer = error
    if isinstance(answer, WireError):
        return failure(answer, pending.id)
    if isinstance(answer, Busy):
        waiting = core.settings.retry_after_ms
        return failure(WireError("rate_limited", "The store is busy", retry_after_ms=waiting), pending.id)
    extra = {"session": session, "request_id": pending.id}
    if isinstance(answer, StoreError):
        _log.error("the store failed: %s", answer, extra=extra)
        core.serving.store_failed(answer)
    else:
        _log.error("a request could not be answered", exc_info=answer, extra=extra)
    return failure(internal_error(), pending.id)


def internal_error() -> WireError:
    """What a client is told of a failure that is the server's own."""
    return WireError("internal_error", "The server failed on this request")
