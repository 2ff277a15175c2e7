"""The subject of an approval: what an approver is shown besides the arguments, and must not change until the effect.

* Values: an effect may take arguments from earlier steps or runs. The read-only steps that provide them are run for the
  request, and the values are shown. A call whose values cannot be known before its first effect cannot be approved.
* Previews: an action may name a read-only action that shows what the effect would change, such as a diff or a dry run.
  Members of its result that are parameters of the action are passed to the action, which can refuse a subject that has
  changed since.

Values and previews are computed again before the effect; if they differ, the call needs another approval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest
from manglecp.base.ids import random_id
from manglecp.base.json import Uncanonical, canonical
from manglecp.intent import Argument, ChainStep, make_redactor, secret_values
from manglecp.invoke.approval_text import render_request
from manglecp.invoke.calls import (
    ActionCall,
    ArgumentMissing,
    StepOutcome,
    SubjectChanged,
    error_texts,
    resolve_inputs,
    secret_names,
)
from manglecp.invoke.journal import read_kept
from manglecp.invoke.plan import Plan
from manglecp.invoke.progress import RunReports
from manglecp.pack import ActionDescription, Pack
from manglecp.store import Store
from manglecp.toolhost import ActionResult, Dispatcher, PlanPermit
from manglecp.wire import WireError

PREVIEW_CALL: Final = "preview-"
"""The prefix of the ids of this module's calls."""
_TIMEOUT_SECONDS: Final = 60.0


class ApprovalSubject(msgspec.Struct, frozen=True):
    """What an approver is shown besides the arguments of an invocation."""

    results: dict[int, Any] = {}
    """The results of previews, by number of the step."""
    values: dict[int, dict[str, Any]] = {}
    """The arguments that come from earlier steps or runs, by number of the step and parameter."""

    @property
    def digest(self) -> str:
        """The digest of all results and values; empty without results and values."""
        return digest(msgspec.to_builtins(self, str_keys=True)) if self.results or self.values else ""

    def check_values(self, call: ActionCall) -> None:
        """Raise :class:`SubjectChanged` if the call has other values than the approved ones."""
        inputs = msgspec.json.decode(call.input_json) if call.number in self.values else {}
        for param, value in self.values.get(call.number, {}).items():
            if digest(inputs.get(param)) != digest(value):
                raise SubjectChanged(f"{param} has another value than the approved one")


class PreviewFailed(Exception):
    """A read-only action failed. The text is the action's name, and the message of its ``ActionError``, if any."""


class PreviewRunner:
    """Runs read-only actions of one pack revision for approvers."""

    def __init__(self, pack: Callable[[], Pack], dispatcher: Dispatcher, store: Store) -> None:
        self._pack = pack
        self._dispatcher = dispatcher
        self._store = store

    async def subject(self, plan: Plan, args: Mapping[str, Any], identity: str) -> ApprovalSubject:
        """Return what the approver of a call is shown. Raises :class:`WireError` if that cannot be determined."""
        steps = [step for step in plan.definition.steps if plan.is_effect(step) or plan.action(step).preview]
        reads = _needed_reads(steps, plan)
        known_arguments = {step.number: _known_arguments(step, reads, plan) for step in steps}
        try:
            outputs: dict[int, Any] = {}
            for number, read in reads.items():
                inputs = await self._inputs(read.arguments, args, outputs, identity)
                outputs[number] = await self._call(plan.action(read), inputs, identity)
            step_inputs = {
                number: await self._inputs(arguments, args, outputs, identity)
                for number, arguments in known_arguments.items()
            }
            previewed_steps = [step for step in steps if plan.action(step).preview]
            results = await asyncio.gather(
                *(self.run(plan.action(step), step_inputs[step.number], identity) for step in previewed_steps)
            )
        except (PreviewFailed, ArgumentMissing) as error:
            message = f"The preview for the approver failed: {error}; nothing was changed"
            raise WireError("execution_failed", message, {"reason": "preview_failed"}) from None
        values: dict[int, dict[str, Any]] = {}
        for number, arguments in known_arguments.items():
            params = [argument.param for argument in arguments if argument.source in ("step", "kept")]
            if params:
                values[number] = {param: step_inputs[number][param] for param in params}
        return ApprovalSubject(dict(zip((step.number for step in previewed_steps), results, strict=True)), values)

    async def run(self, action: ActionDescription, inputs: Mapping[str, Any], identity: str) -> Any:
        """Return the result of an action's preview for the action's inputs. Raises :class:`PreviewFailed`."""
        assert action.preview is not None
        preview = self._pack().actions[action.preview]
        params = preview.input_schema.get("properties", {})
        return await self._call(preview, {name: inputs[name] for name in inputs if name in params}, identity)

    async def _call(self, action: ActionDescription, inputs: Mapping[str, Any], identity: str) -> Any:
        call_id = f"{PREVIEW_CALL}{random_id()}"
        response = await self._dispatcher.call(
            action.aid,
            identity=identity,
            slots={},
            input_json=canonical(inputs).decode(),
            call_id=call_id,
            timeout=_TIMEOUT_SECONDS,
            authority=PlanPermit({call_id: action.aid}),
        )
        if not isinstance(response, ActionResult):
            secrets = [str(inputs[name]) for name in secret_names(action.input_schema) if name in inputs]
            redact = make_redactor([*secret_values(self._pack()), *filter(None, secrets)])
            failure = StepOutcome(call=None, number=0, action=action.name, status="failed", **error_texts(response))
            cause = RunReports(call_id, 1, None, redact).log_failure(failure).cause
            raise PreviewFailed(action.name if cause is None else f"{action.name}: {cause['message']}")
        try:
            result = msgspec.json.decode(response.output_json)
            canonical(result)  # raises if the result has no canonical form, and so no digest
        except (ValueError, Uncanonical, RecursionError):
            raise PreviewFailed(action.name) from None
        return result

    async def _inputs(
        self, arguments: Sequence[Argument], args: Mapping[str, Any], outputs: Mapping[int, Any], identity: str
    ) -> dict[str, Any]:
        return resolve_inputs(arguments, args, outputs, await read_kept(self._store, identity, arguments))

    def render(self, plan: Plan, args: Mapping[str, Any], subject: ApprovalSubject, identity: str) -> str:
        """Return the text of the approval request."""
        return render_request(
            plan.definition,
            args,
            subject.results,
            subject.values,
            identity=identity,
            secret_args=plan.secrets,
            hide=make_redactor(secret_values(self._pack())),
        )


def _needed_reads(steps: Sequence[ChainStep], plan: Plan) -> dict[int, ChainStep]:
    """Return the reads before the first effect that provide inputs of ``steps``, also indirectly, by number."""
    before_effects: list[ChainStep] = []
    for round_steps in plan.rounds():
        if plan.is_effect(round_steps[0]):
            break
        before_effects += round_steps
    needed_numbers = {argument.step for step in steps for argument in step.arguments}
    for read in reversed(before_effects):
        if read.number in needed_numbers:
            needed_numbers.update(argument.step for argument in read.arguments)
    return {read.number: read for read in before_effects if read.number in needed_numbers}


def _known_arguments(step: ChainStep, reads: Mapping[int, ChainStep], plan: Plan) -> list[Argument]:
    """Return the arguments with a value before the run. Raises :class:`WireError` if the step takes other arguments.

    A step that calls the undo action of an earlier effect may take arguments from that effect's output as its declared
    undo does. Such arguments are left out.
    """
    known_arguments = [argument for argument in step.arguments if argument.source != "step" or argument.step in reads]
    for argument in step.arguments:
        if argument in known_arguments:
            continue
        assert argument.step is not None
        undo = plan.step(argument.step).undo
        if undo is None or undo.action != step.action or argument not in undo.arguments:
            message = (
                f"No approver can be shown this call: step {step.number} ({step.action}) takes {argument.param!r} from"
                f" step {argument.step}, whose result is not known before the first effect; the rules have to take it"
                " from a read-only step before that"
            )
            raise WireError("execution_failed", message, {"reason": "not_approvable"})
    return known_arguments
