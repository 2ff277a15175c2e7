"""The typestate: six types, each constructed only by a method of its predecessor.

    CallSpec.open(call_spec, constraints) or CallSpec.of(builder)
    .request(rows, evidence)  .answer(rows, evidence)  .use(rows, evidence)
    .close(protocol_state, evidence)  .authorize(mutation, constraints)  -> MutationReady

Each step adds evidence and judges all of it; a failure class that blocks the next state raises :class:`TurnBlocked`.
Instances cannot be constructed, copied, pickled, changed or subclassed: each has an issue record that references the
instance, so an instance made with ``object.__new__``, or with the record of another, is rejected. :func:`redeem` spends
a ``MutationReady`` once, :func:`redeem_call` once per call that its mutation names.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NoReturn, Self, TypeAlias, TypeVar, final
from weakref import ref

from manglecp.harness.classes import Finding, TurnState
from manglecp.harness.evidence import NamedCall
from manglecp.harness.judgement import Judgement, find_blocking, judge, judge_turn
from manglecp.harness.readers import InvalidEvidence
from manglecp.harness.turn import TurnBuilder

JsonObject: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[JsonObject]
_T = TypeVar("_T", bound="_Stage")
_EMPTY: Final[JsonObject] = MappingProxyType({})


class TurnBlocked(Exception):
    """The evidence does not permit ``state``; ``findings`` has the reasons."""

    def __init__(self, state: TurnState, findings: Sequence[Finding]) -> None:
        classes = ", ".join(sorted({finding.failure.name for finding in findings}))
        super().__init__(f"{state.title} cannot be reached: {classes}")
        self.state = state
        self.findings = tuple(findings)


class ForgedState(TypeError):
    """A state that no transition issued, or that was spent already."""


class WrongMutation(ValueError):
    """A mutation other than the one that was authorised."""


@dataclass(slots=True)
class _SpentCalls:
    """The ids of the calls spent in one turn, shared by all its states, so that each call is permitted once."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ids: set[str] = field(default_factory=set)


class _IssueRecord:
    """The record of a transition: the issued instance, the turn so far, and the judgement of a closed turn."""

    __slots__ = ("builder", "judgement", "spent", "spent_calls", "stage", "stage_type")

    def __init__(
        self, stage: _Stage, builder: TurnBuilder, judgement: Judgement | None, spent_calls: _SpentCalls
    ) -> None:
        self.stage = ref(stage)
        self.stage_type = type(stage)
        self.builder = builder
        self.judgement = judgement
        self.spent_calls = spent_calls
        self.spent = False

    def raise_if_spent(self) -> None:
        if self.spent:
            raise ForgedState(f"this {self.stage_type.__name__} was spent already")

    def spend(self, call_id: str | None = None) -> None:
        """Spend the state, or its right to one call. Raises :class:`ForgedState` the second time."""
        with self.spent_calls.lock:
            self.raise_if_spent()
            if call_id is None:
                self.spent = True
            elif call_id in self.spent_calls.ids:
                raise ForgedState(f"the call {call_id} was redeemed already")
            else:
                self.spent_calls.ids.add(call_id)


def _find_record(stage: object, stage_type: type[_Stage]) -> _IssueRecord:
    """Return the record of this instance. Raises :class:`ForgedState` if it is missing or spent."""
    record = getattr(stage, "_record", None) if type(stage) is stage_type else None
    if type(record) is not _IssueRecord or record.stage() is not stage or record.stage_type is not stage_type:
        raise ForgedState(f"this is not a {stage_type.__name__} that a turn has reached")
    record.raise_if_spent()
    return record


class _Stage:
    """The base of the six states: immutable, and not constructible."""

    __slots__ = ("__weakref__", "_record")

    _record: _IssueRecord

    def __new__(cls, *_: object, **__: object) -> Self:
        raise ForgedState(f"{cls.__name__} is issued by the step before it, and cannot be constructed")

    def __init_subclass__(cls) -> None:
        if cls.__module__ != __name__:
            raise TypeError(f"{cls.__mro__[1].__name__} cannot be subclassed")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} can be neither copied nor pickled")

    @property
    def document(self) -> dict[str, Any]:
        """A copy of the evidence so far, as an input of :func:`.judgement.judge`."""
        return _find_record(self, type(self)).builder.document

    def _advance(self, stage_type: type[_T], state: TurnState, evidence: JsonObject) -> _T:
        """Add evidence and return the next state; ``state`` is that of ``stage_type``. Raises :class:`TurnBlocked`."""
        record = _find_record(self, type(self))
        return _reach(stage_type, state, record.builder.with_evidence(evidence), record.spent_calls)


def _issue(
    stage_type: type[_T], builder: TurnBuilder, spent_calls: _SpentCalls, judgement: Judgement | None = None
) -> _T:
    """Construct a state; no other code does."""
    stage = object.__new__(stage_type)
    object.__setattr__(stage, "_record", _IssueRecord(stage, builder, judgement, spent_calls))
    return stage


def _reach(stage_type: type[_T], state: TurnState, builder: TurnBuilder, spent_calls: _SpentCalls) -> _T:
    findings = find_blocking(builder.turn, state)
    if findings:
        raise TurnBlocked(state, findings)
    return _issue(stage_type, builder, spent_calls)


def _close(builder: TurnBuilder, spent_calls: _SpentCalls) -> JoinClosed:
    judgement = judge_turn(builder.turn)
    blocking = [finding for finding in judgement.findings if finding.failure.blocks_join]
    if not blocking:
        return _issue(JoinClosed, builder, spent_calls, judgement)
    first_blocked = min(finding.failure.blocks for finding in blocking)
    if first_blocked is not TurnState.JOIN_CLOSED:  # as the separate steps: no findings of later states
        blocking = list(find_blocking(builder.turn, first_blocked))
    raise TurnBlocked(first_blocked, blocking)


class _JudgedStage(_Stage):
    __slots__ = ()

    @property
    def judgement(self) -> Judgement:
        """The judgement of the turn. Findings of a closed turn, if any, forbid only a mutation."""
        judgement = _find_record(self, type(self)).judgement
        assert judgement is not None  # _close() and authorize() issue these states with a judgement
        return judgement


@final
class CallSpec(_Stage):
    """A turn before its first call: its policies, model and mode."""

    __slots__ = ()

    @staticmethod
    def open(call_spec: JsonObject, constraints: JsonObject = _EMPTY) -> CallSpec:
        """Open a turn. ``constraints`` are the members of a turn document other than ``evidence``."""
        return CallSpec.of(TurnBuilder.open(call_spec, constraints))

    @staticmethod
    def of(builder: TurnBuilder) -> CallSpec:
        """Open a turn from a builder, which has validated its input."""
        return _reach(CallSpec, TurnState.CALL_SPEC, builder, _SpentCalls())

    def request(self, rows: Rows = (), evidence: JsonObject = _EMPTY) -> ToolRequests:
        """Add the calls of the model; ``evidence`` may have the guardrail decisions made before they run."""
        return self._advance(ToolRequests, TurnState.TOOL_REQUESTS, {**evidence, "toolRequests": list(rows)})


@final
class ToolRequests(_Stage):
    """Permitted requests."""

    __slots__ = ()

    def request(self, rows: Rows = (), evidence: JsonObject = _EMPTY) -> ToolRequests:
        """Add further calls; ``evidence`` may have the earlier results that led to these calls."""
        return self._advance(ToolRequests, TurnState.TOOL_REQUESTS, {**evidence, "toolRequests": list(rows)})

    def permits(self, call_id: str, tool_name: str, input_digest: str) -> bool:
        """Return whether the call is a request of this state and not yet redeemed (:func:`redeem_call`)."""
        return _permits(self, ToolRequests, NamedCall(call_id, tool_name, input_digest))

    def close(
        self,
        results: Rows,
        uses: Rows,
        protocol_state: JsonObject,
        result_evidence: JsonObject = _EMPTY,
        final_evidence: JsonObject = _EMPTY,
    ) -> JoinClosed:
        """Do ``answer``, ``use`` and ``close`` in one step, which judges only once.

        ``result_evidence`` belongs to the results, ``final_evidence`` to the end of the turn. Raises
        :class:`TurnBlocked` with the first state that the evidence does not reach.
        """
        record = _find_record(self, ToolRequests)
        builder = record.builder.with_evidence({**result_evidence, "toolResults": list(results), "toolUse": list(uses)})
        builder = builder.with_evidence({**final_evidence, "protocolState": dict(protocol_state)})
        return _close(builder, record.spent_calls)

    def answer(self, rows: Rows = (), evidence: JsonObject = _EMPTY) -> ToolResults:
        """Add results; ``evidence`` may have artifacts, accesses and further guardrail decisions."""
        return self._advance(ToolResults, TurnState.TOOL_RESULTS, {**evidence, "toolResults": list(rows)})


@final
class ToolResults(_Stage):
    """Results of permitted calls that stayed within the boundaries set for their tools."""

    __slots__ = ()

    def use(self, rows: Rows = (), evidence: JsonObject = _EMPTY) -> ToolUse:
        return self._advance(ToolUse, TurnState.TOOL_USE, {**evidence, "toolUse": list(rows)})


@final
class ToolUse(_Stage):
    """Results with their uses."""

    __slots__ = ()

    def close(self, protocol_state: JsonObject, evidence: JsonObject = _EMPTY) -> JoinClosed:
        """Add the protocol state; ``evidence`` may have renders, queues, views, handoff and continuity."""
        record = _find_record(self, ToolUse)
        builder = record.builder.with_evidence({**evidence, "protocolState": dict(protocol_state)})
        return _close(builder, record.spent_calls)


@final
class JoinClosed(_JudgedStage):
    """A turn whose requests, results and uses match, under its policies."""

    __slots__ = ()

    def authorize(self, mutation: JsonObject | None = None, constraints: JsonObject = _EMPTY) -> MutationReady:
        """Return the right to one mutation: ``mutation``, or the one in the evidence. Spends this state.

        ``constraints`` are those of the caller, above all ``mutationConstraints`` with the active policy digest. They
        are added to those of the turn; claims that the turn requires stay required. Raises :class:`TurnBlocked`, and
        then spends nothing.
        """
        record = _find_record(self, JoinClosed)
        builder = record.builder.with_evidence({} if mutation is None else {"mutation": dict(mutation)})
        combined = dict(constraints)
        for name, constraint in constraints.items():
            current = builder.constraint(name)
            if current is None:
                continue
            if name != "mutationConstraints":
                raise ValueError(f"{name} is part of the turn and cannot be replaced")
            combined[name] = _merge_constraints(current, constraint)
        if combined:
            builder = builder.with_constraints(combined)
        judgement = judge_turn(builder.turn)
        if not judgement.mutation_ready:
            raise TurnBlocked(TurnState.MUTATION_READY, judgement.findings)
        record.spend()  # one turn, one mutation
        return _issue(MutationReady, builder, record.spent_calls, judgement)


@final
class MutationReady(_JudgedStage):
    """The right to one mutation, once."""

    __slots__ = ()

    @property
    def intent(self) -> dict[str, Any]:
        """The authorised mutation."""
        mutation: dict[str, Any] = self.document["evidence"]["mutation"]
        return mutation

    def permits(self, call_id: str, tool_name: str, input_digest: str) -> bool:
        """Return whether the mutation is an effect that names this call, and the call was not yet redeemed."""
        return _permits(self, MutationReady, NamedCall(call_id, tool_name, input_digest))


def _merge_constraints(of_turn: JsonObject, of_caller: JsonObject) -> JsonObject:
    """Return both ``mutationConstraints`` as one: all required claims, and the caller's active policy digest."""
    claims = [*(of_turn.get("requiredCapabilityClaims") or ()), *(of_caller.get("requiredCapabilityClaims") or ())]
    return {**of_turn, **of_caller, **({"requiredCapabilityClaims": claims} if claims else {})}


def redeem(ready: MutationReady, kind: str, action: str) -> Judgement:
    """Spend the right to a mutation of this kind and action, and return its judgement.

    Call it before the mutation. Raises :class:`ForgedState` for a forged or spent right and :class:`WrongMutation` for
    another mutation; then nothing is spent.
    """
    record = _find_record(ready, MutationReady)
    judgement = ready.judgement
    mutation = judgement.turn.evidence.mutation
    assert mutation is not None  # a MutationReady has a mutation
    if (mutation.kind, mutation.action) != (kind, action):
        raise WrongMutation(f"the turn authorises {mutation.kind} {mutation.action}, not {kind} {action}")
    record.spend()
    return judgement


def redeem_call(authority: MutationReady | ToolRequests, *, call_id: str, tool_name: str, input_digest: str) -> None:
    """Spend the right to one call: this tool, with input bytes of this digest, under this id.

    Call it before the call runs. A ``MutationReady`` of the kind ``effect`` permits each call that its mutation
    names; ``ToolRequests`` permits each of its requests, for calls without effects. Raises :class:`ForgedState` for a
    forged state or a second time, and :class:`WrongMutation` for any other call; then nothing is spent.
    """
    call = NamedCall(call_id, tool_name, input_digest)
    record = _find_record(authority, ToolRequests if isinstance(authority, ToolRequests) else MutationReady)
    if not _is_named(record, call):
        raise WrongMutation(f"nothing authorises {tool_name} under the id {call_id} with this input")
    record.spend(call_id)


def _permits(authority: MutationReady | ToolRequests, stage_type: type[_Stage], call: NamedCall) -> bool:
    record = _find_record(authority, stage_type)
    return call.tool_call_id not in record.spent_calls.ids and _is_named(record, call)


def _is_named(record: _IssueRecord, call: NamedCall) -> bool:
    """Return whether the call is a request of a ToolRequests, or a call that the mutation of a MutationReady names."""
    evidence = record.builder.evidence
    if record.stage_type is ToolRequests:
        key = (call.tool_call_id, call.tool_name, call.input_digest)
        return any(key == (row.tool_call_id, row.tool_name, row.input_digest) for row in evidence.tool_requests)
    mutation = evidence.mutation
    return mutation is not None and mutation.kind == "effect" and call in mutation.calls


def replay_turn(document: Any, active_policy: str | None = None) -> MutationReady:
    """Return the right to the mutation of a recorded turn, after a transition through all its states.

    ``document`` is an input of :func:`.judgement.judge`. ``active_policy`` is the digest of the mutation policy in
    force; it overrides the document. Raises :class:`.InvalidEvidence` or :class:`TurnBlocked`.
    """
    if not isinstance(document, dict):
        raise InvalidEvidence("", "an object is expected")
    judge(document)  # only for its errors, whose pointers are into the whole document
    constraints = {name: value for name, value in document.items() if name != "evidence"}
    evidence = {name: value for name, value in document["evidence"].items() if value is not None}
    call_spec, protocol_state = evidence.pop("callSpec"), evidence.pop("protocolState")
    requests, mutation = evidence.pop("toolRequests", ()), evidence.pop("mutation", None)
    active: Mapping[str, Any] = {}
    if active_policy is not None:
        recorded = constraints.get("mutationConstraints") or {}
        active = {"mutationConstraints": {**recorded, "activePolicyDigest": active_policy}}
    # All evidence is added with the requests: a failure blocks the earliest state, and results have their caller edges.
    requested = CallSpec.open(call_spec, constraints).request(requests, evidence)
    return requested.answer().use().close(protocol_state).authorize(mutation, active)
