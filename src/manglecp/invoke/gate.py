"""The gate of a run: turns of evidence that the harness closes, and that authorise the next effects.

* A turn contains the effects that its predecessor authorised, then calls of tier 0 (reads). It ends with the
  authorisation of the next effects, as its *mutation*; the last turn ends without one.
* A turn closes only with an outcome of each call that its predecessor authorised, and with no other effect.
* A gate also judges the requests of the next turn, so no effect is authorised that the next turn could not contain.

The harness judges all rows of a turn again at each state. This module only computes; the caller writes the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, get_args

from manglecp.base.diagnostic import Diagnostic
from manglecp.harness import (
    CallSpec,
    Finding,
    InvalidEvidence,
    JoinClosed,
    Judgement,
    MutationReady,
    ToolRequests,
    TurnBlocked,
    TurnState,
    Witness,
    digest_v1 as digest,
    witness_of,
)
from manglecp.harness.policy import TIERS, call_id
from manglecp.invoke.calls import ActionCall, StepOutcome
from manglecp.invoke.evidence import (
    BASE_CLAIM,
    ChainTerms,
    Events,
    Pattern,
    RunTerms,
    States,
    TurnCall,
    TurnEvidence,
    UsedSteps,
    claim_of,
)
from manglecp.pack import FOLDER, Pack, Profile, default_governance, pack_problem

_NO_STEPS: Final = UsedSteps()
_NO_STATES: Final[States] = {}


class GateRefused(Exception):
    """The evidence does not permit the next state of a turn.

    ``classes`` are the fail-closed classes of the findings, sorted and unique; empty if the harness rejected the rows
    as contradictory (``why``).
    """

    def __init__(
        self, state: TurnState, classes: Sequence[str], findings: Sequence[Finding] = (), why: str = ""
    ) -> None:
        super().__init__(f"{state.title} cannot be reached: {', '.join(classes) or why}")
        self.state = state
        self.classes = tuple(classes)
        self.findings = tuple(findings)


@contextmanager
def _as_gate_refused(state: TurnState) -> Iterator[None]:
    """Convert the harness's refusals to :class:`GateRefused`; ``state`` is the state that the block would reach."""
    try:
        yield
    except TurnBlocked as error:
        classes = sorted({finding.failure.name for finding in error.findings})
        raise GateRefused(error.state, classes, error.findings) from error
    except InvalidEvidence as error:
        raise GateRefused(state, (), (), str(error)) from error


@dataclass(frozen=True, slots=True)
class Resumption:
    """The state from which another process resumes a run."""

    fence: int
    """The fencing token of the resuming process; each takeover of the run has another token."""
    witnesses: tuple[str, ...] = ()
    """The ids of the witnesses of the closed turns, in order."""


class Turns:
    """The turns of a run."""

    def __init__(self, terms: RunTerms) -> None:
        self.terms = terms
        self.count = 0
        """The number of turns, the current one included."""
        self.closed_turns = _ClosedTurns()
        self.authorised: dict[str, ActionCall] = {}
        """The calls that the last turn authorised, by id."""
        # The cached arguments and result of call_spec: a gate judges the spec with which the next turn is opened.
        self._spec_key: tuple[int, bool, int | None] | None = None
        self._spec: CallSpec | None = None

    def open(self, *, parallel: bool = False, resumed: Resumption | None = None) -> Turn:
        """Open the next turn. Raises :class:`GateRefused`.

        ``parallel`` is whether the calls of the turn, or the effects that its predecessor authorised, may run in
        parallel. ``resumed`` is passed for the first turn of a process that resumes the run.
        """
        chain = self.terms.chain
        if resumed is None and self.count == 0 and chain.admitted_turns < chain.needed_turns:
            # Refused before the first turn: the run would stop after some of its effects.
            why = f"the chain takes {chain.needed_turns} turns, and its policies admit {chain.admitted_turns}"
            raise GateRefused(TurnState.CALL_SPEC, ("protocol.stop_reason_unhandled",), why=why)
        if resumed is not None:
            self.closed_turns = _ClosedTurns(resumed.witnesses)
            self.count = max(self.count, len(resumed.witnesses))
            self.authorised = {}
        self.count += 1
        return Turn(self, self.count, parallel, resumed)

    def call_spec(self, number: int, parallel: bool, fence: int | None = None) -> CallSpec:
        """Return the call spec of a turn. ``fence`` makes the id unique if several processes resume the run."""
        key = (number, parallel, fence)
        if self._spec is None or self._spec_key != key:
            terms = self.terms
            prompt_digest = terms.admission_digest if fence is None else digest([terms.admission_digest, fence])
            turn_id = call_id(terms.run, number, terms.chain.model_ref, prompt_digest)
            with _as_gate_refused(TurnState.CALL_SPEC):
                self._spec = CallSpec.of(terms.chain.template(terms.approval, parallel=parallel).with_call_id(turn_id))
            self._spec_key = key
        return self._spec


class Turn:
    """One open turn. Created by :meth:`Turns.open`."""

    def __init__(self, turns: Turns, number: int, parallel: bool, resumed: Resumption | None) -> None:
        self.number = number
        self._turns = turns
        self._parallel = parallel
        self._resumption = resumed
        self._authorised = dict(turns.authorised)
        """The calls that the last turn authorised, by id. This turn closes only with an outcome of each."""
        self._evidence = TurnEvidence(turns.terms)
        self._unjudged_calls: list[TurnCall] = []
        """Recorded calls that ``_state`` does not contain yet; judged with the next request, or at the end."""
        self._is_closed = False
        self._fence = None if resumed is None else resumed.fence
        self._state: CallSpec | ToolRequests = turns.call_spec(number, parallel, self._fence)

    def admit(self) -> None:
        """Record the admission of the run, as the first call of the first turn of a process."""
        self._ensure_open()
        self._record([self._evidence.build_admission(self.number)])

    def request(self, calls: Sequence[ActionCall]) -> ToolRequests:
        """Request calls of tier 0, which run in parallel, and return the state from which their leases are issued.

        Raises :class:`GateRefused`; refused requests are not recorded.
        """
        self._ensure_open()
        for call in calls:
            if call.is_effect:
                raise ValueError(f"{call.call_id} has an effect, which needs an authorisation")
        requests = self._evidence.build_requests(calls)
        self._state = requested_state = self._judge(requests)
        self._unjudged_calls = []
        self._evidence.record(requests)
        return requested_state

    def record_outcomes(self, outcomes: Iterable[StepOutcome]) -> None:
        """Record the outcomes of requested calls. A skipped step has no call and no row."""
        self._ensure_open()
        self._evidence.record_outcomes(outcomes)

    def record_calls(self, calls: Sequence[ActionCall], outcomes: Iterable[StepOutcome]) -> None:
        """Record parallel calls and their outcomes: authorised effects, reads of a plan, or calls from the journal."""
        self._ensure_open()
        for call in calls:
            # In a resumed run another process authorised the calls; this process does not know which.
            if self._resumption is None and call.is_effect and self._authorised.get(call.call_id) != call:
                self._evidence.record_ungated(call)
        self._record(self._evidence.build_requests(calls))
        self._evidence.record_outcomes(outcomes)

    def record_retry(self, call: ActionCall, outcome: StepOutcome) -> None:
        """Record an attempt that is repeated because its outcome is unknown."""
        self.record_calls([call], [outcome])
        self._evidence[call.call_id].next_call_id = f"{call.run}/{call.group}/{call.attempt + 1}"

    def authorize(
        self,
        calls: Sequence[ActionCall],
        *,
        claims: Iterable[str],
        used: UsedSteps = _NO_STEPS,
        events: Events = (),
        states: States = _NO_STATES,
    ) -> tuple[MutationReady, Witness]:
        """Close the turn and return the authorisation of exactly these calls, each once, and the witness.

        ``claims`` are the capability claims that policy grants. Raises :class:`GateRefused`; the turn then stays
        open, and may be finished or authorise other calls.
        """
        self._ensure_open()
        if not calls:
            raise ValueError("no calls to authorise")
        turns = self._turns
        self._judge_next_turn(calls)
        inputs, witnesses, dangling = _find_dependencies(calls, self._evidence, turns.closed_turns)
        input_refs = sorted([*(turn_call.ref for turn_call in inputs), *dangling])
        mutation = _mutation_row(turns.terms, calls, claims, input_refs, witnesses)
        chain = turns.terms.chain
        required_claims = chain.package.contents["mutation"].get("requiredCapabilityClaims", ())
        needed_claims = sorted({BASE_CLAIM, *required_claims, *(claim_of(call.action) for call in calls)})
        constraints = {**chain.mutation_constraints, "requiredCapabilityClaims": needed_claims}
        with _as_gate_refused(TurnState.MUTATION_READY):
            closed_turn = self._close("tool_use", used, events, states, inputs)
            ready = closed_turn.authorize(mutation, constraints)
        turns.authorised = {call.call_id: call for call in calls}
        return ready, self._mark_closed(ready.judgement)

    def finish(
        self, *, used: UsedSteps = _NO_STEPS, events: Events = (), states: States = _NO_STATES, paused: bool = False
    ) -> Witness:
        """Close the last turn. ``paused``: the run waits for an operator's decision. Raises :class:`GateRefused`."""
        self._ensure_open()
        reason = "pause_turn" if paused else "end_turn"
        with _as_gate_refused(TurnState.JOIN_CLOSED):
            closed_turn = self._close(reason, used, events, states)
        self._turns.authorised = {}
        return self._mark_closed(closed_turn.judgement)

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the turn is over")

    def _record(self, calls: Sequence[TurnCall]) -> None:
        self._evidence.record(calls)
        self._unjudged_calls += calls

    def _judge(self, requests: Sequence[TurnCall]) -> ToolRequests:
        """Return the state with all recorded requests and ``requests``. Raises :class:`GateRefused`."""
        state, new_calls = self._state, [*self._unjudged_calls, *requests]
        if not new_calls and isinstance(state, ToolRequests):
            return state
        with _as_gate_refused(TurnState.TOOL_REQUESTS):
            return _with_requests(state, new_calls, max(self._evidence.max_parallel, len(requests)))

    def _judge_next_turn(self, calls: Sequence[ActionCall]) -> None:
        """Raise :class:`GateRefused` for calls that the next turn could not contain."""
        turns = self._turns
        requests = TurnEvidence(turns.terms).build_requests(calls)
        spec = turns.call_spec(self.number + 1, self._parallel or len(calls) > 1)
        with _as_gate_refused(TurnState.TOOL_REQUESTS):
            _with_requests(spec, requests, len(calls))

    def _close(
        self, reason: str, used: UsedSteps, events: Events, states: States, inputs: Sequence[TurnCall] | None = None
    ) -> JoinClosed:
        """Close the turn. ``inputs`` are the calls that its mutation depends on; None at the end of the run."""
        evidence = self._evidence
        # An authorised call without an outcome becomes a request without a result, with which no turn closes.
        missing_calls = [call for call in self._authorised.values() if call.call_id not in evidence]
        requested_state = self._judge(evidence.build_requests(missing_calls) if missing_calls else ())
        results, uses, protocol_state, result_evidence, final_evidence = evidence.build_closing(
            self.number, reason, used, events, states, inputs=inputs, fence=self._fence
        )
        return requested_state.answer(results, result_evidence).use(uses).close(protocol_state, final_evidence)

    def _mark_closed(self, judgement: Judgement) -> Witness:
        self._is_closed = True
        self._turns.closed_turns.add(judgement.witness_id, self._evidence.calls)
        return witness_of(judgement)


def _with_requests(state: CallSpec | ToolRequests, calls: Sequence[TurnCall], max_parallel: int) -> ToolRequests:
    """Return the state with these requests; ``max_parallel`` is the largest number of parallel calls of the turn."""
    fan_out = {"decomposition": {"mode": "split", "fanOut": max_parallel}} if max_parallel > 1 else {}
    return state.request([call.row for call in calls], fan_out)


# --- the mutation ---------------------------------------------------------------------------------------------------


class _ClosedTurns:
    """The closed turns of a run, by the ids of their witnesses."""

    def __init__(self, witnesses: Sequence[str] = ()) -> None:
        """``witnesses`` are the ids of the witnesses of turns that another process closed, in order."""
        self.witnesses = list(witnesses)
        self._admission: str | None = None  # the witness of the turn with the admission
        self._steps: dict[int, str] = {}  # by step number: the witness of the turn with the last attempt

    def add(self, witness: str, calls: Iterable[TurnCall]) -> None:
        self.witnesses.append(witness)
        for call in calls:
            if call.kind == "admission":
                self._admission = witness
            elif call.kind == "do" and call.next_call_id is None:
                self._steps[call.number] = witness

    def witnesses_of_step(self, number: int) -> list[str]:
        """Return the witness of the step's turn; all witnesses if the turn belongs to another process."""
        return [self._steps[number]] if number in self._steps else list(self.witnesses)

    def witnesses_of_admission(self) -> list[str]:
        """Return the witness of the first turn; all witnesses if that turn belongs to another process."""
        return list(self.witnesses) if self._admission is None else [self._admission]


class _Dependencies(NamedTuple):
    calls: list[TurnCall]  # calls of the current turn
    witnesses: list[str]
    """The ids of witnesses: of the previous turn, and of turns with dependencies that are not in the current turn."""
    dangling: list[str]  # references to steps without a result; the harness refuses them


def _find_dependencies(calls: Sequence[ActionCall], evidence: TurnEvidence, closed: _ClosedTurns) -> _Dependencies:
    """Return what ``calls`` depend on: the steps that provide arguments, and the admission.

    An undo also depends on the step that it undoes, and on each failure.
    """
    results: dict[str, TurnCall] = {}
    witnesses = closed.witnesses[-1:]
    dangling: list[str] = []
    sources = {source for call in calls for source in call.sources}
    if undo_calls := [call for call in calls if call.kind == "undo"]:
        sources.update(call.number for call in undo_calls)
        results |= {call.call_id: call for call in evidence.calls if call.has_failed}
    last_attempts = {call.number: call for call in evidence.calls if call.kind == "do"}
    for source in sorted(sources):
        if source in last_attempts:
            results[last_attempts[source].call_id] = last_attempts[source]
        elif source_witnesses := closed.witnesses_of_step(source):
            witnesses += source_witnesses
        else:
            dangling.append(f"run://{calls[0].run}/s{source}")
    admissions = {call.call_id: call for call in evidence.calls if call.kind == "admission"}
    results |= admissions
    if not admissions:
        witnesses += closed.witnesses_of_admission()
    return _Dependencies(list(results.values()), list(dict.fromkeys(witnesses)), dangling)


def _mutation_row(
    terms: RunTerms, calls: Sequence[ActionCall], claims: Iterable[str], refs: Iterable[str], witnesses: Sequence[str]
) -> dict[str, Any]:
    """Return the row ``mutation`` of the turn. ``refs`` are references to the results that the calls depend on."""
    return {
        "kind": "effect",
        "action": "+".join(sorted({call.action.aid for call in calls})),
        "instructionRef": f"instr1_{terms.admission_digest.removeprefix('sha256:')}",
        "inputRefs": [*refs, *witnesses],
        "capabilityClaims": sorted(claims),
        "joinWitnessRefs": list(witnesses),
        "calls": [
            {"toolCallId": call.call_id, "toolName": call.action.aid, "inputDigest": call.input_digest}
            for call in calls
        ],
    }


# --- the trial of a policy package ----------------------------------------------------------------------------------

# A server's turns always have one queue, one view, one injection point and one sandbox. A package that requires others
# would fail every turn, after effects. Therefore a trial turn is judged when the pack is opened. It contains only an
# admission, since a package may forbid parallel steps or effects: only what would fail every run is reported.
_TRIAL_DIGEST: Final = digest("a turn on trial")
_CONTEXT_FIX: Final = "require the queue events, the view run and the injection point invoke_response, or none"


def check_policy_package(pack: Pack, sandbox: Profile) -> tuple[Diagnostic, ...]:
    """Return why no run of the pack could succeed under its policy package. ``sandbox`` is the profile of its hosts."""
    problems, package = [], pack.governance
    profile = package.contents.get("sandbox", {}).get("profile", sandbox)
    # Only for other packages: hosts may run in another profile than the shipped package names.
    if profile != sandbox and package.digest != default_governance().digest:
        message = f"profile: turns would be bound to the sandbox {profile}, and the hosts run in {sandbox}"
        fix = f'write profile = "{sandbox}", or have the hosts run in {profile}'
        problems.append(pack_problem(f"{FOLDER}/sandbox", message, fix=fix))
    if classes := sorted({name for tier in TIERS for name in _trial_classes(pack, tier)}):
        message = f"no turn of a server would close under this policy package: {', '.join(classes)}"
        is_context_problem = any(name.startswith("context.") for name in classes)
        problems.append(pack_problem(f"{FOLDER}/", message, fix=_context_fix(pack) if is_context_problem else None))
    return tuple(problems)


def _context_fix(pack: Pack) -> str:
    max_batch, max_events = pack.governance.contents["queue"].get("maxBatchSize"), pack.settings.invocation.max_events
    if max_batch is None or max_batch >= max_events:
        return _CONTEXT_FIX
    return f"a run has up to {max_events} events: raise maxBatchSize, or lower [invocation] max_events to it"


def _trial_classes(pack: Pack, tier: str) -> tuple[str, ...]:
    """Return the fail-closed classes of a turn of this risk tier; empty if the turn closes under some pattern."""
    package = pack.governance
    events = [
        {"action": "trial", "status": "success", "detail": str(n)} for n in range(pack.settings.invocation.max_events)
    ]
    first_classes: tuple[str, ...] = ()
    for pattern in get_args(Pattern):
        chain = ChainTerms(
            model_ref=f"rules:{pack.name}@{pack.settings.version}",
            package=package,
            pinned=pack.settings.governance_digest or package.digest,
            actions={},
            plugin_digest=_TRIAL_DIGEST,
            gates=0,
            risk_tier=tier,
            pattern=pattern,
        )
        try:
            turn = Turns(RunTerms("trial", _TRIAL_DIGEST, "confirm:trial", chain)).open()
            turn.admit()
            turn.finish(events=events)
        except GateRefused as refused:
            first_classes = first_classes or refused.classes or (str(refused),)
        else:
            return ()
    return first_classes
