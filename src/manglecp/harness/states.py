"""The typestate: six types, each made by a method of the one before it and by nothing else.

    CallSpec.open(call_spec, constraints)       -> CallSpec
    .request(rows, evidence)                    -> ToolRequests
    .answer(rows, evidence)                     -> ToolResults
    .use(rows, evidence)                        -> ToolUse
    .close(protocol_state, evidence)            -> JoinClosed
    .authorize(mutation, constraints)           -> MutationReady

Rows and evidence are written as in the schema: ``{"toolCallId": "c1", ...}``, ``{"guardrailDecisions": [...]}``. A step
adds evidence and has everything so far judged. If a class is active that blocks the next state or one before it,
there is no next state: the step raises :class:`Blocked` with the findings.

A type checker sees that what wants a ``MutationReady`` cannot be given less. At run time the same holds against code
that does not want to see it: instances cannot be constructed, copied, pickled, replaced or subclassed, and one that was
made behind the constructor's back (``object.__new__``) is not in the registry of issued instances, which every consumer
asks. A ``MutationReady`` is spent by :func:`redeem`, once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn, Self, TypeAlias, TypeVar, final

import msgspec

from manglecp.harness.classes import State
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.findings import Finding
from manglecp.harness.judging import Judgement, judge, open_findings

__all__ = [
    "Blocked",
    "CallSpec",
    "Forged",
    "JoinClosed",
    "MutationReady",
    "ToolRequests",
    "ToolResults",
    "ToolUse",
    "WrongMutation",
    "redeem",
]

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row]
_T = TypeVar("_T", bound="_Stage")
_NOTHING: Final[Row] = MappingProxyType({})


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


class _Issued(NamedTuple):
    """What a transition issued: which state it was, the evidence and, where there is one, the judgement."""

    kind: type[_Stage]
    document: bytes
    judgement: Judgement | None


class _Registry:
    """The instances that transitions issued, with all that they stand for.

    Private: to be in it is what it means to be a state. An instance itself holds nothing that could be tampered with.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._issued: weakref.WeakKeyDictionary[_Stage, _Issued] = weakref.WeakKeyDictionary()

    def issue(self, stage: _Stage, issued: _Issued) -> None:
        with self._lock:
            self._issued[stage] = issued

    def find(self, stage: object, kind: type[_Stage]) -> _Issued:
        issued = self._issued.get(stage) if isinstance(stage, _Stage) else None
        if issued is None or issued.kind is not kind or type(stage) is not kind:
            raise Forged(f"this is no {kind.__name__} that a turn has reached")
        return issued

    def spend(self, stage: _Stage, kind: type[_Stage]) -> None:
        with self._lock:
            self.find(stage, kind)
            del self._issued[stage]


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
        found: dict[str, Any] = msgspec.json.decode(_registry.find(self, type(self)).document)
        return found

    def _with(self, evidence: Mapping[str, object]) -> dict[str, Any]:
        """The document with more rows."""
        document = self.document
        known: dict[str, Any] = document["evidence"]
        for name, value in evidence.items():
            if value is None:
                continue
            if name in known and isinstance(value, Sequence) and not isinstance(value, str):
                known[name] = [*known[name], *value]
            else:
                known[name] = value
        return document


def _issue(kind: type[_T], document: Mapping[str, Any], judgement: Judgement | None = None) -> _T:
    """The only constructor."""
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        raise InvalidEvidence("", "a surrogate stands alone in a text") from None
    stage = object.__new__(kind)
    _registry.issue(stage, _Issued(kind, encoded, judgement))
    return stage


def _judged(stage: _Stage, kind: type[_Stage]) -> Judgement:
    judgement = _registry.find(stage, kind).judgement
    assert judgement is not None  # these two are issued with one
    return judgement


def _reach(state: State, document: Mapping[str, Any]) -> None:
    """Refuse the step if something blocks the state."""
    found = open_findings(document, upto=state)
    if found:
        raise Blocked(state, found)


@final
class CallSpec(_Stage):
    """A turn that is about to happen: under which policies, by which model, in which mode."""

    __slots__ = ()

    @staticmethod
    def open(call_spec: Row, constraints: Row = _NOTHING) -> CallSpec:
        """``constraints`` are the objects beside ``evidence``: ``toolConstraints``, ``policyDocuments`` and so on."""
        document = {**constraints, "evidence": {"callSpec": dict(call_spec)}}
        _reach(State.CALL_SPEC, document)
        return _issue(CallSpec, document)

    def request(self, rows: Rows = (), evidence: Row = _NOTHING) -> ToolRequests:
        """What the model asked for, with the guardrail decisions before it runs."""
        document = self._with({**evidence, "toolRequests": list(rows)})
        _reach(State.TOOL_REQUESTS, document)
        return _issue(ToolRequests, document)


@final
class ToolRequests(_Stage):
    """Requests that may run."""

    __slots__ = ()

    def answer(self, rows: Rows = (), evidence: Row = _NOTHING) -> ToolResults:
        """What came back, with artifacts, accesses and further guardrail decisions."""
        document = self._with({**evidence, "toolResults": list(rows)})
        _reach(State.TOOL_RESULTS, document)
        return _issue(ToolResults, document)


@final
class ToolResults(_Stage):
    """Results of admissible calls within their boundaries."""

    __slots__ = ()

    def use(self, rows: Rows = (), evidence: Row = _NOTHING) -> ToolUse:
        """What became of each result."""
        document = self._with({**evidence, "toolUse": list(rows)})
        _reach(State.TOOL_USE, document)
        return _issue(ToolUse, document)


@final
class ToolUse(_Stage):
    """Results that are accounted for."""

    __slots__ = ()

    def close(self, protocol_state: Row, evidence: Row = _NOTHING) -> JoinClosed:
        """How the turn ended, and what the model was shown: renders, queues, views, handoff, continuity."""
        document = self._with({**evidence, "protocolState": dict(protocol_state)})
        judgement = judge(document)
        blocking = [finding for finding in judgement.findings if finding.failure.blocks_join]
        if blocking:
            raise Blocked(State.JOIN_CLOSED, blocking)
        return _issue(JoinClosed, document, judgement)


@final
class JoinClosed(_Stage):
    """A turn whose requests, results and uses match, under its policies."""

    __slots__ = ()

    @property
    def judgement(self) -> Judgement:
        return _judged(self, JoinClosed)

    def authorize(self, mutation: Row | None = None, constraints: Row = _NOTHING) -> MutationReady:
        """The right to carry out one mutation: the given one, or the one that the evidence already holds.

        One turn authorises one mutation, so this state is spent by it.
        ``constraints`` are those that only who judges the mutation knows, above all ``mutationConstraints`` with the
        active policy digest. They are added to those of the turn and cannot take any of them back.
        """
        document = self._with({"mutation": None if mutation is None else dict(mutation)})
        for name, given in constraints.items():
            if name not in document:
                document[name] = given
            elif name == "mutationConstraints":
                document[name] = _stricter(document[name] or {}, given)
            else:
                raise ValueError(f"{name} is part of the turn and cannot be replaced")
        judgement = judge(document)
        if judgement.findings or not judgement.mutation_ready:
            raise Blocked(State.MUTATION_READY, judgement.findings)
        _registry.spend(self, JoinClosed)  # one turn, one mutation
        return _issue(MutationReady, document, judgement)


@final
class MutationReady(_Stage):
    """The right to carry out one mutation, once."""

    __slots__ = ()

    @property
    def judgement(self) -> Judgement:
        return _judged(self, MutationReady)

    @property
    def intent(self) -> dict[str, Any]:
        """The mutation that was authorised."""
        found: dict[str, Any] = self.document["evidence"]["mutation"]
        return found


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
