"""From the end of a run to what the client is told: a result with what follows from it, or an error.

The pack's rules are asked what the run meant; the result is put together and held against the tool's promise; what is
secret is taken out of all of it. The last turn is closed on exactly this, and only then is it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from manglecp.intent.definition import Definition
from manglecp.intent.domain import Domain
from manglecp.intent.redaction import secret_values
from manglecp.invoke.arguments import secret_names
from manglecp.invoke.delta import next_of, state_delta
from manglecp.invoke.model import Outcome
from manglecp.invoke.observing import events_of, summary_of
from manglecp.invoke.refusals import Told, cancelled, failed, needs_decision, result_refused
from manglecp.invoke.results import hiding, result_errors, result_of
from manglecp.invoke.run_rules import RunRules
from manglecp.invoke.running import Ended
from manglecp.mangle.errors import MangleError
from manglecp.pack.model import Invocation
from manglecp.wire.errors import WireError
from manglecp.wire.messages.invocation import InvokeResult, Observability, StateDelta

__all__ = ["Answering"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What one run says."""

    run: str
    domain: Domain
    definition: Definition
    args: Mapping[str, Any]
    rules: RunRules

    def answer(self, ended: Ended, duration_ms: int) -> InvokeResult | WireError:
        if ended.reason is not None:
            return self._failure(ended)
        result = result_of(self.definition, ended.outcomes)
        errors = result_errors(self.definition, result)
        if errors:
            return result_refused(errors, self.told(ended))
        try:
            said = self.rules.after(ended.standing, failed=False)
        except MangleError as error:
            # The effects are there, and so is the result: rules that fail afterwards take neither back.
            return failed(None, self.told(ended, delta=StateDelta()), f"after_run_rules: {type(error).__name__}")
        summaries = [str(text) for (text,) in said["summary"]]
        observed = Observability(
            summary=summary_of(summaries, ended.outcomes, self.definition.tool),
            events=events_of(ended.outcomes, self._caps.max_events),
            duration_ms=duration_ms,
        )
        told = InvokeResult(
            result=result,
            state_delta=state_delta(said, self.domain, self._caps.max_delta_facts),
            observability=observed,
            next=next_of(said, self.domain, self._caps.max_delta_facts),
        )
        return self._hidden(told)

    @property
    def _caps(self) -> Invocation:
        return self.domain.pack.settings.invocation

    def _failure(self, ended: Ended) -> WireError:
        told = self.told(ended)
        if ended.reason == "cancelled":
            return cancelled(told)
        if ended.reason == "needs_decision":
            assert ended.culprit is not None  # somebody has to decide about something
            return needs_decision(ended.culprit, told)
        return failed(ended.culprit, told, ended.reason or "step_failed")

    def told(self, ended: Ended, delta: StateDelta | None = None) -> Told:
        """What stands, for an error."""
        if delta is None:
            delta = self._standing_delta(ended.standing) if ended.effects else StateDelta()
        return Told(
            run_id=self.run,
            effects=ended.effects,
            state_delta=self._hide(msgspec.to_builtins(delta)),
            events=events_of(ended.outcomes, self._caps.max_events),
        )

    def _standing_delta(self, standing: Sequence[Outcome]) -> StateDelta:
        try:
            return state_delta(self.rules.after(standing, failed=True), self.domain, self._caps.max_delta_facts)
        except MangleError:
            return StateDelta()

    def _hidden(self, told: InvokeResult) -> InvokeResult:
        hide = self._hide
        if not self._secrets():
            return told
        return msgspec.convert(hide(msgspec.to_builtins(told)), InvokeResult)

    @property
    def _hide(self) -> Callable[[Any], Any]:
        return hiding(self._secrets())

    def _secrets(self) -> list[str]:
        """Texts that nobody is told: settings that are credentials, and call arguments that are."""
        given = (self.args.get(name) for name in secret_names(self.definition.input_schema))
        return [*secret_values(self.domain.pack), *(text for text in given if isinstance(text, str))]
