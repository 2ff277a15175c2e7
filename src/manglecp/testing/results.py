"""Results of intents and invocations, with assertions that explain their failures.

An assertion is a method, such as ``answer.offers("x")``, that returns the found tool, fact or reason. A failed
assertion raises ``AssertionError`` with the proof or why-not of the tool, including what a client would see only with
the permission ``explain_policy``.
Times of the type ``int`` are nanoseconds since 1970.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from manglecp.base.suggestions import did_you_mean
from manglecp.base.text import escape_invisible
from manglecp.intent import Definition, Flaw, Resource
from manglecp.mangle import instant_text
from manglecp.testing.sync_invoker import ActionCall
from manglecp.wire import WireError, derivation_lines, error_lines, fact_text, messages, read_instant, why_not_lines

if TYPE_CHECKING:
    from manglecp.testing.pack import Pack


__tracebackhide__ = True  # pytest shows a failure at the line of the test, not in this module


class Refused(AssertionError):
    """The response is an error. To expect it, write ``with pytest.raises(Refused, match="intent_denied")``."""

    def __init__(self, error: WireError, extra_lines: Iterable[str] = ()) -> None:
        self.code = error.code
        self.message = error.message
        self.details: Mapping[str, Any] = error.details or {}
        lines = [*error_lines(error.code, error.message, error.details)]
        lines += [f"  {item['path'] or '/'}: {item['message']}" for item in self.details.get("schema_errors", ())]
        super().__init__(join_lines([*lines, *extra_lines]))


def join_lines(lines: Iterable[str]) -> str:
    """Join lines, and escape the invisible characters in them: facts and results may contain any text."""
    return "\n".join(escape_invisible(part) for line in lines for part in line.split("\n"))


Fact: TypeAlias = str | Mapping[str, Any]
"""Mangle text, such as ``'p("a", 1)@[now]'``, or a JSON object: ``{"pred": "p", "args": ["a", 1]}``."""
FactObject: TypeAlias = Mapping[str, Any]
Now: TypeAlias = str | datetime | None
"""An RFC 3339 timestamp, a datetime with a time zone, or None for the current time."""


def instant(now: Now) -> int:
    """Return nanoseconds since 1970. Raises ``ValueError``."""
    if now is None:
        return time.time_ns() // 1_000_000 * 1_000_000  # whole milliseconds, as in messages
    if isinstance(now, datetime):
        if now.tzinfo is None:
            raise ValueError("a time of a test has a zone: datetime(…, tzinfo=UTC)")
        now = now.isoformat()
    return read_instant(now)


@dataclass(frozen=True, slots=True)
class Delta:
    """The facts that a client should add and remove after a run.

    In the assertions, the argument ``...`` matches any value. Without arguments, every fact of the predicate matches.
    """

    asserted: tuple[FactObject, ...]
    retracted: tuple[FactObject, ...]

    def asserts(self, predicate: str, *args: Any) -> FactObject:
        """Return the first added fact that matches."""
        return self._first("asserts", self.asserted, predicate, args)

    def retracts(self, predicate: str, *args: Any) -> FactObject:
        """Return the first removed fact that matches. ``None`` matches only the protocol's wildcard, null."""
        return self._first("retracts", self.retracted, predicate, args)

    def _first(self, verb: str, facts: Iterable[FactObject], predicate: str, args: tuple[Any, ...]) -> FactObject:
        for fact in facts:
            if fact["pred"] == predicate and (not args or _match(args, fact["args"])):
                return fact
        pattern = f"{predicate}({', '.join('…' if arg is ... else repr(arg) for arg in args or (...,))})"
        raise AssertionError(join_lines([f"the run {verb} no {pattern}", *self._lines()]))

    def is_empty(self) -> bool:
        """Assert that the run adds and removes no facts."""
        if self.asserted or self.retracted:
            raise AssertionError(join_lines(["the run has a delta", *self._lines()]))
        return True

    def _lines(self) -> list[str]:
        lines = [f"  + {fact_text(fact)}" for fact in self.asserted]
        return [*lines, *(f"  - {fact_text(fact)}" for fact in self.retracted)] or ["  its delta is empty"]

    def __str__(self) -> str:
        return join_lines(self._lines())


@dataclass(frozen=True, slots=True)
class Run:
    """The result of :meth:`manglecp.testing.Answer.invoke`."""

    pack: Pack = field(repr=False)
    tool: str
    answer: messages.InvokeResult
    calls: tuple[ActionCall, ...] = ()
    now: int = 0  # the time of the invocation

    @property
    def result(self) -> Mapping[str, Any]:
        return self.answer.result

    @property
    def delta(self) -> Delta:
        delta: messages.StateDelta = self.answer.state_delta
        return Delta(delta.asserts, delta.retract)

    @property
    def summary(self) -> str:
        return self.answer.observability.summary

    @property
    def events(self) -> tuple[messages.Event, ...]:
        return self.answer.observability.events

    @property
    def continuation_facts(self) -> tuple[FactObject, ...]:
        return self.answer.next.continuation_facts

    def suggests(self, intent: str, **params: Any) -> messages.SuggestedIntent:
        """Return the suggestion of this intent whose parameters include ``params``."""
        other_lines = []
        for suggested_intent in self.answer.next.suggested_intents:
            suggested_params = {} if suggested_intent.params is messages.UNSET else suggested_intent.params
            if suggested_intent.name == intent and {**suggested_params, **params} == suggested_params:
                return suggested_intent
            other_lines.append(f"  {suggested_intent.name} {suggested_params or ''}")
        expected_text = f"{intent} with {params}" if params else intent
        lines = [f"{self.tool} suggests no {expected_text}", *(other_lines or ["  it suggests no intent"])]
        raise AssertionError(join_lines(lines))

    def follow(self, intent: str, *, facts: Iterable[Fact] = (), now: Now = None) -> Answer:
        """Evaluate a suggested intent with the continuation facts and ``facts``, by default at the time of the run."""
        suggested_intent = self.suggests(intent)
        params = None if suggested_intent.params is messages.UNSET else suggested_intent.params
        now = instant_text(self.now) if now is None else now
        return self.pack.intent(intent, facts=[*self.continuation_facts, *facts], params=params, now=now)


def _match(patterns: tuple[Any, ...], args: Sequence[Any]) -> bool:
    if len(patterns) != len(args):
        return False
    return all(pattern is ... or pattern == arg for pattern, arg in zip(patterns, args, strict=True))


@dataclass(frozen=True, slots=True, repr=False)
class OfferedTool:
    """A proven tool with its full definition, whatever its detail level for the client."""

    definition: Definition
    level: messages.Level  # the detail level for the client
    name: str
    description: str
    score: int  # from 0 to 100
    phase: str  # skeleton (mandatory), flesh (relevant) or dependency
    effects: tuple[str, ...]
    needs_confirmation: bool
    reversible: bool
    args: Mapping[str, Any]  # the schemas of the arguments, by name
    required: tuple[str, ...]  # the names of the required arguments
    steps: tuple[str, ...]  # names of actions
    skills: tuple[str, ...]
    resources: tuple[Resource, ...]
    instructions: str
    expires_at: str | None

    @classmethod
    def of(cls, definition: Definition, level: messages.Level) -> OfferedTool:
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
    derivation: messages.Derivation

    @property
    def rules(self) -> tuple[str, ...]:
        """The derived predicates on the chain from the tool down to the facts: ``rule_chain`` of the protocol."""
        return self.derivation.rule_chain

    @property
    def facts(self) -> tuple[str, ...]:
        return tuple(map(fact_text, self.derivation.supporting_facts))

    @property
    def tree(self) -> messages.ProofTree | None:
        """The proof as a tree; None where it is not disclosed."""
        return None if self.derivation.tree is messages.UNSET else self.derivation.tree

    def uses(self, fact: str) -> bool:
        """Assert that a fact with this text, or a fact or rule of this predicate, is part of the proof."""
        if fact in self.rules or any(fact == text or text.startswith(f"{fact}(") for text in self.facts):
            return True
        raise AssertionError(f"the proof does not use {fact}\n{self}")

    def __str__(self) -> str:
        return join_lines(derivation_lines(self.tool, self.derivation))


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of :meth:`manglecp.testing.Pack.intent`.

    ``now`` is the evaluation time; ``flaws`` describe proven tools that are not offered: their definitions are invalid.
    """

    pack: Pack = field(repr=False)
    request: messages.IntentRequest = field(repr=False)
    now: int
    result: messages.IntentResult = field(repr=False)
    definitions: tuple[Definition, ...] = field(repr=False)
    flaws: tuple[Flaw, ...] = field(default=(), repr=False)

    @property
    def intent(self) -> str:
        return self.request.payload.intent.name

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        levels = {tool.macro_id: tool.disclosure_level for tool in self.result.macro_tools}
        return tuple(OfferedTool.of(definition, levels[definition.macro_id]) for definition in self.definitions)

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
        """Assert that all of these tools are offered; the failure shows what blocks the first missing tool."""
        return tuple(map(self.tool, names))

    def offers_only(self, *names: str) -> tuple[OfferedTool, ...]:
        """Assert that exactly these tools are offered, in any order."""
        tools = self.offers(*names)
        extra_names = [name for name in self.names if name not in names]
        if extra_names:
            reason = f"the intent {self.intent} also offers {', '.join(extra_names)}"
            raise AssertionError(join_lines([reason, str(self.proof(extra_names[0]))]))
        return tools

    def tool(self, name: str) -> OfferedTool:
        """Assert that the tool is offered, and return it."""
        for tool in self.tools:
            if tool.name == name:
                return tool
        offers = ", ".join(self.names) or "nothing"
        reason = f"the intent {self.intent} does not offer {name}, but {offers}"
        raise AssertionError(join_lines([reason, *self._why_not_lines(name)]))

    def lacks(self, name: str, because: str | None = None) -> messages.WhyNot:
        """Assert that the tool is not offered; with ``because``, also that one of the reasons contains this text."""
        if name in self:
            raise AssertionError(f"the intent {self.intent} offers {name}\n{self.proof(name)}")
        tool_names = self.pack.tool_names
        if tool_names is not None and name not in tool_names:
            raise AssertionError(f"no rule of the pack defines a tool {name}; {did_you_mean(name, tool_names)}")
        why_not = self.why_not(name)
        reasons = [*why_not.blocked_by, *self._flaw_messages(name)]
        if because is not None and not any(because in reason for reason in reasons):
            lines = [f"{name} is missing, but not because of {because!r}", *self._why_not_lines(name)]
            raise AssertionError(join_lines(lines))
        return why_not

    def proof(self, name: str) -> Proof:
        """Return the derivation of an offered tool."""
        tool = self.tool(name)
        hints = self.pack.explain(self, include_proof_hints=True).proof_hints
        assert hints is not messages.UNSET
        for derivation in hints.derivations:
            if derivation.macro_id == tool.definition.macro_id:
                return Proof(name, derivation)
        raise AssertionError(
            f"{name} is offered to this caller, but would not be with the additional permission explain_policy"
        )

    def why_not(self, name: str) -> messages.WhyNot:
        """Return what blocks the tool, and which facts would unlock it."""
        hints = self.pack.explain(self, why_not=(name,)).proof_hints
        assert hints is not messages.UNSET
        assert hints.why_not is not messages.UNSET
        return hints.why_not[0]

    def _why_not_lines(self, name: str) -> Iterable[str]:
        return [*self._flaw_messages(name), *why_not_lines(self.why_not(name))]

    def _flaw_messages(self, name: str) -> list[str]:
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
        """Invoke an offered tool. Raises :class:`manglecp.testing.Refused` if the call is refused or fails.

        If the call needs approval, ``confirm`` approves it in the name of another person, who has every approver role;
        without ``confirm`` it is refused, with the text that an approver would read. ``now`` is the time of the
        invocation, by default the evaluation time. ``request_key`` is the idempotency key.
        """
        tool = self.tool(name)
        invoked_at = self.now if now is None else instant(now)
        answer, calls, approval_text = self.pack.invoker.invoke(
            self.request,
            self.pack.identity,
            tool.definition.macro_id,
            args or {},
            confirm=confirm,
            evaluated_at=self.now,
            invoked_at=invoked_at,
            request_key=request_key,
        )
        if isinstance(answer, WireError):
            failures = (f"  {call.action}: {call.error}" for call in calls if call.error is not None)
            raise Refused(answer, [*(f"  {line}" for line in approval_text.splitlines()), *failures])
        return Run(self.pack, name, answer, calls, invoked_at)
