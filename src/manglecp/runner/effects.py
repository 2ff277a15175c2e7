"""Execution of actions that have effects: the operator approves each one, and a judged turn authorises it.

The evidence is built as in :mod:`manglecp.invoke`. Each turn records the effect that the previous turn authorised, with
its outcome, and then authorises the next effect. An effect whose evidence is incomplete is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from manglecp import invoke
from manglecp.base.digest import digest_text
from manglecp.harness import MutationReady
from manglecp.intent import ChainStep
from manglecp.pack import ActionDescription, default_governance
from manglecp.runner.execution import ActionOutcome, PluginExecutor, StepStatus
from manglecp.toolhost import Dispatcher, Slots


class _EffectCall(invoke.ActionCall, frozen=True, kw_only=True):
    """A call with the id that the executor chose; the base class would compute another id."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "group", f"s{self.number}")


class GatedExecutor:
    """Executes the actions of a dispatcher for one run.

    ``approve`` takes the AID and the input JSON of an effect. ``selector`` is the name of what picks the actions,
    ``plugin_digest`` is the digest of the plugin or of its listing, ``sandbox`` the profile of its hosts.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        run_id: str,
        approve: Callable[[str, str], bool],
        *,
        admission_digest: str,
        selector: str,
        plugin_digest: str,
        sandbox: str,
        max_effects: int,
    ) -> None:
        self._execute = PluginExecutor(dispatcher, run_id, self._authorise)
        self._approve = approve
        self._actions = {
            aid: ActionDescription(
                name=aid,
                aid=aid,
                description="",
                input_schema=profile.inputs_schema or {},
                output_schema={},
                tier=profile.tier,
            )
            for aid, profile in dispatcher.actions.items()
        }
        package = default_governance()
        chain = invoke.ChainTerms(
            model_ref=f"selector:{selector}",
            package=package,
            pinned=package.digest,
            actions=self._actions,
            plugin_digest=plugin_digest,
            gates=max_effects,
            sandbox=sandbox,
        )
        self._turns = invoke.Turns(invoke.RunTerms(run_id, admission_digest, f"confirm:operator/{run_id}", chain))
        self._call: _EffectCall | None = None  # the last effect that was authorised
        self._outcome: invoke.StepOutcome | None = None  # the outcome of that effect
        self._witness = ""

    async def __call__(self, aid: str, inputs: dict[str, Any], state: Slots, /) -> ActionOutcome:
        previous = self._call
        outcome = await self._execute(aid, inputs, state)
        if self._call is None or self._call is previous:  # an action that has no effect, or was refused
            return outcome
        is_done = outcome.status is StepStatus.OK
        self._outcome = invoke.StepOutcome(
            call=self._call,
            number=self._call.number,
            action=aid,
            status="done" if is_done else "failed",  # every failure but an invalid pick also ends the run
            output=outcome.output if is_done else None,
            code=None if is_done else outcome.output.get("code"),
        )
        return outcome._replace(turn=self._witness)

    def _authorise(self, aid: str, call_id: str, input_json: str) -> MutationReady | None:
        if not self._approve(aid, input_json):
            return None
        action, number = self._actions[aid], self._turns.count + 1
        call = _EffectCall(
            run=self._turns.terms.run,
            step=ChainStep(number, aid),
            number=number,
            action=action,
            input_json=input_json,
            input_digest=digest_text(input_json),
            call_id=call_id,
        )
        turn = self._turns.open()
        if self._call is None:
            turn.admit()
        elif self._outcome is not None:  # without an outcome of the last effect, the turn authorises nothing
            turn.record_calls([self._call], [self._outcome])
        ready, witness = turn.authorize([call], claims=[invoke.BASE_CLAIM, invoke.claim_of(action)])
        self._call, self._outcome, self._witness = call, None, witness.id
        return ready
