"""Results of intents and invocations, with assertions that explain their failures.

An assertion raises ``AssertionError`` with the reasons for or against a tool, as the pack's owner may see them, and
returns what it found: ``answer.offers("x")`` alone is enough.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from manglecp.base.suggestions import did_you_mean
from manglecp.base.text import escape_invisible
from manglecp.intent import Definition, Flaw, Resource
from manglecp.mangle import instant_text
from manglecp.testing.stage import ActionCall
from manglecp.wire import WireError, derivation_lines, error_lines, fact_text, read_instant, why_not_lines
from manglecp.wire.messages import (
    UNSET,
    Derivation,
    Event,
    IntentRequest,
    IntentResult,
    InvokeResult,
    Level,
    ProofTree,
    StateDelta,
    SuggestedIntent,
    WhyNot,
)

if TYPE_CHECKING:
    from manglecp.testing.pack import Pack


class Refused(AssertionError):
    """The response is an error. To expect it, write ``with pytest.raises(Refused, match="intent_denied")``."""

    def __init__(self, error: WireError, more: Iterable[str] = ()) -> None:
        self.code = error.code
        self.message = error.message
        self.details: Mapping[str, Any] = error.details or {}
        lines = [*error_lines(error.code, error.message, error.details)]
        lines += [f"  {one['path'] or '/'}: {one['message']}" for one in self.details.get("schema_errors", ())]
        super().__init__(join_lines([*lines, *more]))


def join_lines(lines: Iterable[str]) -> str:
    """Join lines, with invisible characters escaped: facts and results may hold any text."""
    return "\n".join(escape_invisible(part) for line in lines for part in line.split("\n"))


Fact: TypeAlias = str | Mapping[str, Any]
"""Mangle text, such as ``'p("a", 1)@[now]'``, or a JSON object: ``{"pred": "p", "args": ["a", 1]}``."""
FactObject: TypeAlias = Mapping[str, Any]
Now: TypeAlias = str | datetime | None
"""RFC 3339, a datetime with a time zone, or None for the clock."""


def instant(now: Now) -> int:
    """Return nanoseconds since 1970. Raises ``ValueError``."""
    if now is None:
        return time.time_ns() // 1_000_000 * 1_000_000
    if isinstance(now, datetime):
        if now.tzinfo is None:
            raise ValueError("a time of a test has a zone: datetime(…, tzinfo=UTC)")
        now = now.isoformat()
    return read_instant(now)


@dataclass(frozen=True, slots=True)
class Delta:
    """The facts that a client should add and drop. ``...`` in place of an argument stands for any value."""

    asserted: tuple[FactObject, ...]
    retracted: tuple[FactObject, ...]

    def asserts(self, predicate: str, *args: Any) -> FactObject:
        """Return the first such fact that is added; without arguments, the first of the predicate."""
        __tracebackhide__ = True
        return self._first("asserts", self.asserted, predicate, args)

    def retracts(self, predicate: str, *args: Any) -> FactObject:
        """Return the first such fact that is removed. ``None`` is the protocol's wildcard for any value."""
        __tracebackhide__ = True
        return self._first("retracts", self.retracted, predicate, args)

    def _first(self, what: str, facts: Iterable[FactObject], predicate: str, args: tuple[Any, ...]) -> FactObject:
        __tracebackhide__ = True
        for fact in facts:
            if fact["pred"] == predicate and (not args or _matches(args, fact["args"])):
                return fact
        wanted = f"{predicate}({', '.join('…' if arg is ... else repr(arg) for arg in args) if args else '…'})"
        raise AssertionError(join_lines([f"the run {what} no {wanted}", *self._lines()]))

    def is_empty(self) -> bool:
        """Assert that the run changes no facts."""
        __tracebackhide__ = True
        if self.asserted or self.retracted:
            raise AssertionError(join_lines(["the run changes something", *self._lines()]))
        return True

    def _lines(self) -> list[str]:
        lines = [f"  + {fact_text(fact)}" for fact in self.asserted]
        return [*lines, *(f"  - {fact_text(fact)}" for fact in self.retracted)] or ["  it changes nothing"]

    def __str__(self) -> str:
        return join_lines(self._lines())


@dataclass(frozen=True, slots=True)
class Run:
    """The result of :meth:`manglecp.testing.Answer.invoke`. ``calls`` are the actions that were called."""

    pack: Pack = field(repr=False)
    tool: str
    answer: InvokeResult
    calls: tuple[ActionCall, ...] = ()
    now: int = 0

    @property
    def result(self) -> Mapping[str, Any]:
        return self.answer.result

    @property
    def delta(self) -> Delta:
        delta: StateDelta = self.answer.state_delta
        return Delta(delta.asserts, delta.retract)

    @property
    def summary(self) -> str:
        return self.answer.observability.summary

    @property
    def events(self) -> tuple[Event, ...]:
        return self.answer.observability.events

    @property
    def continuation_facts(self) -> tuple[FactObject, ...]:
        return self.answer.next.continuation_facts

    def suggests(self, intent: str, **params: Any) -> SuggestedIntent:
        """Return the suggested intent with these parameters among its own."""
        __tracebackhide__ = True
        for one in self.answer.next.suggested_intents:
            own = {} if one.params is UNSET else one.params
            if one.name == intent and all(name in own and own[name] == params[name] for name in params):
                return one
        wanted = f"{intent} with {params}" if params else intent
        others = [
            f"  {one.name} {'' if one.params is UNSET else one.params}" for one in self.answer.next.suggested_intents
        ]
        raise AssertionError(join_lines([f"{self.tool} suggests no {wanted}", *(others or ["  it suggests nothing"])]))

    def follow(self, intent: str, *, facts: Iterable[Fact] = (), now: Now = None) -> Answer:
        """Evaluate a suggested intent, with the continuation facts and these."""
        __tracebackhide__ = True
        suggested = self.suggests(intent)
        params = None if suggested.params is UNSET else suggested.params
        at = instant_text(self.now) if now is None else now
        return self.pack.intent(intent, facts=[*self.continuation_facts, *facts], params=params, now=at)


def _matches(wanted: tuple[Any, ...], args: Iterable[Any]) -> bool:
    actual = list(args)
    return len(wanted) == len(actual) and all(a is ... or a == b for a, b in zip(wanted, actual, strict=True))


@dataclass(frozen=True, slots=True, repr=False)
class OfferedTool:
    """A tool as the rules prove it; ``level`` is how much of it the client is shown."""

    definition: Definition
    level: Level
    name: str
    description: str
    score: int
    """From 0 to 100."""
    phase: str
    """``skeleton`` (mandatory), ``flesh`` (relevant) or ``dependency``."""
    effects: tuple[str, ...]
    needs_confirmation: bool
    reversible: bool
    args: Mapping[str, Any]
    required: tuple[str, ...]
    steps: tuple[str, ...]
    skills: tuple[str, ...]
    resources: tuple[Resource, ...]
    instructions: str
    expires_at: str | None

    @classmethod
    def of(cls, definition: Definition, level: Level) -> OfferedTool:
        safety = definition.safety
        return cls(
            definition,
            level,
            definition.tool,
            definition.description,
            definition.score,
            definition.phase,
            effects=safety.side_effects,
            needs_confirmation=safety.requires_user_confirmation,
            reversible=safety.reversible,
            args=definition.input_schema.get("properties", {}),
            required=tuple(definition.input_schema.get("required", ())),
            steps=tuple(step.action for step in definition.steps),
            skills=definition.skills,
            resources=definition.resources,
            instructions=definition.instructions,
            expires_at=None if definition.expires_at is None else instant_text(definition.expires_at),
        )

    def __repr__(self) -> str:
        return f"<tool {self.name}, {self.level}, {self.score}>"


@dataclass(frozen=True, slots=True)
class Proof:
    """The derivation of a tool. Its text is what ``manglecp intent --why`` prints."""

    tool: str
    derivation: Derivation

    @property
    def rules(self) -> tuple[str, ...]:
        """The predicates of the derivation, from the tool down."""
        return self.derivation.rule_chain

    @property
    def facts(self) -> tuple[str, ...]:
        return tuple(map(fact_text, self.derivation.supporting_facts))

    @property
    def tree(self) -> ProofTree | None:
        """The proof as a tree; None where it is not disclosed."""
        return None if self.derivation.tree is UNSET else self.derivation.tree

    def uses(self, fact: str) -> bool:
        """Assert that a fact with this text, or of this predicate, is part of the proof."""
        __tracebackhide__ = True
        if fact in self.rules or any(fact == one or one.startswith(f"{fact}(") for one in self.facts):
            return True
        raise AssertionError(f"the proof does not use {fact}\n{self}")

    def __str__(self) -> str:
        return join_lines(derivation_lines(self.tool, self.derivation))


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of :meth:`manglecp.testing.Pack.intent`. ``flaws`` are invalid definitions of proven tools."""

    pack: Pack = field(repr=False)
    request: IntentRequest = field(repr=False)
    now: int
    result: IntentResult = field(repr=False)
    definitions: tuple[Definition, ...] = field(repr=False)
    flaws: tuple[Flaw, ...] = field(default=(), repr=False)

    @property
    def intent(self) -> str:
        return self.request.payload.intent.name

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        levels = {one.macro_id: one.disclosure_level for one in self.result.macro_tools}
        return tuple(OfferedTool.of(one, levels[one.macro_id]) for one in self.definitions)

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.tools]

    def __iter__(self) -> Iterator[OfferedTool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.definitions)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def offers(self, *names: str) -> tuple[OfferedTool, ...]:
        """Assert that all of these tools are offered; the failure shows what blocks the first that is missing."""
        __tracebackhide__ = True
        return tuple(map(self.tool, names))

    def offers_only(self, *names: str) -> tuple[OfferedTool, ...]:
        """Assert that exactly these tools are offered, in any order."""
        __tracebackhide__ = True
        tools = self.offers(*names)
        more = [name for name in self.names if name not in names]
        if more:
            reason = f"the intent {self.intent} also offers {', '.join(more)}"
            raise AssertionError(join_lines([reason, str(self.proof(more[0]))]))
        return tools

    def tool(self, name: str) -> OfferedTool:
        """Return the tool, and assert that it is offered."""
        __tracebackhide__ = True
        for tool in self.tools:
            if tool.name == name:
                return tool
        offered = ", ".join(self.names) or "nothing"
        reason = f"the intent {self.intent} does not offer {name}, but {offered}"
        raise AssertionError(join_lines([reason, *self._missing(name)]))

    def lacks(self, name: str, because: str | None = None) -> WhyNot:
        """Assert that the tool is not offered; with ``because``, that one of the reasons contains this text."""
        __tracebackhide__ = True
        if name in self:
            raise AssertionError(f"the intent {self.intent} offers {name}\n{self.proof(name)}")
        defined = self.pack.tool_names
        if defined is not None and name not in defined:
            raise AssertionError(f"no rule of the pack defines a tool {name}; {did_you_mean(name, defined)}")
        blocked = self.why_not(name)
        reasons = [*blocked.blocked_by, *self._flaws(name)]
        if because is not None and not any(because in reason for reason in reasons):
            raise AssertionError(
                join_lines([f"{name} is missing, but not because of {because!r}", *self._missing(name)])
            )
        return blocked

    def proof(self, name: str) -> Proof:
        """Return the derivation of an offered tool."""
        __tracebackhide__ = True
        tool = self.tool(name)
        hints = self.pack.explain(self, include_proof_hints=True).proof_hints
        assert hints is not UNSET
        for derivation in hints.derivations:
            if derivation.macro_id == tool.definition.macro_id:
                return Proof(name, derivation)
        raise AssertionError(f"{name} is offered only to callers without the permission explain_policy")

    def why_not(self, name: str) -> WhyNot:
        """Return what blocks the tool, and which facts would lead to it."""
        hints = self.pack.explain(self, why_not=(name,)).proof_hints
        assert hints is not UNSET
        assert hints.why_not is not UNSET
        return hints.why_not[0]

    def _missing(self, name: str) -> Iterable[str]:
        return [*self._flaws(name), *why_not_lines(self.why_not(name))]

    def _flaws(self, name: str) -> list[str]:
        return [flaw.message for flaw in self.flaws if name in flaw.message]

    def invoke(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        confirm: bool = False,
        now: Now = None,
        request_key: str | None = None,
    ) -> Run:
        """Invoke the tool. Raises :class:`manglecp.testing.Refused` if it is refused or fails.

        ``confirm`` approves where approval is needed, as an approver other than the caller, in every role; without it,
        the error has the text that the approver would read. ``now`` is the time of the invocation; the default is that
        of the proof.
        """
        __tracebackhide__ = True
        tool = self.tool(name)
        answer, calls, approval_text = self.pack.stage.invoke(
            self.request,
            self.pack.identity,
            tool.definition.macro_id,
            args or {},
            confirm=confirm,
            evaluated_at=self.now,
            now=self.now if now is None else instant(now),
            request_key=request_key,
        )
        if isinstance(answer, WireError):
            failed = (f"  {one.action}: {one.error}" for one in calls if one.error is not None)
            raise Refused(answer, [*(f"  {line}" for line in approval_text.splitlines()), *failed])
        return Run(self.pack, name, answer, calls, self.now if now is None else instant(now))
