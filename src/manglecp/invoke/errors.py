"""How a run that came to nothing is told: one table from the codes of the toolhost and the classes of the harness to
those of the protocol (OPEN-70).

Before the first effect an error may invite the client to try again. From the first effect on, done or doubtful, every
failure is ``execution_failed``, which no client repeats by itself, and says which effects stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.invoke.calls import Effect, StepOutcome
from manglecp.invoke.gate import GateRefused
from manglecp.wire import SchemaError, WireError

RETRY_AFTER_MS: Final = 1_000
_BUSY: Final = frozenset({"breaker_open", "queue_full", "budget_spent"})
_NOT_PERMITTED: Final = frozenset({"lease_refused", "lease_required", "lease_rejected"})
_CLAIM: Final = "mutation.capability_claim_missing"
_WITHOUT_STEP: Final = {
    "timeout": "The run took too long",
    "after_run_rules": "The chain ran, but the rules about its outcome failed",
}
_APPROVAL: Final = "governance.risk_tier_profile_missing"


class FailureContext(msgspec.Struct, frozen=True, kw_only=True):
    """What every failure of a run says in ``details``."""

    run_id: str
    effects: tuple[Effect, ...] = ()
    state_delta: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...] = ()
    tried: bool = False
    """Was an effect sent? An action that reports an error may have changed something before that."""

    def details(self, reason: str, culprit: StepOutcome | None = None, **more: Any) -> dict[str, Any]:
        """The details of the error; ``culprit`` is the step that is to blame, if one is."""
        said: dict[str, Any] = {"reason": reason}
        if culprit is not None:
            said |= {"step": culprit.number, "action": culprit.action, "code": culprit.code}
        said |= {
            "effects": [{"step": one.step, "action": one.action, "status": one.status} for one in self.effects],
            "state_delta": self.state_delta,
            "events": list(self.events),
            "run_id": self.run_id,
        }
        return said | more

    @property
    def standing(self) -> tuple[Effect, ...]:
        """Of what happened, or may have: what was not undone and leaves something behind."""
        return tuple(effect for effect in self.effects if effect.lasting and effect.status != "undone")


def failure_error(culprit: StepOutcome | None, told: FailureContext, reason: str = "step_failed") -> WireError:
    """A step failed, the run had no more time, or its rules failed afterwards."""
    if not told.effects and culprit is not None:
        before = _before_any_effect(culprit)
        if before is not None:
            return before
    if culprit is not None:
        where = f"Step {culprit.number} ({culprit.action}) failed{_missing(culprit)}"
    else:
        where = _WITHOUT_STEP.get(reason, "The run failed")
    return WireError("execution_failed", f"{where}; {_standing(told)}", told.details(reason, culprit))


def _missing(culprit: StepOutcome) -> str:
    """Which argument could not be found. That text is made of what the chain says, and of no values."""
    return f" ({culprit.detail})" if culprit.code == "argument_missing" and culprit.detail else ""


def _before_any_effect(culprit: StepOutcome) -> WireError | None:
    """Nothing has happened yet, and the code says that it might work later, or never."""
    if culprit.code in _BUSY:
        message = f"The action {culprit.action} is busy or failed too often; try again later"
        return WireError("rate_limited", message, retry_after_ms=RETRY_AFTER_MS)
    if culprit.code in _NOT_PERMITTED:
        return WireError("auth_insufficient", f"The action {culprit.action} is not permitted")
    if culprit.code == "not_found":
        return WireError("macro_not_found", f"The action {culprit.action} is not there any more; evaluate again")
    if culprit.code == "no_host":
        return WireError("internal_error", "The server cannot start its tool hosts")
    return None


def cancellation_error(told: FailureContext) -> WireError:
    """Somebody wanted no more of it. What had happened by then stands."""
    return WireError("cancelled", f"The run was cancelled; {_standing(told)}", told.details("cancelled"))


def decision_error(culprit: StepOutcome, told: FailureContext) -> WireError:
    """A person has to say how a step ended before the run can go on."""
    message = (
        f"Nobody but a person can say how step {culprit.number} ({culprit.action}) ended; see the run {told.run_id}"
    )
    return WireError("execution_failed", message, told.details("needs_decision", culprit))


def gate_error(refused: GateRefused, told: FailureContext) -> WireError:
    """The evidence did not carry the first effect: nothing has happened."""
    if _CLAIM in refused.classes:
        return WireError("auth_insufficient", "Policy does not permit an effect of this macro-tool")
    if _APPROVAL in refused.classes:
        return WireError("confirmation_required", "A person has to approve what this macro-tool does")
    details = told.details("gate_refused", failure_classes=list(refused.classes))
    return WireError("execution_failed", "The evidence of the run does not permit its effect", details)


def server_failure_error(run_id: str, *, acknowledged: bool) -> WireError:
    """The server itself failed. A run with effects goes on elsewhere, from its record: nobody is to repeat it."""
    if not acknowledged:
        return WireError("internal_error", "The server failed on this invocation", {"run_id": run_id})
    message = "The server failed during this run; what it had done is on record, and the run goes on from there"
    return WireError("execution_failed", message, {"reason": "interrupted", "run_id": run_id})


def shutdown_error(run_id: str, *, acknowledged: bool, keyed: bool) -> WireError:
    """The server goes before the run is over. Whoever has a key may ask again for what came of it, and nothing is
    lost by repeating a run without effects; another one goes on from its record, and nobody is to repeat it."""
    if keyed or not acknowledged:
        again = "ask again with the same request key" if keyed else "ask again"
        message = f"The server is shutting down; {again}"
        return WireError("server_not_ready", message, retry_after_ms=RETRY_AFTER_MS)
    message = "The server is shutting down; what the run had done is on record, and it goes on from there"
    return WireError("execution_failed", message, {"reason": "interrupted", "run_id": run_id})


def bad_result_error(errors: Sequence[SchemaError], told: FailureContext) -> WireError:
    """The result breaks the tool's own promise, and is not sent (OPEN-34)."""
    details = told.details("bad_result", schema_errors=msgspec.to_builtins(list(errors)))
    message = f"The result does not fit the schema that the macro-tool promises; {_standing(told)}"
    return WireError("execution_failed", message, details)


def _standing(told: FailureContext) -> str:
    if not told.effects:
        return "none of its effects was completed" if told.tried else "nothing was changed"
    if not told.standing:
        undone = any(effect.status == "undone" for effect in told.effects)
        return f"what it had done {'was undone' if undone else 'leaves nothing behind'}"
    count = len(told.standing)
    doubt = " or may have happened" if any(effect.status == "unknown" for effect in told.standing) else ""
    return f"{count} effect{'' if count == 1 else 's'} happened{doubt} and stand{'s' if count == 1 else ''}"
