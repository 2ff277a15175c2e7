"""The typestate: six types, each constructed only by a method of the type before it.

    CallSpec.open(call_spec, constraints) or CallSpec.of(builder)
    .request(rows, evidence)  .answer(rows, evidence)  .use(rows, evidence)
    .close(protocol_state, evidence)  .authorize(mutation, mutation_constraints)  -> MutationReady

Each transition adds evidence and judges all evidence so far; a failure class that blocks the next state raises
:class:`TurnBlocked`. Code outside of this module can neither construct, copy, pickle, change nor subclass a state.
Each state has a credential that references the state; a state made by ``object.__new__``, or with the credential of
another state, is rejected. :func:`redeem` spends a ``MutationReady``, :func:`redeem_call` the right to one call.
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
_T = TypeVar("_T", bound="_State")
_EMPTY: Final[JsonObject] = MappingProxyType({})


class TurnBlocked(Exception):
    """The evidence does not permit ``state``; ``findings`` has the reasons."""

    def __init__(self, state: TurnState, findings: Sequence[Finding]) -> None:
        classes = ", ".join(sorted({finding.failure.name for finding in findings}))
        super().__init__(f"{state.title} cannot be reached: {classes}")
        self.state = state
        self.findings = tuple(findings)


class ForgedState(TypeError):
    """A state was not issued by a transition, or is spent."""


class WrongMutation(ValueError):
    """A mutation differs from the authorised mutation."""


@dataclass(slots=True)
class _SpentCalls:
    """The ids of the calls spent in one turn, shared by all its states, so that each call is permitted once."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ids: set[str] = field(default_factory=set)


class _Credential:
    """The proof that a transition issued a state, with the turn so far, and the judgement of a closed turn."""

    __slots__ = ("builder", "is_spent", "judgement", "spent_calls", "state", "state_type")

    def __init__(
        self, state: _State, builder: TurnBuilder, judgement: Judgement | None, spent_calls: _SpentCalls
    ) -> None:
        self.state = ref(state)
        self.state_type = type(state)
        self.builder = builder
        self.judgement = judgement
        self.spent_calls = spent_calls
        self.is_spent = False

    def raise_if_spent(self) -> None:
        if self.is_spent:
            raise ForgedState(f"this {self.state_type.__name__} was spent already")

    def spend(self, call_id: str | None = None) -> None:
        """Spend the state or, with ``call_id``, its right to that call. Raises :class:`ForgedState` if spent."""
        with self.spent_calls.lock:
            self.raise_if_spent()
            if call_id is None:
                self.is_spent = True
            elif call_id in self.spent_calls.ids:
                raise ForgedState(f"the call {call_id} was redeemed already")
            else:
                self.spent_calls.ids.add(call_id)


def _credential_of(state: object, state_type: type[_State]) -> _Credential:
    """Return the credential of this instance. Raises :class:`ForgedState` if it is missing or spent."""
    credential = getattr(state, "_credential", None) if type(state) is state_type else None
    if (
        type(credential) is not _Credential
        or credential.state() is not state
        or credential.state_type is not state_type
    ):
        raise ForgedState(f"this is not a {state_type.__name__} that a turn has reached")
    credential.raise_if_spent()
    return credential


class _State:
    """The base of the six states: immutable, and not constructible."""

    __slots__ = ("__weakref__", "_credential")

    _credential: _Credential

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

    def _advance(self, state_type: type[_T], evidence: JsonObject) -> _T:
        """Add evidence and return the next state. Raises :class:`TurnBlocked`."""
        credential = _credential_of(self, type(self))
        return _reach(state_type, credential.builder.with_evidence(evidence), credential.spent_calls)


def _issue(
    state_type: type[_T], builder: TurnBuilder, spent_calls: _SpentCalls, judgement: Judgement | None = None
) -> _T:
    """Construct a state. This is the only function that does so."""
    state = object.__new__(state_type)
    object.__setattr__(state, "_credential", _Credential(state, builder, judgement, spent_calls))
    return state


def _reach(state_type: type[_T], builder: TurnBuilder, spent_calls: _SpentCalls) -> _T:
    """Return the state of this type. Raises :class:`TurnBlocked` if a finding blocks it."""
    (state,) = (state for state in TurnState if state.title == state_type.__name__)
    if findings := find_blocking(builder.turn, state):
        raise TurnBlocked(state, findings)
    return _issue(state_type, builder, spent_calls)


class _JudgedState(_State):
    __slots__ = ()

    @property
    def judgement(self) -> Judgement:
        """The judgement of the turn.

        A closed turn may have findings that block only a mutation; :meth:`JoinClosed.authorize` then refuses the
        mutation.
        """
        judgement = _credential_of(self, type(self)).judgement
        assert judgement is not None  # close() and authorize() issue these states with a judgement
        return judgement


@final
class CallSpec(_State):
    """A turn before its first call: its policies, model and mode."""

    __slots__ = ()

    @staticmethod
    def open(call_spec: JsonObject, constraints: JsonObject = _EMPTY) -> CallSpec:
        """Open a turn. ``constraints`` are the members of a turn document other than ``evidence``."""
        return CallSpec.of(TurnBuilder.open(call_spec, constraints))

    @staticmethod
    def of(builder: TurnBuilder) -> CallSpec:
        """Open a turn from a builder, which has validated its input."""
        return _reach(CallSpec, builder, _SpentCalls())

    def request(self, rows: Rows = (), evidence: JsonObject = _EMPTY) -> ToolRequests:
        """Add the calls of the model; ``evidence`` may have the guardrail decisions made before the calls run."""
        return self._advance(ToolRequests, {**evidence, "toolRequests": rows})


class _CallAuthority(_State):
    __slots__ = ()

    def permits(self, call_id: str, tool_name: str, input_digest: str) -> bool:
        """Return whether the state names this call, and the call was not redeemed before (:func:`redeem_call`)."""
        credential = _credential_of(self, type(self))
        is_spent = call_id in credential.spent_calls.ids
        return not is_spent and _is_named(credential, NamedCall(call_id, tool_name, input_digest))


@final
class ToolRequests(_CallAuthority):
    """A turn whose requests are permitted."""

    __slots__ = ()

    def request(self, rows: Rows = (), evidence: JsonObject = _EMPTY) -> ToolRequests:
        """Add further calls; ``evidence`` may have the earlier results that led to these calls."""
        return self._advance(ToolRequests, {**evidence, "toolRequests": rows})

    def answer(self, rows: Rows = (), evidence: JsonObject = _EMPTY) -> ToolResults:
        """Add results; ``evidence`` may have artifacts, accesses and further guardrail decisions."""
        return self._advance(ToolResults, {**evidence, "toolResults": rows})


@final
class ToolResults(_State):
    """A turn with results of permitted calls, all within the boundaries of their tools."""

    __slots__ = ()

    def use(self, rows: Rows = (), evidence: JsonObject = _EMPTY) -> ToolUse:
        return self._advance(ToolUse, {**evidence, "toolUse": rows})


@final
class ToolUse(_State):
    """A turn with results and their uses."""

    __slots__ = ()

    def close(self, protocol_state: JsonObject, evidence: JsonObject = _EMPTY) -> JoinClosed:
        """Add the protocol state.

        ``evidence`` may have optional members, such as ``toolRender``, ``reminderQueue``, ``stateViews``, ``handoff``
        and ``continuity``.
        """
        credential = _credential_of(self, ToolUse)
        builder = credential.builder.with_evidence({**evidence, "protocolState": protocol_state})
        judgement = judge_turn(builder.turn)
        blocking_findings = [finding for finding in judgement.findings if finding.failure.blocks_join]
        if blocking_findings:
            raise TurnBlocked(min(finding.failure.blocks for finding in blocking_findings), blocking_findings)
        return _issue(JoinClosed, builder, credential.spent_calls, judgement)


@final
class JoinClosed(_JudgedState):
    """A turn whose requests, results and uses match, under its policies."""

    __slots__ = ()

    def authorize(self, mutation: JsonObject | None = None, mutation_constraints: JsonObject = _EMPTY) -> MutationReady:
        """Spend this state, and return the right to one mutation: ``mutation``, or the mutation in the evidence.

        ``mutation_constraints`` of the caller, above all the active policy digest, replace those of the turn; claims
        that the turn requires stay required. Raises :class:`TurnBlocked` without spending the state.
        """
        credential = _credential_of(self, JoinClosed)
        builder = credential.builder.with_evidence({"mutation": mutation})
        if mutation_constraints:
            turn_constraints = builder.constraints.mutation_constraints
            merged_constraints = {"activePolicyDigest": turn_constraints.active_policy_digest, **mutation_constraints}
            if (claims := turn_constraints.required_capability_claims) is not None:
                merged_constraints["requiredCapabilityClaims"] = [
                    *claims,
                    *(merged_constraints.get("requiredCapabilityClaims") or ()),
                ]
            builder = builder.with_constraints({"mutationConstraints": merged_constraints})
        judgement = judge_turn(builder.turn)
        if not judgement.mutation_ready:
            raise TurnBlocked(TurnState.MUTATION_READY, judgement.findings)
        credential.spend()  # a turn authorises one mutation only
        return _issue(MutationReady, builder, credential.spent_calls, judgement)


@final
class MutationReady(_JudgedState, _CallAuthority):
    """The right to make one mutation, once."""

    __slots__ = ()


def redeem(ready: MutationReady, kind: str, action: str) -> Judgement:
    """Spend the right to a mutation of this kind and action, and return its judgement.

    Call it before the mutation. Raises :class:`ForgedState` for a forged or spent right and :class:`WrongMutation` for
    another mutation; both spend nothing.
    """
    credential = _credential_of(ready, MutationReady)
    judgement = ready.judgement
    mutation = judgement.turn.evidence.mutation
    assert mutation is not None  # a MutationReady has a mutation
    if (mutation.kind, mutation.action) != (kind, action):
        raise WrongMutation(f"the turn authorises {mutation.kind} {mutation.action}, not {kind} {action}")
    credential.spend()
    return judgement


def redeem_call(authority: MutationReady | ToolRequests, *, call_id: str, tool_name: str, input_digest: str) -> None:
    """Spend the right to one call: this tool, with input bytes of this digest, under this id.

    Call it before the call runs. A ``MutationReady`` of the kind ``effect`` permits each call that its mutation
    names; ``ToolRequests`` permits each of its requests, for calls without effects. Raises :class:`ForgedState` for a
    forged state or a second time, and :class:`WrongMutation` for any other call; both spend nothing.
    """
    call = NamedCall(call_id, tool_name, input_digest)
    credential = _credential_of(authority, ToolRequests if isinstance(authority, ToolRequests) else MutationReady)
    if not _is_named(credential, call):
        raise WrongMutation(f"nothing authorises {tool_name} under the id {call_id} with this input")
    credential.spend(call_id)


def _is_named(credential: _Credential, call: NamedCall) -> bool:
    """Return whether the call is a request of a ToolRequests, or a call that the mutation of a MutationReady names."""
    evidence = credential.builder.evidence
    if credential.state_type is ToolRequests:
        key = (call.tool_call_id, call.tool_name, call.input_digest)
        return any(key == (row.tool_call_id, row.tool_name, row.input_digest) for row in evidence.tool_requests)
    mutation = evidence.mutation
    return mutation is not None and mutation.kind == "effect" and call in mutation.calls


def replay_turn(document: Any, active_policy: str | None = None) -> MutationReady:
    """Return the right to the mutation of a recorded turn, after all transitions of the turn.

    ``document`` is an input of :func:`.judgement.judge`. ``active_policy`` is the digest of the mutation policy in
    force; it overrides the document. Raises :class:`.InvalidEvidence` or :class:`TurnBlocked`.
    """
    if not isinstance(document, dict):
        raise InvalidEvidence("", "an object is expected")
    judge(document)  # called for its errors only, whose pointers are relative to the whole document
    constraints = {name: value for name, value in document.items() if name != "evidence"}
    evidence = dict(document["evidence"])
    call_spec, protocol_state = evidence.pop("callSpec"), evidence.pop("protocolState")
    requests, mutation = evidence.pop("toolRequests", None), evidence.pop("mutation", None)
    # Add all evidence with the requests: their checks read the edges from caller to call, and a failure is reported for
    # the earliest state that it blocks.
    tool_requests = CallSpec.open(call_spec, constraints).request(requests or (), evidence)
    mutation_constraints = _EMPTY if active_policy is None else {"activePolicyDigest": active_policy}
    return tool_requests.answer().use().close(protocol_state).authorize(mutation, mutation_constraints)
