"""The typestate: six types, each made by a method of the one before it and by nothing else.

    CallSpec.open(call_spec, constraints)       -> CallSpec
    .request(rows, evidence)                    -> ToolRequests, which may ask for more: .request(rows, evidence)
    .answer(rows, evidence)                     -> ToolResults
    .use(rows, evidence)                        -> ToolUse
    .close(protocol_state, evidence)            -> JoinClosed
    .authorize(mutation, constraints)           -> MutationReady

Turns that differ in nothing but the ids of their calls may be opened of a seventh, which is no state of a turn:
``CallSpec.open(...)`` is then ``Unopened.of(call_spec, constraints).open(call_id)``.

Rows and evidence are written as in the schema: ``{"toolCallId": "c1", ...}``, ``{"guardrailDecisions": [...]}``. A step
adds evidence and has everything so far judged. If a class is active that blocks the next state or one before it,
there is no next state: the step raises :class:`Blocked` with the findings.

A type checker sees that what wants a ``MutationReady`` cannot be given less. At run time the same holds against code
that does not want to see it: instances cannot be constructed, copied, pickled, replaced or subclassed, and one that was
made behind the constructor's back (``object.__new__``) is not in the registry of issued instances, which every consumer
asks. A ``MutationReady`` is spent by :func:`redeem`, once; or, if it is the right to an effect, by :func:`redeem_call`,
once for each call that it names.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn, Self, TypeAlias, TypeVar, final
from weakref import ref

import msgspec

from manglecp.harness.classes import State
from manglecp.harness.findings import Finding
from manglecp.harness.forms import Form
from manglecp.harness.growing import Growing
from manglecp.harness.judging import Judgement, conclude, findings_upto
from manglecp.harness.recognising import Course
from manglecp.harness.rows import NamedCall

__all__ = [
    "Blocked",
    "CallSpec",
    "Forged",
    "JoinClosed",
    "MutationReady",
    "ToolRequests",
    "ToolResults",
    "ToolUse",
    "Unopened",
    "WrongMutation",
    "joined",
    "redeem",
    "redeem_call",
]

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row]
_T = TypeVar("_T", bound="_Stage")
_NOTHING: Final[Row] = MappingProxyType({})
_CLOSING: Final = 3
"""Members of evidence that every turn is closed with."""


class Blocked(Exception):
    """The evidence does not carry the turn into the next state."""

    def __init__(self, state: State, findings: Sequence[Finding]) -> None:
        classes = ", ".join(sorted({finding.failure.name for finding in findings}))
        super().__init__(f"{state.title} cannot be reached: {classes}")
        self.state = state
        self.findings = tuple(findings)


class Forged(TypeError):
    """A state that no transition made, or one that was used already."""


class WrongMutation(ValueError):
    """A mutation other than the one that was authorised."""


class _Issued(msgspec.Struct, frozen=True):
    """What a transition issued: which state it was, the turn so far and, where there is one, the judgement."""

    kind: type[_Stage]
    course: Course
    judgement: Judgement | None
    redeemed: set[str]
    """The calls that were redeemed. All states of a turn share it, so that no two of them permit the same call."""


class _Registry:
    """The instances that transitions issued, with all that they stand for.

    Private: to be in it is what it means to be a state. An instance itself holds nothing that could be tampered with.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._issued: dict[ref[_Stage], _Issued] = {}
        """An instance that is gone takes along what it stood for."""

    def issue(self, stage: _Stage, issued: _Issued) -> None:
        self._issued[ref(stage, self._issued.pop)] = issued

    def find(self, stage: object, kind: type[_Stage]) -> _Issued:
        issued = self._issued.get(ref(stage)) if type(stage) is kind else None
        if issued is None or issued.kind is not kind:
            raise Forged(f"this is no {kind.__name__} that a turn has reached")
        return issued

    def spend(self, stage: _Stage, kind: type[_Stage]) -> None:
        with self._lock:
            self.find(stage, kind)
            del self._issued[ref(stage)]

    def redeem(self, stage: _Stage, kind: type[_Stage], call_id: str) -> None:
        with self._lock:
            redeemed = self.find(stage, kind).redeemed
            if call_id in redeemed:
                raise Forged(f"the call {call_id} was redeemed already")
            redeemed.add(call_id)


_registry: Final = _Registry()


class _Stage:
    """What the six types share: evidence that nobody can change, and no way to make one by hand."""

    __slots__ = ("__weakref__",)

    def __new__(cls, *_: object, **__: object) -> Self:
        raise Forged(f"{cls.__name__} is made by the step before it, never by hand")

    def __init_subclass__(cls) -> None:
        if cls.__module__ != __name__:
            raise TypeError(f"{cls.__mro__[1].__name__} cannot be subclassed")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} can be neither copied nor pickled")

    def __copy__(self) -> NoReturn:
        self.__reduce_ex__(4)

    def __deepcopy__(self, _: object) -> NoReturn:
        self.__reduce_ex__(4)

    def __replace__(self, **_: object) -> NoReturn:
        self.__reduce_ex__(4)

    @property
    def document(self) -> dict[str, Any]:
        """The evidence so far, in the shape that :func:`.judging.judge` takes; a copy."""
        return _registry.find(self, type(self)).course.growing.document

    def _reach(self, kind: type[_T], state: State, evidence: Row) -> _T:
        """The next state with more evidence, unless something blocks it."""
        issued = _registry.find(self, type(self))
        return _reach(kind, state, Course(issued.course.growing.grown(evidence)), issued.redeemed)


def _issue(kind: type[_T], course: Course, redeemed: set[str], judgement: Judgement | None = None) -> _T:
    """The only constructor."""
    stage = object.__new__(kind)
    _registry.issue(stage, _Issued(kind, course, judgement, redeemed))
    return stage


def _reach(kind: type[_T], state: State, course: Course, redeemed: set[str]) -> _T:
    found = findings_upto(course.growing.turn, state)
    if found:
        raise Blocked(state, found)
    return _issue(kind, course, redeemed)


def _request(issued: _Issued, rows: Rows, evidence: Row, of_json: bool) -> ToolRequests:
    course = issued.course.grown("request", {**evidence, "toolRequests": list(rows)}, of_json=of_json)
    if not course.recognised:
        new = course.growing.turn
        if issued.kind is ToolRequests:  # nothing was found in that state: there would be none
            new = course.growing.since(issued.course.growing)
        found = findings_upto(new, State.TOOL_REQUESTS)
        if found:
            raise Blocked(State.TOOL_REQUESTS, found)
        course.learn()
    return _issue(ToolRequests, course, issued.redeemed)


def joined(results: Rows, uses: Rows, protocol_state: Row, found: Row = _NOTHING, shown: Row = _NOTHING) -> Row:
    """All that a turn is closed with, as one: what :meth:`ToolRequests.closed` takes the form of."""
    rows = {"toolResults": list(results), "toolUse": list(uses), "protocolState": dict(protocol_state)}
    return {**found, **shown, **rows}


def _requested(issued: _Issued, form: Form, said: bytes) -> ToolRequests | None:
    course = issued.course.said("request", form, said)
    return None if course is None else _issue(ToolRequests, course, issued.redeemed)


def _judged(stage: _Stage, kind: type[_Stage]) -> Judgement:
    judgement = _registry.find(stage, kind).judgement
    assert judgement is not None  # these two are issued with one
    return judgement


@final
class Unopened(_Stage):
    """What turns have in common that differ in nothing but the ids of their calls: read and judged once for all."""

    __slots__ = ()

    @staticmethod
    def of(call_spec: Row, constraints: Row = _NOTHING) -> Unopened:
        """:class:`Blocked` if no such turn can be opened. The id in ``call_spec`` is that of any of them."""
        return _reach(Unopened, State.CALL_SPEC, Course.of_many(Growing.opened(call_spec, constraints)), set())

    def open(self, call_id: str) -> CallSpec:
        """One of these turns. No check looks at the id of a call: what holds for one of them holds for all."""
        return _issue(CallSpec, _registry.find(self, Unopened).course.called(call_id), set())


@final
class CallSpec(_Stage):
    """A turn that is about to happen: under which policies, by which model, in which mode."""

    __slots__ = ()

    @staticmethod
    def open(call_spec: Row, constraints: Row = _NOTHING) -> CallSpec:
        """``constraints`` are the objects beside ``evidence``: ``toolConstraints``, ``policyDocuments`` and so on."""
        return _reach(CallSpec, State.CALL_SPEC, Course(Growing.opened(call_spec, constraints)), set())

    def request(self, rows: Rows = (), evidence: Row = _NOTHING, *, of_json: bool = False) -> ToolRequests:
        """What the model asked for, with the guardrail decisions before it runs.

        ``of_json``: whoever says it has made all of it of JSON values, and of nothing that only looks like one.
        """
        return _request(_registry.find(self, CallSpec), rows, evidence, of_json)

    def requested(self, form: Form, said: bytes) -> ToolRequests | None:
        """The same with the evidence that a form makes of words; None if it is not recognised and has to be made."""
        return _requested(_registry.find(self, CallSpec), form, said)


@final
class ToolRequests(_Stage):
    """Requests that may run."""

    __slots__ = ()

    def request(self, rows: Rows = (), evidence: Row = _NOTHING, *, of_json: bool = False) -> ToolRequests:
        """Further requests, which may follow from results so far; those may be among the evidence."""
        return _request(_registry.find(self, ToolRequests), rows, evidence, of_json)

    def requested(self, form: Form, said: bytes) -> ToolRequests | None:
        """The same with the evidence that a form makes of words; None if it is not recognised and has to be made."""
        return _requested(_registry.find(self, ToolRequests), form, said)

    def permits(self, call_id: str, tool_name: str, input_digest: str) -> bool:
        """Whether a request of this state is this call, and it was not redeemed in this turn (:func:`redeem_call`)."""
        return _permits(self, ToolRequests, NamedCall(call_id, tool_name, input_digest))

    def close(
        self,
        results: Rows,
        uses: Rows,
        protocol_state: Row,
        found: Row = _NOTHING,
        shown: Row = _NOTHING,
        *,
        of_json: bool = False,
    ) -> JoinClosed:
        """The three steps to a closed join at once, for whoever has the evidence for all of them: judged as a whole.

        ``found`` is evidence that belongs to the results, ``shown`` to the end. What is blocked is told by the steps
        one by one, so that it is known which of them.
        """
        issued = _registry.find(self, ToolRequests)
        more = joined(results, uses, protocol_state, found, shown)
        if len(more) < len(found) + len(shown) + _CLOSING:  # rows of one kind would take the place of others
            return self.answer(results, found).use(uses).close(protocol_state, shown)
        course = issued.course.grown("close", more, of_json=of_json)
        if course.recognised:
            return _issue(JoinClosed, course, issued.redeemed, course.judgement)
        judgement = conclude(course.growing.turn)
        if any(finding.failure.blocks_join for finding in judgement.findings):
            return self.answer(results, found).use(uses).close(protocol_state, shown)
        course.learn()
        return _issue(JoinClosed, course, issued.redeemed, judgement)

    def closed(self, form: Form, said: bytes) -> JoinClosed | None:
        """The same with the evidence that a form makes of words; None if it is not recognised and has to be made."""
        issued = _registry.find(self, ToolRequests)
        course = issued.course.said("close", form, said)
        return None if course is None else _issue(JoinClosed, course, issued.redeemed, course.judgement)

    def answer(self, rows: Rows = (), evidence: Row = _NOTHING) -> ToolResults:
        """What came back, with artifacts, accesses and further guardrail decisions."""
        return self._reach(ToolResults, State.TOOL_RESULTS, {**evidence, "toolResults": list(rows)})


@final
class ToolResults(_Stage):
    """Results of admissible calls within their boundaries."""

    __slots__ = ()

    def use(self, rows: Rows = (), evidence: Row = _NOTHING) -> ToolUse:
        """What became of each result."""
        return self._reach(ToolUse, State.TOOL_USE, {**evidence, "toolUse": list(rows)})


@final
class ToolUse(_Stage):
    """Results that are accounted for."""

    __slots__ = ()

    def close(self, protocol_state: Row, evidence: Row = _NOTHING) -> JoinClosed:
        """How the turn ended, and what the model was shown: renders, queues, views, handoff, continuity."""
        issued = _registry.find(self, ToolUse)
        turn = issued.course.growing.grown({**evidence, "protocolState": dict(protocol_state)})
        judgement = conclude(turn.turn)
        blocking = [finding for finding in judgement.findings if finding.failure.blocks_join]
        if blocking:
            raise Blocked(State.JOIN_CLOSED, blocking)
        return _issue(JoinClosed, Course(turn), issued.redeemed, judgement)


@final
class JoinClosed(_Stage):
    """A turn whose requests, results and uses match, under its policies."""

    __slots__ = ()

    @property
    def judgement(self) -> Judgement:
        """The one that closed the turn. Findings in it, if any, forbid only a mutation."""
        return _judged(self, JoinClosed)

    def authorize(self, mutation: Row | None = None, constraints: Row = _NOTHING) -> MutationReady:
        """The right to carry out one mutation: the given one, or the one that the evidence already holds.

        One turn authorises one mutation, so this state is spent by it.
        ``constraints`` are those that only who judges the mutation knows, above all ``mutationConstraints`` with the
        active policy digest. They are added to those of the turn and cannot take any of them back.
        """
        issued = _registry.find(self, JoinClosed)
        turn = issued.course.growing.grown({"mutation": None if mutation is None else dict(mutation)})
        demanded = dict(constraints)
        for name, given in constraints.items():
            stated = turn.beside(name)
            if stated is None:
                continue
            if name != "mutationConstraints":
                raise ValueError(f"{name} is part of the turn and cannot be replaced")
            demanded[name] = _stricter(stated, given)
        if demanded:
            turn = turn.under(demanded)
        judgement = conclude(turn.turn)
        if judgement.findings or not judgement.mutation_ready:
            raise Blocked(State.MUTATION_READY, judgement.findings)
        _registry.spend(self, JoinClosed)  # one turn, one mutation
        return _issue(MutationReady, Course(turn), issued.redeemed, judgement)


@final
class MutationReady(_Stage):
    """The right to carry out one mutation, once."""

    __slots__ = ()

    @property
    def judgement(self) -> Judgement:
        """The one that authorised the mutation. It has no findings."""
        return _judged(self, MutationReady)

    @property
    def intent(self) -> dict[str, Any]:
        """The mutation that was authorised."""
        found: dict[str, Any] = self.document["evidence"]["mutation"]
        return found

    def permits(self, call_id: str, tool_name: str, input_digest: str) -> bool:
        """Whether the mutation is an effect that names this call, and it was not redeemed (:func:`redeem_call`)."""
        return _permits(self, MutationReady, NamedCall(call_id, tool_name, input_digest))


def _stricter(turn: Row, judge: Row) -> Row:
    """What both demand of a mutation; which policy is active, only who judges it knows."""
    claims = [rows["requiredCapabilityClaims"] for rows in (turn, judge) if rows.get("requiredCapabilityClaims")]
    both = {"requiredCapabilityClaims": [claim for some in claims for claim in some]} if claims else {}
    return {**turn, **judge, **both}


def redeem(ready: MutationReady, kind: str, action: str) -> Judgement:
    """Spend the right for a mutation of this kind and action; the judgement it rests on.

    Whoever carries out mutations calls this first. It is refused for a forged right, a second time, and for any other
    mutation than the one that was authorised; a refused one is not spent.
    """
    judgement = _judged(ready, MutationReady)
    intent = judgement.turn.evidence.mutation
    assert intent is not None  # there is no MutationReady without one
    if (intent.kind, intent.action) != (kind, action):
        raise WrongMutation(f"authorised is {intent.kind} {intent.action}, not {kind} {action}")
    _registry.spend(ready, MutationReady)
    return judgement


def redeem_call(authority: MutationReady | ToolRequests, *, call_id: str, tool_name: str, input_digest: str) -> None:
    """Spend the right to one call: this tool, with input bytes of this digest, under this id.

    A ``MutationReady`` of the kind ``effect`` is the right to each call that its mutation names; ``ToolRequests`` to
    each of their requests, for whoever runs what has no effects. Whoever runs a call does this first. It is refused
    for a forged state, a second time in the same turn, and for any other call; nothing is spent then.
    """
    call = NamedCall(call_id, tool_name, input_digest)
    kind = ToolRequests if isinstance(authority, ToolRequests) else MutationReady
    if not _is_named(_registry.find(authority, kind), call):
        raise WrongMutation(f"nothing authorises {tool_name} under the id {call_id} with this input")
    _registry.redeem(authority, kind, call_id)


def _permits(authority: MutationReady | ToolRequests, kind: type[_Stage], call: NamedCall) -> bool:
    issued = _registry.find(authority, kind)
    return call.tool_call_id not in issued.redeemed and _is_named(issued, call)


def _is_named(issued: _Issued, call: NamedCall) -> bool:
    course = issued.course
    if issued.kind is ToolRequests:
        return course.requests(call)
    intent = course.growing.evidence.mutation
    return intent is not None and intent.kind == "effect" and call in intent.calls
