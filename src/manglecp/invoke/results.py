"""The response to an invocation: the result object of a run, or an error with the effects that stand.

The result has the members that ``macro_result`` facts declare. Without them, it is the output of the last step that is
done; an output that is not an object becomes the member ``value``. The result is validated against the output schema,
and secrets are removed. A run's response is stored, so that a repeated request gets the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from manglecp.base.json import resolve_pointer
from manglecp.intent import Definition, Domain, scrub_json, unchanged
from manglecp.invoke.calls import StepOutcome
from manglecp.invoke.delta import next_of, state_delta
from manglecp.invoke.errors import FailureContext, bad_result_error, cancellation_error, decision_error, failure_error
from manglecp.invoke.executor import ChainResult
from manglecp.invoke.plan import Plan
from manglecp.invoke.progress import event_rows, events_of, summary_of
from manglecp.invoke.run_rules import RunRules
from manglecp.mangle import MangleError
from manglecp.pack import Invocation
from manglecp.wire import SchemaError, WireError, schema_errors
from manglecp.wire.messages import UNSET, ErrorPayload, Event, InvokeResult, Next, Observability, StateDelta

RunResponse = InvokeResult | WireError
P = TypeVar("P", bound=msgspec.Struct)
_NO_DELTA: Final = StateDelta()
_NOTHING_NEXT: Final = Next()
_log = logging.getLogger(__name__)


def result_of(definition: Definition, outcomes: Sequence[StepOutcome]) -> dict[str, Any]:
    """Return the result object. Members without a value are left out; the output schema states which are required."""
    outputs = {step.number: step.output for step in outcomes if step.kind == "do" and step.status == "done"}
    if not definition.results:
        last = outputs[max(outputs)] if outputs else {}
        return last if isinstance(last, dict) else {"value": last}
    result: dict[str, Any] = {}
    for key, number, pointer in definition.results:
        if number in outputs:
            with suppress(LookupError):
                result[key] = resolve_pointer(outputs[number], pointer)
    return result


class _StoredResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    result: InvokeResult | None = None
    error: ErrorPayload | None = None


_decoder = msgspec.json.Decoder(_StoredResponse)


def encode_response(response: RunResponse) -> bytes:
    if isinstance(response, InvokeResult):
        return msgspec.json.encode(_StoredResponse(result=response))
    return msgspec.json.encode(_StoredResponse(error=response.payload()))


def decode_response(stored: bytes) -> RunResponse:
    """Return the stored result or error of a run."""
    response = _decoder.decode(stored)
    if response.result is not None:
        return response.result
    error = response.error
    assert error is not None  # one of the two
    details = None if error.details is UNSET else error.details
    return WireError(error.code, error.message, details, retry_after_ms=error.retry_after_ms)


class ResponseBuilder(msgspec.Struct, frozen=True):
    """Builds the response of one run."""

    run: str
    domain: Domain
    plan: Plan
    rules: RunRules
    redact: Callable[[Any], Any]
    """Replaces secret settings and arguments in a JSON value."""

    def events(self, chain_result: ChainResult) -> tuple[Event, ...]:
        return events_of(chain_result.outcomes, self._limits.max_events)

    def build(self, chain_result: ChainResult, events: tuple[Event, ...], duration_ms: int) -> RunResponse:
        """Return the result, or an error with the effects that stand. ``events`` are those of :meth:`events`."""
        if chain_result.reason is not None:
            return self._failure(chain_result, events)
        definition = self.plan.definition
        result = result_of(definition, chain_result.outcomes)
        if definition.output_schema is not None and (errors := schema_errors(result, definition.output_schema)):
            return bad_result_error(self._redacted(errors), self.failure_context(chain_result, events))
        try:
            rows = self.rules.after(chain_result, failed=False)
        except MangleError:
            # Effects may have happened, but the delta that describes them to the client is not known.
            _log.exception("the rules of %s failed after run %s", self.domain.pack.name, self.run)
            return failure_error(None, self.failure_context(chain_result, events, delta=_NO_DELTA), "after_run_rules")
        summaries = [str(text) for (text,) in rows["summary"]]
        observability = Observability(
            summary=summary_of(summaries, chain_result.outcomes, definition.tool),
            events=events,
            events_omitted=len(chain_result.outcomes) - len(events) or UNSET,
            duration_ms=duration_ms,
        )
        redact = self.redact
        delta, following = _NO_DELTA, _NOTHING_NEXT
        if any(rows.values()):
            # Texts that look like credentials are scrubbed from facts; only the result may contain them.
            def clean(value: Any) -> Any:
                return redact(scrub_json(value))

            limit = self._limits.max_delta_facts
            delta = _transformed(state_delta(rows, self.domain, limit), clean)
            following = _transformed(next_of(rows, self.domain, limit), clean)
        return InvokeResult(
            result=result if redact is unchanged else redact(result),
            state_delta=delta,
            observability=observability if redact is unchanged else _transformed(observability, redact),
            next=following,
        )

    @property
    def _limits(self) -> Invocation:
        return self.domain.pack.settings.invocation

    def _failure(self, chain_result: ChainResult, events: tuple[Event, ...]) -> WireError:
        context = self.failure_context(chain_result, events)
        if chain_result.reason == "cancelled":
            return cancellation_error(context)
        if chain_result.reason == "needs_decision":
            assert chain_result.culprit is not None  # the step to decide about
            return decision_error(chain_result.culprit, context)
        return failure_error(chain_result.culprit, context, chain_result.reason or "step_failed")

    def failure_context(
        self, chain_result: ChainResult, events: tuple[Event, ...], delta: StateDelta | None = None
    ) -> FailureContext:
        """Return the context of an error. ``delta`` defaults to that of the effects that stand."""
        if delta is None:
            delta = self._standing_delta(chain_result) if chain_result.effects else _NO_DELTA
        return FailureContext(
            run_id=self.run,
            effects=chain_result.effects,
            state_delta=self.redact(scrub_json(msgspec.to_builtins(delta))),
            events=tuple(self.redact(event_rows(events))),
            events_omitted=len(chain_result.outcomes) - len(events),
            effect_sent=any(step.call is not None and step.call.is_effect for step in chain_result.outcomes),
        )

    def _standing_delta(self, chain_result: ChainResult) -> StateDelta:
        """Return the delta of the steps that were not undone; empty if the rules fail."""
        try:
            return state_delta(self.rules.after(chain_result, failed=True), self.domain, self._limits.max_delta_facts)
        except MangleError:
            return _NO_DELTA

    def _redacted(self, errors: Sequence[SchemaError]) -> list[SchemaError]:
        """Return the errors with redacted messages and paths: names of members come from the action."""
        return msgspec.convert(self.redact(msgspec.to_builtins(list(errors))), list[SchemaError])


def _transformed(part: P, transform: Callable[[Any], Any]) -> P:
    """Return a part of a message after a transformation of its JSON form."""
    return msgspec.convert(transform(msgspec.to_builtins(part)), type(part))
