"""The gate of a run: turns of evidence that the harness closes, and that authorise the next effects.

* An effect is the mutation of one turn and a row of the next. A turn contains the effects that its predecessor
  authorised, then calls of tier 0, and ends with the authorisation of the next effects or, the last turn, without one.
* A turn closes only with an outcome of each call that its predecessor authorised, and with no other effect.
* A gate also judges the requests of the next turn, so no effect is authorised that the next turn could not contain.

Each turn is judged in full, at each state. This module has no side effects; the caller writes the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

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
)
from manglecp.harness.policy import TIERS, call_id
from manglecp.invoke.calls import ActionCall, StepOutcome
from manglecp.invoke.evidence import (
    BASE_CLAIM,
    ChainTerms,
    Events,
    Pattern,
    Reads,
    RunTerms,
    States,
    TurnCall,
    TurnEvidence,
    claim_of,
)
from manglecp.pack import FOLDER, Pack, Profile, default_governance, pack_problem

Row: TypeAlias = dict[str, Any]

_NO_READS: Final = Reads()
_NO_STATES: Final[States] = {}

_REFUSED: Final = (TurnBlocked, InvalidEvidence)
"""The exceptions of a turn that cannot reach a state."""


class GateRefused(Exception):
    """The evidence does not permit the next state of a turn.

    ``classes`` are the fail-closed classes of the findings, sorted and unique; empty for contradictory rows.
    """

    def __init__(
        self, state: TurnState, classes: Sequence[str], findings: Sequence[Finding] = (), why: str = ""
    ) -> None:
        super().__init__(f"{state.title} cannot be reached: {', '.join(classes) or why}")
        self.state = state
        self.classes = tuple(classes)
        self.findings = tuple(findings)


def _refusal(error: TurnBlocked | InvalidEvidence, state: TurnState) -> GateRefused:
    if isinstance(error, TurnBlocked):
        classes = sorted({finding.failure.name for finding in error.findings})
        return GateRefused(error.state, classes, error.findings)
    return GateRefused(state, (), (), str(error))


@dataclass(frozen=True, slots=True)
class Resumption:
    """The state from which another process resumes a run."""

    fence: int
    witnesses: tuple[str, ...] = ()
    """The ids of the witnesses of the closed turns, in order."""


class Turns:
    def __init__(self, terms: RunTerms) -> None:
        self.terms = terms
        self.count = 0
        """The number of turns, the current one included."""
        self.past = _Past()
        self.authorised: dict[str, ActionCall] = {}
        """The calls that the last turn authorised, by id."""
        self._newest: tuple[tuple[int, bool, int | None], CallSpec] | None = None
        """The last result of :meth:`call_spec`: a gate judges the next turn before that is opened."""

    def open(self, *, parallel: bool = False, resumed: Resumption | None = None) -> Turn:
        """Open the next turn. ``parallel``: calls of it, or effects of its predecessor, run in parallel."""
        chain = self.terms.chain
        if resumed is None and self.count == 0 and chain.admitted < chain.needed:
            # The run would stop after some of its effects.
            why = f"the chain takes {chain.needed} turns, and its policies admit {chain.admitted}"
            raise GateRefused(TurnState.CALL_SPEC, ("protocol.stop_reason_unhandled",), why=why)
        if resumed is not None:
            self.past = _Past(resumed.witnesses)
            self.count = max(self.count, len(resumed.witnesses))
            self.authorised = {}
        self.count += 1
        return Turn(self, self.count, parallel, resumed)

    def call_spec(self, number: int, parallel: bool, fence: int | None = None) -> CallSpec:
        """Return the call spec of a turn. ``fence`` distinguishes turns of processes that resume the same run."""
        which = (number, parallel, fence)
        if self._newest is None or self._newest[0] != which:
            terms = self.terms
            prompt = terms.admission_digest if fence is None else digest([terms.admission_digest, fence])
            name = call_id(terms.run, number, terms.chain.model_ref, prompt)
            try:
                turn = CallSpec.of(terms.chain.template(terms.approval, parallel=parallel).with_call_id(name))
            except _REFUSED as error:
                raise _refusal(error, TurnState.CALL_SPEC) from error
            self._newest = which, turn
        return self._newest[1]


class Turn:
    """One open turn. Created by :meth:`Turns.open`."""

    def __init__(self, turns: Turns, number: int, parallel: bool, resumed: Resumption | None) -> None:
        self.number = number
        self._turns = turns
        self._parallel = parallel
        self._resumed = resumed
        self._owed = dict(turns.authorised)
        self._evidence = TurnEvidence(turns.terms)
        self._unjudged: list[TurnCall] = []
        """Recorded requests that are judged with the next request or at the end of the turn."""
        self._over = False
        self._fence = None if resumed is None else resumed.fence
        self._state: CallSpec | ToolRequests = turns.call_spec(number, parallel, self._fence)

    # --- records ---------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        self._must_be_open()
        self._record([self._evidence.admission(self.number)])

    def request(self, calls: Sequence[ActionCall]) -> ToolRequests:
        """Request calls of tier 0, which run in parallel, and return the state from which their leases are issued.

        Raises :class:`GateRefused`; refused requests are not recorded.
        """
        self._must_be_open()
        for call in calls:
            if call.is_effect:
                raise ValueError(f"{call.call_id} has an effect, which needs an authorisation")
        requests = self._evidence.requested(calls)
        self._state = state = self._judge(requests)
        self._unjudged = []
        self._evidence.record(requests)
        return state

    def record_outcomes(self, outcomes: Iterable[StepOutcome]) -> None:
        """Record the outcomes of requested calls. A skipped step has no call and no row."""
        self._must_be_open()
        self._evidence.record_outcomes(outcomes)

    def record_effects(self, calls: Sequence[ActionCall], outcomes: Iterable[StepOutcome]) -> None:
        """Record parallel calls: effects that the previous turn authorised, or calls from the journal."""
        self._must_be_open()
        for call in calls:
            if self._resumed is None and call.is_effect and self._owed.get(call.call_id) != call:
                self._evidence.record_ungated(call)
        self._record(self._evidence.requested(calls))
        self._evidence.record_outcomes(outcomes)

    def record_retry(self, call: ActionCall, outcome: StepOutcome) -> None:
        """Record an attempt with an unknown outcome that is repeated."""
        self.record_effects([call], [outcome])
        self._evidence[call.call_id].retry = f"{call.run}/{call.group}/{call.attempt + 1}"

    # --- the end ---------------------------------------------------------------------------------------------------

    def authorize(
        self,
        calls: Sequence[ActionCall],
        *,
        claims: Iterable[str],
        reads: Reads = _NO_READS,
        events: Events = (),
        states: States = _NO_STATES,
    ) -> tuple[MutationReady, Witness]:
        """Close the turn and return the authorisation of exactly these calls, each once, and the witness.

        Raises :class:`GateRefused`; the turn is still open then, and may be finished or authorise other calls.
        """
        self._must_be_open()
        if not calls:
            raise ValueError("no calls to authorise")
        turns = self._turns
        self._judge_next_turn(calls)
        inputs, witnesses, dangling = _dependencies(calls, self._evidence, turns.past)
        refs = sorted([*(one.ref for one in inputs), *dangling])
        mutation = _mutation_of(turns.terms, calls, claims, refs, witnesses)
        chain = turns.terms.chain
        required = chain.package.contents["mutation"].get("requiredCapabilityClaims", ())
        needed = sorted({BASE_CLAIM, *required, *(claim_of(call.action) for call in calls)})
        constraints = {**chain.mutation_constraints, "requiredCapabilityClaims": needed}
        try:
            closed = self._close("tool_use", reads, events, states, inputs)
            ready = closed.authorize(mutation, {"mutationConstraints": constraints})
        except _REFUSED as error:
            raise _refusal(error, TurnState.MUTATION_READY) from error
        turns.authorised = {call.call_id: call for call in calls}
        return ready, self._ended(ready.judgement)

    def finish(
        self,
        *,
        reads: Reads = _NO_READS,
        events: Events = (),
        states: States = _NO_STATES,
        paused: bool = False,
    ) -> Witness:
        """Close the last turn. ``paused``: the run waits for an operator's decision. Raises :class:`GateRefused`."""
        self._must_be_open()
        reason = "pause_turn" if paused else "end_turn"
        try:
            closed = self._close(reason, reads, events, states)
        except _REFUSED as error:
            raise _refusal(error, TurnState.JOIN_CLOSED) from error
        self._turns.authorised = {}
        return self._ended(closed.judgement)

    # --- judgement -------------------------------------------------------------------------------------------------

    def _must_be_open(self) -> None:
        if self._over:
            raise RuntimeError("the turn is over")

    def _record(self, calls: Sequence[TurnCall]) -> None:
        self._evidence.record(calls)
        self._unjudged += calls

    def _judge(self, requests: Sequence[TurnCall]) -> ToolRequests:
        """Return the state with all requests so far and the new ones."""
        state, new = self._state, [*self._unjudged, *requests]
        if not new and isinstance(state, ToolRequests):
            return state
        try:
            return _requested(state, new, max(self._evidence.widest, len(requests)))
        except _REFUSED as error:
            raise _refusal(error, TurnState.TOOL_REQUESTS) from error

    def _judge_next_turn(self, calls: Sequence[ActionCall]) -> None:
        """Raise :class:`GateRefused` for calls that the next turn could not contain."""
        turns = self._turns
        requests = TurnEvidence(turns.terms).requested(calls)
        spec = turns.call_spec(self.number + 1, self._parallel or len(calls) > 1)
        try:
            _requested(spec, requests, len(calls))
        except _REFUSED as error:
            raise _refusal(error, TurnState.TOOL_REQUESTS) from error

    def _close(
        self, reason: str, reads: Reads, events: Events, states: States, inputs: Sequence[TurnCall] | None = None
    ) -> JoinClosed:
        """Close the turn. ``inputs`` are the calls that the next mutation depends on; None at the end of the run."""
        evidence = self._evidence
        # An authorised call without an outcome becomes a request without a result, with which no turn closes.
        owed = [call for name, call in self._owed.items() if name not in evidence]
        requested = self._judge(evidence.requested(owed) if owed else ())
        closing = evidence.closing(self.number, reason, reads, events, states, inputs=inputs, fence=self._fence)
        return requested.close(*closing)

    def _ended(self, judgement: Judgement) -> Witness:
        self._over = True
        self._turns.past.add(judgement.witness_id, self._evidence.calls)
        return Witness(judgement)


def _requested(state: CallSpec | ToolRequests, calls: Sequence[TurnCall], width: int) -> ToolRequests:
    """Return the state with these requests; ``width`` is the largest number of parallel calls."""
    split = {"decomposition": {"mode": "split", "fanOut": width}} if width > 1 else {}
    return state.request([one.row for one in calls], split)


# --- the mutation ---------------------------------------------------------------------------------------------------


class _Past:
    """The closed turns of a run, by the ids of their witnesses."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        """``before`` are the witnesses of turns of another process, in order."""
        self.witnesses = list(before)
        self._admission: str | None = None
        self._steps: dict[int, str] = {}

    def add(self, witness: str, calls: Iterable[TurnCall]) -> None:
        self.witnesses.append(witness)
        for one in calls:
            if one.kind == "admission":
                self._admission = witness
            elif one.kind == "do" and one.retry is None:
                self._steps[one.number] = witness

    def of_step(self, number: int) -> list[str]:
        """Return the witness of the step's turn; all witnesses if the turn belongs to another process."""
        return [self._steps[number]] if number in self._steps else list(self.witnesses)

    def of_admission(self) -> list[str]:
        return list(self.witnesses) if self._admission is None else [self._admission]


def _dependencies(
    calls: Sequence[ActionCall], evidence: TurnEvidence, past: _Past
) -> tuple[list[TurnCall], list[str], list[str]]:
    """Return the calls of this turn and the witnesses that they depend on, and dangling references (to be refused)."""
    results: dict[str, TurnCall] = {}
    witnesses = past.witnesses[-1:]
    dangling: list[str] = []
    sources = {source for call in calls for source in call.sources}
    undoing = [call for call in calls if call.kind == "undo"]
    if undoing:  # an undo depends on the failure and on the step that it reverts
        sources.update(call.number for call in undoing)
        results |= {one.name: one for one in evidence.calls if one.has_failed}
    here = {one.number: one for one in evidence.calls if one.kind == "do"}  # the last attempt at each step
    for source in sorted(sources):
        if source in here:
            results[here[source].name] = here[source]
        elif known := past.of_step(source):
            witnesses += known
        else:
            dangling.append(f"run://{calls[0].run}/s{source}")
    admissions = {one.name: one for one in evidence.calls if one.kind == "admission"}
    results |= admissions
    if not admissions:
        witnesses += past.of_admission()
    return list(results.values()), list(dict.fromkeys(witnesses)), dangling


def _mutation_of(
    terms: RunTerms, calls: Sequence[ActionCall], claims: Iterable[str], inputs: Iterable[str], witnesses: Sequence[str]
) -> dict[str, Any]:
    """Return the row ``mutation`` of the turn, with the id, the tool and the input digest of each call."""
    return {
        "kind": "effect",
        "action": "+".join(sorted({call.action.aid for call in calls})),
        "instructionRef": f"instr1_{terms.admission_digest.removeprefix('sha256:')}",
        "inputRefs": [*inputs, *witnesses],
        "capabilityClaims": sorted(claims),
        "joinWitnessRefs": list(witnesses),
        "calls": [
            {"toolCallId": call.call_id, "toolName": call.action.aid, "inputDigest": call.input_digest}
            for call in calls
        ],
    }


# --- the trial of a policy package ----------------------------------------------------------------------------------

# A server's turns always have one queue, one view, one injection point and one sandbox. A package that requires others
# would fail every turn, after effects: so the shortest turn is judged when the pack is opened. Only problems of
# every run are reported; a package may admit no parallel steps, or no effects.
_NOTHING: Final = digest("a turn on trial")
_FIX: Final = "require the queue events, the view run and the injection point invoke_response, or none"


def check_policy_package(pack: Pack, sandbox: Profile) -> tuple[Diagnostic, ...]:
    """Return why no run of the pack could succeed under its policy package. ``sandbox`` is the profile of its hosts."""
    problems, package = [], pack.governance
    promised = package.contents.get("sandbox", {}).get("profile", sandbox)
    if promised != sandbox and package.digest != default_governance().digest:  # the shipped package binds no hosts
        message = f"profile: turns would be bound to the sandbox {promised}, and the hosts run in {sandbox}"
        fix = f'write profile = "{sandbox}", or have the hosts run in {promised}'
        problems.append(pack_problem(f"{FOLDER}/sandbox", message, fix=fix))
    if refused := sorted({name for tier in TIERS for name in _trial_classes(pack, tier)}):
        message = f"no turn of a server would close under this policy package: {', '.join(refused)}"
        shown = any(name.startswith("context.") for name in refused)
        problems.append(pack_problem(f"{FOLDER}/", message, fix=_trial_fix(pack) if shown else None))
    return tuple(problems)


def _trial_fix(pack: Pack) -> str:
    batch, most = pack.governance.contents["queue"].get("maxBatchSize"), pack.settings.invocation.max_events
    if batch is None or batch >= most:
        return _FIX
    return f"a run has up to {most} events: raise maxBatchSize, or lower [invocation] max_events to it"


def _trial_classes(pack: Pack, tier: str) -> tuple[str, ...]:
    """Return the classes that keep the shortest turn of this tier open; empty if it closes for one pattern."""
    package, most = pack.governance, pack.settings.invocation.max_events
    events = [{"action": "trial", "status": "success", "detail": str(n)} for n in range(most)]
    first: tuple[str, ...] = ()
    for pattern in get_args(Pattern):
        chain = ChainTerms(
            model_ref=f"rules:{pack.name}@{pack.settings.version}",
            package=package,
            pinned=pack.settings.governance_digest or package.digest,
            actions={},
            plugin_digest=_NOTHING,
            gates=0,
            risk_tier=tier,
            pattern=pattern,
        )
        try:
            turn = Turns(RunTerms("trial", _NOTHING, "confirm:trial", chain)).open()
            turn.admit()
            turn.finish(events=events)
        except GateRefused as refused:
            first = first or refused.classes or (str(refused),)
        else:
            return ()
    return first
