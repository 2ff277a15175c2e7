"""What an invocation came to, for people: what happened, the result, what changed, and what to ask for next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.base.text import escape_invisible
from manglecp.cli.intent_request import value_of
from manglecp.cli.intent_text import refusal
from manglecp.wire import WireError, fact_text
from manglecp.wire.messages import UNSET, InvokeResult

__all__ = ["answer_lines", "assignment", "failure_lines", "what_to_decide"]

_WIDTH: Final = 100
_DECIDE: Final = "manglecp runs decide"


def answer_lines(answer: InvokeResult, *, bold: Callable[[str], str] = str) -> Iterator[str]:
    """Results may hold anything, so whatever is not seen is written out."""
    told = answer.observability
    yield bold(escape_invisible(told.summary or "It is done."))
    if answer.result:
        yield ""
        yield bold("result")
        for name, value in answer.result.items():
            yield from _value(name, value)
    yield from _events(msgspec.to_builtins(told.events), bold)
    yield from _delta(answer.state_delta.asserts, answer.state_delta.retract, bold)
    following = answer.next
    if following.suggested_intents or following.continuation_facts:
        yield ""
        yield bold("next")
    for intent in following.suggested_intents:
        params = {} if intent.params is UNSET else intent.params
        given = "".join(f" --param {assignment(name, value)}" for name, value in params.items())
        why = "" if intent.description is UNSET else f": {intent.description}"
        yield escape_invisible(f"  {intent.name}{given}{why}")
    for fact in following.continuation_facts:
        yield escape_invisible(f"  with {fact_text(fact)}")


def failure_lines(error: WireError, overheard: Sequence[str] = ()) -> Iterator[str]:
    """An error of an invocation: what, where, what stands, and what to do now. ``overheard`` is what hosts said."""
    yield from refusal(error)
    details: Mapping[str, Any] = error.details or {}
    for wrong in details.get("schema_errors", ()):
        yield escape_invisible(f"  {wrong['path'] or '/'}: {wrong['message']}")
    if details.get("failure_classes"):
        yield escape_invisible(f"  {', '.join(details['failure_classes'])}")
    for effect in details.get("effects", ()):
        yield escape_invisible(f"  step {effect['step']}, {effect['action']}: {_STANDING[effect['status']]}")
    for event in details.get("events", ()):
        if event["status"] == "failure" and "detail" in event:
            yield escape_invisible(f"  {event['action']}: {event['detail']}")
    yield from overheard
    delta = details.get("state_delta") or {}
    yield from _delta(delta.get("assert", ()), delta.get("retract", ()), str)
    run = details.get("run_id")
    if run is not None:
        yield f"  run {run}"
        if details.get("reason") == "needs_decision":
            doubted = {one["step"] for one in details.get("effects", ()) if one["status"] == "unknown"}
            yield from what_to_decide(run, next(iter(sorted(doubted)), None))


_STANDING: Final = {"done": "it happened", "undone": "it happened and was undone", "unknown": "it may have happened"}


def what_to_decide(run: str, step: int | None) -> Iterator[str]:
    """The commands that would help a run that waits for a person; ``step`` is the one in doubt, if one is."""
    if step is not None:
        yield f"  Find out whether step {step} happened. Then say so, with one of"
        yield f"    {_DECIDE} {run} --step {step} --happened [--output FILE]"
        yield f"    {_DECIDE} {run} --step {step} --did-not"
    else:
        yield "  Nothing is in doubt. Let it go on, or end it, with one of"
        yield f"    manglecp runs resume {run} PACK"
    yield f"    {_DECIDE} {run} --abort"


def _value(name: str, value: Any) -> Iterator[str]:
    """Short values on one line, texts as they are, anything else as JSON."""
    if isinstance(value, str) and "\n" in value:
        yield escape_invisible(f"  {name}:")
        yield from (f"    {escape_invisible(line)}" for line in value.splitlines())
        return
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= _WIDTH or isinstance(value, str):
        yield escape_invisible(f"  {name}: {text}")
        return
    yield escape_invisible(f"  {name}:")
    yield from (
        f"    {escape_invisible(line)}" for line in json.dumps(value, ensure_ascii=False, indent=2).splitlines()
    )


def _events(events: Sequence[Mapping[str, Any]], bold: Callable[[str], str]) -> Iterator[str]:
    if not events:
        return
    yield ""
    yield bold("events")
    width = max(len(event["action"]) for event in events)
    for event in events:
        took = f"{event['duration_ms']} ms" if "duration_ms" in event else ""
        said = f"  {event['detail']}" if "detail" in event else ""
        yield escape_invisible(f"  {event['status']:<7}  {event['action']:<{width}}  {took}{said}").rstrip()


def _delta(
    asserted: Sequence[Mapping[str, Any]], retracted: Sequence[Mapping[str, Any]], bold: Callable[[str], str]
) -> Iterator[str]:
    if asserted or retracted:
        yield ""
        yield bold("what changed")
    yield from (escape_invisible(f"  + {fact_text(fact)}") for fact in asserted)
    yield from (escape_invisible(f"  - {fact_text(fact)}") for fact in retracted)


def assignment(name: str, value: Any) -> str:
    """As it would be typed. A text that reads like JSON is written as JSON, or it would come back as something else."""
    plain = isinstance(value, str) and value_of(value) == value
    return shlex.quote(f"{name}={value if plain else json.dumps(value, ensure_ascii=False)}")
