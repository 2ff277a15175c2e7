"""From the end of a run to the response: the result object, or an error that says what stands.

The result consists of what ``macro_result`` names, otherwise of the last step that has one; anything but an object
becomes the member ``value`` of one. It is validated against the schema that the tool promises, and secrets are removed
from all of it. A run's response is stored, so that a repeated request gets the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from manglecp.base.json import resolve_pointer
from manglecp.intent import Definition, Domain, hiding, scrub_json, unchanged
from manglecp.invoke.calls import StepOutcome
from manglecp.invoke.delta import next_of, state_delta
from manglecp.invoke.errors import FailureContext, bad_result_error, cancellation_error, decision_error, failure_error
from manglecp.invoke.executor import ChainResult
from manglecp.invoke.plan import Plan
from manglecp.invoke.progress import event_rows, events_of, summary_of
from manglecp.invoke.run_rules import NO_ROWS, RunRules
from manglecp.mangle import MangleError
from manglecp.pack import Invocation
from manglecp.wire import SchemaError, WireError, schema_errors
from manglecp.wire.messages import UNSET, ErrorPayload, Event, InvokeResult, Next, Observability, StateDelta

# --- results -------------------------------------------------------------------------------------------------------

_LEAST_SECRET: Final = 4
"""Shorter texts are everywhere; to hide them would tell more than it hides."""


def result_of(definition: Definition, outcomes: Sequence[StepOutcome]) -> dict[str, Any]:
    """Out of the steps that are done. What is not there is left out; the schema says whether it has to be."""
    outputs = {one.number: one.output for one in outcomes if one.kind == "do" and one.status == "done"}
    if not definition.results:
        last = outputs[max(outputs)] if outputs else {}
        return last if isinstance(last, dict) else {"value": last}
    found: dict[str, Any] = {}
    for key, number, pointer in definition.results:
        if number not in outputs:
            continue
        try:
            found[key] = resolve_pointer(outputs[number], pointer)
        except LookupError:
            continue  # if the tool promises it, the schema of its result says so
    return found


def result_errors(definition: Definition, result: dict[str, Any]) -> list[SchemaError]:
    """INVK-15."""
    return [] if definition.output_schema is None else schema_errors(result, definition.output_schema)


# --- answers -------------------------------------------------------------------------------------------------------

RunResponse = InvokeResult | WireError


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    result: InvokeResult | None = None
    error: ErrorPayload | None = None


_decoder = msgspec.json.Decoder(_Kept)


def encode_response(answer: RunResponse) -> bytes:
    """The bytes that :func:`decoded` reads."""
    return msgspec.json.encode(
        _Kept(result=answer) if isinstance(answer, InvokeResult) else _Kept(error=answer.payload())
    )


def decode_response(kept: bytes) -> RunResponse:
    """The answer as it was first given."""
    found = _decoder.decode(kept)
    if found.result is not None:
        return found.result
    assert found.error is not None  # one of the two
    details = None if found.error.details is UNSET else found.error.details
    return WireError(found.error.code, found.error.message, details, retry_after_ms=found.error.retry_after_ms)


# --- answering -----------------------------------------------------------------------------------------------------

P = TypeVar("P", bound=msgspec.Struct)
_NO_DELTA: Final = StateDelta()
_NOTHING_NEXT: Final = Next()
_log = logging.getLogger(__name__)


class ResponseBuilder(msgspec.Struct, frozen=True):
    """What one run says."""

    run: str
    domain: Domain
    plan: Plan
    args: Mapping[str, Any]
    rules: RunRules
    hidden: Sequence[str]
    """The values of settings that are credentials."""

    @property
    def definition(self) -> Definition:
        """The tool, as it was proven."""
        return self.plan.definition

    def events(self, ended: ChainResult) -> tuple[Event, ...]:
        """What is told of each step."""
        return events_of(ended.outcomes, self._caps.max_events)

    def answer(self, ended: ChainResult, events: tuple[Event, ...], duration_ms: int) -> InvokeResult | WireError:
        """The result, or an error that says what stands all the same."""
        if ended.reason is not None:
            return self._failure(ended, events)
        result = result_of(self.definition, ended.outcomes)
        errors = result_errors(self.definition, result)
        if errors:
            return bad_result_error(self._told_errors(errors), self.told(ended, events))
        try:
            said = self.rules.after(ended.standing, failed=False) if self.rules.speak_after else NO_ROWS
        except MangleError:
            # What happened has happened, and nobody can say what it means: that is told, and nothing is made up.
            _log.exception("the rules of %s failed after run %s", self.domain.pack.name, self.run)
            return failure_error(None, self.told(ended, events, delta=StateDelta()), "after_run_rules")
        summaries = [str(text) for (text,) in said["summary"]]
        observed = Observability(
            summary=summary_of(summaries, ended.outcomes, self.definition.tool),
            events=events,
            duration_ms=duration_ms,
        )
        hide = self._hide
        delta, following = _NO_DELTA, _NOTHING_NEXT
        if said is not NO_ROWS and any(said.values()):
            # The result is what the tool is for. Facts about it are ours, and never hold what looks like a credential.
            delta = state_delta(said, self.domain, self._caps.max_delta_facts)
            delta = _mapped(delta, lambda value: hide(scrub_json(value)))
            following = next_of(said, self.domain, self._caps.max_delta_facts)
            following = _mapped(following, lambda value: hide(scrub_json(value)))
        return InvokeResult(
            result=result if hide is unchanged else hide(result),
            state_delta=delta,
            observability=observed if hide is unchanged else _mapped(observed, hide),
            next=following,
        )

    @property
    def _caps(self) -> Invocation:
        return self.domain.pack.settings.invocation

    def _failure(self, ended: ChainResult, events: tuple[Event, ...]) -> WireError:
        told = self.told(ended, events)
        if ended.reason == "cancelled":
            return cancellation_error(told)
        if ended.reason == "needs_decision":
            assert ended.culprit is not None  # somebody has to decide about something
            return decision_error(ended.culprit, told)
        return failure_error(ended.culprit, told, ended.reason or "step_failed")

    def told(self, ended: ChainResult, events: tuple[Event, ...], delta: StateDelta | None = None) -> FailureContext:
        """What stands, for an error."""
        if delta is None:
            delta = self._standing_delta(ended.standing) if ended.effects else StateDelta()
        return FailureContext(
            run_id=self.run,
            effects=ended.effects,
            state_delta=self._hide(scrub_json(msgspec.to_builtins(delta))),
            events=tuple(self._hide(event_rows(events))),
            tried=any(one.call is not None and one.call.is_effect for one in ended.outcomes),
        )

    def _standing_delta(self, standing: Sequence[StepOutcome]) -> StateDelta:
        try:
            return state_delta(self.rules.after(standing, failed=True), self.domain, self._caps.max_delta_facts)
        except MangleError:
            return StateDelta()

    def _told_errors(self, errors: Sequence[SchemaError]) -> list[SchemaError]:
        """Names of members are data of the action, too."""
        found = self._hide(msgspec.to_builtins(list(errors)))
        return msgspec.convert(found, list[SchemaError])

    @property
    def _hide(self) -> Callable[[Any], Any]:
        if not self.hidden and not self.plan.secrets:
            return unchanged
        return hiding(text for text in self._secrets() if len(text) >= _LEAST_SECRET)

    def _secrets(self) -> list[str]:
        """Texts that nobody is told: settings that are credentials, and call arguments that are."""
        given = [self.args.get(name) for name in self.plan.secrets]
        return [*self.hidden, *(text for value in given for text in _texts(value))]


def _mapped(part: P, change: Callable[[Any], Any]) -> P:
    """The same part of a message, its JSON changed."""
    return msgspec.convert(change(msgspec.to_builtins(part)), type(part))


def _texts(value: Any) -> Iterator[str]:
    """The texts in a JSON value, and its numbers as texts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
