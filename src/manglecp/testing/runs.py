"""What an invocation came to, and assertions about it: the result, what it changed, what to ask for next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from manglecp.mangle import instant_text
from manglecp.testing.actions import Called
from manglecp.testing.messages import Fact, Now
from manglecp.testing.refusal import explained
from manglecp.wire import fact_text
from manglecp.wire.messages import UNSET, Event, InvokeResult, StateDelta, SuggestedIntent

if TYPE_CHECKING:
    from manglecp.testing.answers import Answer
    from manglecp.testing.packs import Pack

__all__ = ["Delta", "Run"]

FactObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delta:
    """The facts that a client should add and drop. ``...`` in place of an argument stands for any value."""

    asserted: tuple[FactObject, ...]
    retracted: tuple[FactObject, ...]

    def asserts(self, predicate: str, *args: Any) -> FactObject:
        """The first such fact that is added; without arguments, the first of the predicate."""
        __tracebackhide__ = True
        return self._found("asserts", self.asserted, predicate, args)

    def retracts(self, predicate: str, *args: Any) -> FactObject:
        """The same for what is dropped. ``None`` is the wildcard of the protocol: whatever stands there is dropped."""
        __tracebackhide__ = True
        return self._found("retracts", self.retracted, predicate, args)

    def _found(self, what: str, facts: Iterable[FactObject], predicate: str, args: tuple[Any, ...]) -> FactObject:
        __tracebackhide__ = True
        for fact in facts:
            if fact["pred"] == predicate and (not args or _fit(args, fact["args"])):
                return fact
        wanted = f"{predicate}({', '.join('…' if arg is ... else repr(arg) for arg in args) if args else '…'})"
        raise AssertionError(explained([f"the run {what} no {wanted}", *self._lines()]))

    def is_empty(self) -> bool:
        """Nothing changes. Fails with what does."""
        __tracebackhide__ = True
        if self.asserted or self.retracted:
            raise AssertionError(explained(["the run changes something", *self._lines()]))
        return True

    def _lines(self) -> list[str]:
        lines = [f"  + {fact_text(fact)}" for fact in self.asserted]
        return [*lines, *(f"  - {fact_text(fact)}" for fact in self.retracted)] or ["  it changes nothing"]

    def __str__(self) -> str:
        return explained(self._lines())


@dataclass(frozen=True, slots=True)
class Run:
    """Made by :meth:`manglecp.testing.Answer.invoke`. ``calls`` are the actions that were called, and with what."""

    pack: Pack = field(repr=False)
    tool: str
    answer: InvokeResult
    calls: tuple[Called, ...] = ()
    now: int = 0

    @property
    def result(self) -> Mapping[str, Any]:
        """What the tool returned."""
        return self.answer.result

    @property
    def delta(self) -> Delta:
        """The facts that came and went."""
        delta: StateDelta = self.answer.state_delta
        return Delta(delta.asserts, delta.retract)

    @property
    def summary(self) -> str:
        """The sentence that says what happened."""
        return self.answer.observability.summary

    @property
    def events(self) -> tuple[Event, ...]:
        """How each step ended."""
        return self.answer.observability.events

    @property
    def continuation_facts(self) -> tuple[FactObject, ...]:
        """What a client should send along with the next intent."""
        return self.answer.next.continuation_facts

    def suggests(self, intent: str, **params: Any) -> SuggestedIntent:
        """The suggested intent, which has to have these parameters among its own."""
        __tracebackhide__ = True
        for one in self.answer.next.suggested_intents:
            given = {} if one.params is UNSET else one.params
            if one.name == intent and all(name in given and given[name] == params[name] for name in params):
                return one
        wanted = f"{intent} with {params}" if params else intent
        found = [
            f"  {one.name} {'' if one.params is UNSET else one.params}" for one in self.answer.next.suggested_intents
        ]
        raise AssertionError(explained([f"{self.tool} suggests no {wanted}", *(found or ["  it suggests nothing"])]))

    def follow(self, intent: str, *, facts: Iterable[Fact] = (), now: Now = None) -> Answer:
        """Ask for a suggested intent, with the continuation facts and these."""
        __tracebackhide__ = True
        suggested = self.suggests(intent)
        params = None if suggested.params is UNSET else suggested.params
        at = instant_text(self.now) if now is None else now
        return self.pack.intent(intent, facts=[*self.continuation_facts, *facts], params=params, now=at)


def _fit(wanted: tuple[Any, ...], args: Iterable[Any]) -> bool:
    given = list(args)
    return len(wanted) == len(given) and all(a is ... or a == b for a, b in zip(wanted, given, strict=True))
