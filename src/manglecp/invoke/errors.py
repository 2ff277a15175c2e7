"""Errors of runs: maps the toolhost's codes and the harness's classes to the protocol's error codes (OPEN-70).

Before the first effect, an error may be recoverable. Once an effect happened or may have happened, every failure is
``execution_failed``, which clients do not retry, with a list of the effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.invoke.approval import invalid_approval
from manglecp.invoke.calls import Effect, StepOutcome
from manglecp.invoke.gate import GateRefused
from manglecp.wire import CODES, SchemaError, WireError

RETRY_AFTER_MS: Final = 1_000
_BUSY_CODES: Final = frozenset({"breaker_open", "queue_full", "budget_spent"})
_NOT_PERMITTED_CODES: Final = frozenset({"lease_refused", "lease_required", "lease_rejected"})
_CLAIM_MISSING: Final = "mutation.capability_claim_missing"
_APPROVAL_MISSING: Final = "governance.risk_tier_profile_missing"  # an approval is needed and missing
_MESSAGE_WITHOUT_STEP: Final = {
    "timeout": "The run took too long",
    "after_run_rules": "The chain ran, but the rules about its outcome failed",
}


class FailureContext(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run at its failure, for ``details`` and the message of its error."""

    run_id: str
    effects: tuple[Effect, ...] = ()
    state_delta: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...] = ()
    events_omitted: int = 0
    effect_sent: bool = False
    """Whether an effect was sent: a failed action may have changed something before its error."""

    def details(self, reason: str, culprit: StepOutcome | None = None, **members: Any) -> dict[str, Any]:
        """Return the details of the error, including ``members``; ``culprit`` is the failed step, if there is one."""
        details: dict[str, Any] = {"reason": reason}
        if culprit is not None:
            details |= {"step": culprit.number, "action": culprit.action, "code": culprit.code}
            if culprit.cause is not None:
                details["cause"] = culprit.cause
        details |= {
            "effects": [{"step": each.step, "action": each.action, "status": each.status} for each in self.effects],
            "state_delta": self.state_delta,
            "events": list(self.events),
            **({"x-events_omitted": self.events_omitted} if self.events_omitted else {}),
            "run_id": self.run_id,
        }
        return details | members

    def describe_effects(self) -> str:
        """Return the end of an error message: which effects of the run stand."""
        if not self.effects:
            return "none of its effects was completed" if self.effect_sent else "nothing was changed"
        standing = [effect for effect in self.effects if effect.lasting and effect.status != "undone"]
        if not standing:
            undone = any(effect.status == "undone" for effect in self.effects)
            return f"what it had done {'was undone' if undone else 'leaves nothing behind'}"
        count = len(standing)
        if_unknown = " or may have happened" if any(effect.status == "unknown" for effect in standing) else ""
        return f"{count} effect{'' if count == 1 else 's'} happened{if_unknown} and stand{'s' if count == 1 else ''}"


def failure_error(culprit: StepOutcome | None, context: FailureContext, reason: str = "step_failed") -> WireError:
    """Return the error of a run whose step (``culprit``) or after-run rules failed, or whose time limit passed."""
    if not context.effects and culprit is not None and (error := _error_before_effects(culprit)) is not None:
        return error
    if culprit is not None:
        failure = f"Step {culprit.number} ({culprit.action}) failed"
        if culprit.cause is not None:
            failure += f": {culprit.cause['message']}"
            code = culprit.cause.get("code")
            if code is not None and code not in CODES and not context.effects:
                return WireError(code, culprit.cause["message"], context.details(reason, culprit))
        elif culprit.code == "argument_missing" and culprit.detail:
            failure += f" ({culprit.detail})"  # a detail that describes the chain, without values
    else:
        failure = _MESSAGE_WITHOUT_STEP.get(reason, "The run failed")
    message = f"{failure}; {context.describe_effects()}"
    return WireError("execution_failed", message, context.details(reason, culprit))


def _error_before_effects(culprit: StepOutcome) -> WireError | None:
    """Return the error for the code of a step that was not sent to a host; None for any other code."""
    if culprit.code in _BUSY_CODES:
        message = f"The action {culprit.action} is busy or failed too often; try again later"
        return WireError("rate_limited", message, retry_after_ms=RETRY_AFTER_MS)
    if culprit.code == "subject_changed":
        return invalid_approval("subject")
    if culprit.code in _NOT_PERMITTED_CODES:
        return WireError("auth_insufficient", f"The action {culprit.action} is not permitted")
    if culprit.code == "not_found":
        return WireError("macro_not_found", f"The action {culprit.action} does not exist any more; evaluate again")
    if culprit.code == "no_secret":
        return WireError("internal_error", f"The server lacks a secret of the action {culprit.action}; see its log")
    if culprit.code == "no_host":
        return WireError("internal_error", "The server cannot start its tool hosts")
    return None


def cancellation_error(context: FailureContext) -> WireError:
    message = f"The run was cancelled; {context.describe_effects()}"
    return WireError("cancelled", message, context.details("cancelled"))


def decision_error(culprit: StepOutcome, context: FailureContext) -> WireError:
    """Return the error of a run that waits for an operator's decision about a step."""
    message = (
        f"Only an operator can decide how step {culprit.number} ({culprit.action}) ended; see the run {context.run_id}"
    )
    return WireError("execution_failed", message, context.details("needs_decision", culprit))


def gate_error(refusal: GateRefused, context: FailureContext) -> WireError:
    """Return the error of a run whose gate refused the first effect."""
    if _CLAIM_MISSING in refusal.classes:
        return WireError("auth_insufficient", "Policy does not permit an effect of this macro-tool")
    if _APPROVAL_MISSING in refusal.classes:
        return WireError("confirmation_required", "A person has to approve what this macro-tool does")
    details = context.details("gate_refused", failure_classes=list(refusal.classes))
    return WireError("execution_failed", "The evidence of the run does not permit its effect", details)


def server_failure_error(run_id: str, *, has_effects: bool) -> WireError:
    """Return the error of a run during which the server failed.

    A worker resumes a run with effects from the journal, so clients must not retry it.
    """
    if not has_effects:
        return WireError("internal_error", "The server failed on this invocation", {"run_id": run_id})
    message = "The server failed during this run; what it had done is on record, and the run goes on from there"
    return WireError("execution_failed", message, {"reason": "interrupted", "run_id": run_id})


def shutdown_error(run_id: str, *, has_effects: bool, keyed: bool) -> WireError:
    """Return the error of a run that has not ended when the server shuts down.

    Clients may retry with the same request key (``keyed``), or without a key if the run has no effects.
    """
    if keyed or not has_effects:
        again = "ask again with the same request key" if keyed else "ask again"
        message = f"The server is shutting down; {again}"
        return WireError("server_not_ready", message, retry_after_ms=RETRY_AFTER_MS)
    message = "The server is shutting down; what the run had done is on record, and it goes on from there"
    return WireError("execution_failed", message, {"reason": "interrupted", "run_id": run_id})


def bad_result_error(errors: Sequence[SchemaError], context: FailureContext) -> WireError:
    """Return the error of a result that does not fit the tool's output schema; the result is not sent (OPEN-34)."""
    details = context.details("bad_result", schema_errors=msgspec.to_builtins(list(errors)))
    message = f"The result does not fit the schema that the macro-tool promises; {context.describe_effects()}"
    return WireError("execution_failed", message, details)
