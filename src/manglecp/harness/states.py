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
from typing import Any, Final, NoReturn, Self, TypeAlias, final

import msgspec

from manglecp.harness.classes import State
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


class _Registry:
    """The instances that transitions issued. Private: to be in it is what it means to be a state."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._issued: weakref.WeakSet[_Stage] = weakref.WeakSet()

    def issue(self, stage: _Stage) -> None:
        with self._lock:
            self._issued.add(stage)

    def check(self, stage: object, kind: type[_Stage]) -> None:
        if type(stage) is not kind or stage not in self._issued:
            raise Forged(f"this is no {kind.__name__} that a turn has reached")

    def spend(self, stage: MutationReady) -> None:
        with self._lock:
            self.check(stage, MutationReady)
            self._issued.discard(stage)


_registry: Final = _Registry()


class _Stage:
    """What the six types share: evidence that nobody can change, and no way to make one by hand."""

    __slots__ = ("__weakref__", "_document")
    _document: bytes

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
        _registry.check(self, type(self))
        found: dict[str, Any] = msgspec.json.decode(self._document)
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


def _issue(kind: type[Any], document: Mapping[str, Any], **more: object) -> Any:
    """The only constructor. What a stage holds is written once, here."""
    stage = object.__new__(kind)
    object.__setattr__(stage, "_document", msgspec.json.encode(document))
    for name, value in more.items():
        object.__setattr__(stage, name, value)
    _registry.issue(stage)
    return stage


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
        issued: CallSpec = _issue(CallSpec, document)
        return issued

    def request(self, rows: Rows = (), evidence: Row = _NOTHING) -> ToolRequests:
        """What the model asked for, with the guardrail decisions before it runs."""
        document = self._with({**evidence, "toolRequests": list(rows)})
        _reach(State.TOOL_REQUESTS, document)
        issued: ToolRequests = _issue(ToolRequests, document)
        return issued


@final
class ToolRequests(_Stage):
    """Requests that may run."""

    __slots__ = ()

    def answer(self, rows: Rows = (), evidence: Row = _NOTHING) -> ToolResults:
        """What came back, with artifacts, accesses and further guardrail decisions."""
        document = self._with({**evidence, "toolResults": list(rows)})
        _reach(State.TOOL_RESULTS, document)
        issued: ToolResults = _issue(ToolResults, document)
        return issued


@final
class ToolResults(_Stage):
    """Results of admissible calls within their boundaries."""

    __slots__ = ()

    def use(self, rows: Rows = (), evidence: Row = _NOTHING) -> ToolUse:
        """What became of each result."""
        document = self._with({**evidence, "toolUse": list(rows)})
        _reach(State.TOOL_USE, document)
        issued: ToolUse = _issue(ToolUse, document)
        return issued


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
        issued: JoinClosed = _issue(JoinClosed, document, _judgement=judgement)
        return issued


@final
class JoinClosed(_Stage):
    """A turn whose requests, results and uses match, under its policies."""

    __slots__ = ("_judgement",)
    _judgement: Judgement

    @property
    def judgement(self) -> Judgement:
        _registry.check(self, JoinClosed)
        return self._judgement

    def authorize(self, mutation: Row | None = None, constraints: Row = _NOTHING) -> MutationReady:
        """The right to carry out one mutation: the given one, or the one that the evidence already holds.

        ``constraints`` are those that only who judges the mutation knows, above all ``mutationConstraints`` with the
        active policy digest. They are added to those of the turn, and replace none but ``mutationConstraints``.
        """
        document = self._with({"mutation": None if mutation is None else dict(mutation)})
        for name in constraints:
            if name in document and name != "mutationConstraints":
                raise ValueError(f"{name} is part of the turn and cannot be replaced")
        document.update(constraints)
        judgement = judge(document)
        if judgement.findings or not judgement.mutation_ready:
            raise Blocked(State.MUTATION_READY, judgement.findings)
        issued: MutationReady = _issue(MutationReady, document, _judgement=judgement)
        return issued


@final
class MutationReady(_Stage):
    """The right to carry out one mutation, once."""

    __slots__ = ("_judgement",)
    _judgement: Judgement

    @property
    def judgement(self) -> Judgement:
        _registry.check(self, MutationReady)
        return self._judgement

    @property
    def intent(self) -> dict[str, Any]:
        """The mutation that was authorised."""
        found: dict[str, Any] = self.document["evidence"]["mutation"]
        return found


def redeem(ready: MutationReady, kind: str, action: str) -> Judgement:
    """Spend the right for a mutation of this kind and action; the judgement it rests on.

    Whoever carries out mutations calls this first. It is refused for a forged right, a second time, and for any other
    mutation than the one that was authorised; a refused one is not spent.
    """
    _registry.check(ready, MutationReady)
    judgement = ready.judgement
    intent = judgement.turn.evidence.mutation
    assert intent is not None  # there is no MutationReady without one
    if (intent.kind, intent.action) != (kind, action):
        raise WrongMutation(f"authorised is {intent.kind} {intent.action}, not {kind} {action}")
    _registry.spend(ready)
    return judgement
