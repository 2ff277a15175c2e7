"""Previews: read-only actions that show what an effect would change, such as a diff or a dry run.

An action names its preview. The result is part of the approval request; it is computed again before the effect, and
another result needs another approval. Members of the result that are parameters of the action are passed to the action,
which can refuse a subject that has changed since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest
from manglecp.base.ids import random_id
from manglecp.base.json import Uncanonical, canonical
from manglecp.intent import ChainStep, make_redactor, secret_values
from manglecp.invoke.approval import render_request
from manglecp.invoke.plan import Plan
from manglecp.pack import ActionDescription, Pack
from manglecp.toolhost import ActionResult, Dispatcher, PlanPermit
from manglecp.wire import WireError

_TIMEOUT_SECONDS: Final = 60.0


class ApprovalSubject(msgspec.Struct, frozen=True):
    """What an approver is shown besides the arguments of an invocation."""

    results: dict[int, Any] = {}
    """The results of previews, by number of the step."""

    @property
    def digest(self) -> str:
        """The digest of all results; empty without one."""
        return digest({str(number): result for number, result in self.results.items()}) if self.results else ""


class PreviewFailed(Exception):
    """A preview has no result. The text is the name of the preview."""


class PreviewRunner:
    """Runs the previews of one pack revision."""

    def __init__(self, pack: Callable[[], Pack], dispatcher: Dispatcher) -> None:
        self._pack = pack
        self._dispatcher = dispatcher

    async def subject(self, plan: Plan, args: Mapping[str, Any], identity: str) -> ApprovalSubject:
        """Return the previews of the steps whose arguments are known before the run. Raises :class:`WireError`."""
        steps = [(step, inputs) for step in plan.definition.steps if (inputs := _inputs(step, plan, args)) is not None]
        try:
            results = await asyncio.gather(*(self.run(plan.action(step), inputs, identity) for step, inputs in steps))
        except PreviewFailed as error:
            message = f"The preview for the approver failed: {error}; nothing was changed"
            raise WireError("execution_failed", message, {"reason": "preview_failed"}) from None
        return ApprovalSubject({step.number: result for (step, _), result in zip(steps, results, strict=True)})

    async def run(self, action: ActionDescription, inputs: Mapping[str, Any], identity: str) -> Any:
        """Return the result of the action's preview for these inputs of the action. Raises :class:`PreviewFailed`."""
        assert action.preview is not None
        preview = self._pack().actions[action.preview]
        params = preview.input_schema.get("properties", {})
        call_id = f"preview-{random_id()}"
        response = await self._dispatcher.call(
            preview.aid,
            identity=identity,
            slots={},
            input_json=canonical({name: value for name, value in inputs.items() if name in params}).decode(),
            call_id=call_id,
            timeout=_TIMEOUT_SECONDS,
            authority=PlanPermit({call_id: preview.aid}),
        )
        if not isinstance(response, ActionResult):
            raise PreviewFailed(preview.name)
        try:
            result = msgspec.json.decode(response.output_json)
            canonical(result)  # raises if the result has no digest
        except (ValueError, Uncanonical, RecursionError):
            raise PreviewFailed(preview.name) from None
        return result

    def render(self, plan: Plan, args: Mapping[str, Any], subject: ApprovalSubject, identity: str) -> str:
        """Return the text of the approval request."""
        return render_request(
            plan.definition,
            args,
            subject.results,
            identity=identity,
            secret_args=plan.secrets,
            hide=make_redactor(secret_values(self._pack())),
        )


def _inputs(step: ChainStep, plan: Plan, args: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the inputs of a step with a preview; None without one, or if an input is the output of a step or run."""
    if plan.action(step).preview is None or any(argument.source in ("step", "kept") for argument in step.arguments):
        return None
    frozen = {argument.param: argument.value for argument in step.arguments if argument.source == "value"}
    from_call = [argument for argument in step.arguments if argument.source == "call" and argument.value in args]
    return frozen | {argument.param: args[argument.value] for argument in from_call}
