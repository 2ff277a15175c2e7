"""The gate of a run: turns of evidence that the harness closes, and the right to the next effect.

* **An effect is the mutation of one turn and a row of the next.** A turn holds the effects that the turn before it
  authorised, the calls of tier 0 that follow them, and ends in the authorisation of the next effect or, the last one,
  in a join without a mutation.
* **Every authorised call is owed a result, and no other is taken.** The next turn does not close without an outcome of
  each call that was authorised, nor with an effect that was not.
* **Nothing is authorised that the next turn could not hold.** A gate also judges the requests that the effects will be.

Every turn is judged in full, at each state. Pure: the caller records what happened, and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from manglecp.base.diagnostic import Diagnostic
from manglecp.harness import (
    Blocked,
    CallSpec,
    Finding,
    InvalidEvidence,
    JoinClosed,
    Judgement,
    MutationReady,
    State,
    ToolRequests,
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

# --- gate ----------------------------------------------------------------------------------------------------------

Row: TypeAlias = dict[str, Any]

_NO_READS: Final = Reads()
_NO_STATES: Final[States] = {}

_REFUSED: Final = (Blocked, InvalidEvidence)
"""What the harness raises instead of a state."""


class GateRefused(Exception):
    """The evidence does not carry the run on: which state it cannot reach, and the classes that keep it from it.

    Rows that contradict one another have no class: nothing follows from them, so ``classes`` is empty.
    """

    def __init__(self, state: State, classes: Sequence[str], findings: Sequence[Finding] = (), why: str = "") -> None:
        super().__init__(f"{state.title} cannot be reached: {', '.join(classes) or why}")
        self.state = state
        self.classes = tuple(classes)
        """Names of the harness, sorted, each once."""
        self.findings = tuple(findings)


def _refusal(error: Blocked | InvalidEvidence, state: State) -> GateRefused:
    """The same for a caller that runs a chain."""
    if isinstance(error, Blocked):
        classes = sorted({finding.failure.name for finding in error.findings})
        return GateRefused(error.state, classes, error.findings)
    return GateRefused(state, (), (), str(error))


@dataclass(frozen=True, slots=True)
class Resumption:
    """What a turn goes on from that someone else began."""

    fence: int
    witnesses: tuple[str, ...] = ()
    """The ids of the witnesses of the run so far, in the order of their turns."""


class Turns:
    """The turns of one run, one after the other."""

    def __init__(self, terms: RunTerms) -> None:
        self.terms = terms
        self.count = 0
        """How many turns there were, this one included."""
        self.past = _Past()
        self.authorised: dict[str, ActionCall] = {}
        """The calls that the last turn authorised, by their ids."""
        self._opened: tuple[tuple[int, bool, int | None], CallSpec] | None = None
        """The newest: a gate looks at the turn after it, which is then the next."""

    def open(self, *, parallel: bool = False, resumed: Resumption | None = None) -> Turn:
        """The next turn. ``parallel``: it will hold calls, or effects of the turn before, that ran side by side."""
        chain = self.terms.chain
        if resumed is None and self.count == 0 and chain.admitted < chain.needed:
            # It would stop with an effect done and others not.
            why = f"the chain takes {chain.needed} turns, and its policies admit {chain.admitted}"
            raise GateRefused(State.CALL_SPEC, ("protocol.stop_reason_unhandled",), why=why)
        if resumed is not None:
            self.past = _Past(resumed.witnesses)
            self.count = max(self.count, len(resumed.witnesses))
            self.authorised = {}
        self.count += 1
        return Turn(self, self.count, parallel, resumed)

    def opened(self, number: int, parallel: bool, fence: int | None = None) -> CallSpec:
        """A turn of which nothing has happened yet. Two who go on from the same turn do not make the same one."""
        which = (number, parallel, fence)
        if self._opened is None or self._opened[0] != which:
            terms = self.terms
            asked = terms.admission_digest if fence is None else digest([terms.admission_digest, fence])
            name = call_id(terms.run, number, terms.chain.model_ref, asked)
            try:
                turn = CallSpec.of(terms.chain.template(terms.approval, parallel=parallel).with_call_id(name))
            except _REFUSED as error:
                raise _refusal(error, State.CALL_SPEC) from error
            self._opened = which, turn
        return self._opened[1]


class Turn:
    """One turn while it happens. Made by :meth:`Turns.open`."""

    def __init__(self, turns: Turns, number: int, parallel: bool, resumed: Resumption | None) -> None:
        self.number = number
        self._turns = turns
        self._parallel = parallel
        self._resumed = resumed
        self._owed = dict(turns.authorised)
        self._evidence = TurnEvidence(turns.terms)
        self._unjudged: list[TurnCall] = []
        """Requests that were recorded and not yet judged: what has happened is judged with what is asked for next."""
        self._over = False
        self._fence = None if resumed is None else resumed.fence
        self._state: CallSpec | ToolRequests = turns.opened(number, parallel, self._fence)

    # --- what happens ----------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Record that the run was admitted."""
        self._must_be_open()
        self._record([self._evidence.admission(self.number)])

    def request(self, calls: Sequence[ActionCall]) -> ToolRequests:
        """Ask to make calls of tier 0; the state that their leases are minted from. More than one run in parallel.

        What is refused leaves no trace in the turn.
        """
        self._must_be_open()
        for call in calls:
            if call.is_effect:
                raise ValueError(f"{call.call_id} has an effect: that is authorised, not requested")
        asked = self._evidence.requested(calls)
        self._state = state = self._judged(asked)
        self._unjudged = []
        self._evidence.record(asked)
        return state

    def answer(self, outcomes: Iterable[StepOutcome]) -> None:
        """Record what came back of requested calls. A step that was skipped was never called and has no row."""
        self._must_be_open()
        self._evidence.answer(outcomes)

    def effects(self, calls: Sequence[ActionCall], outcomes: Iterable[StepOutcome]) -> None:
        """Record what happened before this turn: effects that the turn before authorised, or what a journal holds.

        Calls that are given together ran side by side.
        """
        self._must_be_open()
        for call in calls:
            if self._resumed is None and call.is_effect and self._owed.get(call.call_id) != call:
                self._evidence.record_ungated(call)
        self._record(self._evidence.requested(calls))
        self._evidence.answer(outcomes)

    def retried(self, call: ActionCall, outcome: StepOutcome) -> None:
        """Record an attempt of which nobody knows how it ended, and which is made again."""
        self.effects([call], [outcome])
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
        """Close the turn with the right to make exactly these calls, each once, and the witness of it.

        A turn whose gate was refused is still open: it may be finished, or authorise something else.
        """
        self._must_be_open()
        if not calls:
            raise ValueError("there is nothing to authorise")
        turns = self._turns
        self._foresee(calls)
        inputs, witnesses, nowhere = _rests_on(calls, self._evidence, turns.past)
        refs = sorted([*(one.ref for one in inputs), *nowhere])
        mutation = _mutation_of(turns.terms, calls, claims, refs, witnesses)
        demanded = {
            **turns.terms.chain.mutation_constraints,
            "requiredCapabilityClaims": _claims_needed(turns.terms, calls),
        }
        try:
            closed = self._close("tool_use", reads, events, states, inputs)
            ready = closed.authorize(mutation, {"mutationConstraints": demanded})
        except _REFUSED as error:
            raise _refusal(error, State.MUTATION_READY) from error
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
        """Close the last turn. ``paused``: the run does not end here, it waits for somebody to decide."""
        self._must_be_open()
        reason = "pause_turn" if paused else "end_turn"
        try:
            closed = self._close(reason, reads, events, states)
        except _REFUSED as error:
            raise _refusal(error, State.JOIN_CLOSED) from error
        self._turns.authorised = {}
        return self._ended(closed.judgement)

    # --- how -------------------------------------------------------------------------------------------------------

    def _must_be_open(self) -> None:
        if self._over:
            raise RuntimeError("the turn is over")

    def _record(self, happened: Sequence[TurnCall]) -> None:
        self._evidence.record(happened)
        self._unjudged += happened

    def _judged(self, asked: Sequence[TurnCall]) -> ToolRequests:
        """The state that holds all requests so far and those that are asked for, if they may run."""
        state, new = self._state, [*self._unjudged, *asked]
        if not new and isinstance(state, ToolRequests):
            return state
        try:
            return _requested(state, new, max(self._evidence.widest, len(asked)))
        except _REFUSED as error:
            raise _refusal(error, State.TOOL_REQUESTS) from error

    def _foresee(self, calls: Sequence[ActionCall]) -> None:
        """Refuse what the next turn could not hold."""
        turns = self._turns
        asked = TurnEvidence(turns.terms).requested(calls)
        opened = turns.opened(self.number + 1, self._parallel or len(calls) > 1)
        try:
            _requested(opened, asked, len(calls))
        except _REFUSED as error:
            raise _refusal(error, State.TOOL_REQUESTS) from error

    def _close(
        self, reason: str, reads: Reads, events: Events, states: States, inputs: Sequence[TurnCall] | None = None
    ) -> JoinClosed:
        """``inputs`` are what the mutation rests on that comes next; None if there is none."""
        evidence = self._evidence
        # What was authorised, and of which nobody says what became of it, is a request without a result.
        owed = [call for name, call in self._owed.items() if name not in evidence]
        requested = self._judged(evidence.requested(owed) if owed else ())
        closing = evidence.closing(self.number, reason, reads, events, states, inputs=inputs, fence=self._fence)
        return requested.close(*closing)

    def _ended(self, judgement: Judgement) -> Witness:
        """The witness, which from now on stands for what happened in this turn."""
        self._over = True
        self._turns.past.add(judgement.witness_id, self._evidence.calls)
        return Witness(judgement)


def _requested(state: CallSpec | ToolRequests, calls: Sequence[TurnCall], width: int) -> ToolRequests:
    """The state with these requests; ``width`` is the most calls that run in parallel."""
    split = {"decomposition": {"mode": "split", "fanOut": width}} if width > 1 else {}
    return state.request([one.row for one in calls], split)


# --- the mutation ---------------------------------------------------------------------------------------------------


class _Past:
    """The closed turns of a run, by the ids of their witnesses."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        """``before`` are those of turns that another process made, in their order."""
        self.witnesses = list(before)
        self._admission: str | None = None
        self._steps: dict[int, str] = {}

    def add(self, witness: str, calls: Iterable[TurnCall]) -> None:
        """One more closed turn, and the calls whose results it holds."""
        self.witnesses.append(witness)
        for one in calls:
            if one.kind == "admission":
                self._admission = witness
            elif one.kind == "do" and one.retry is None:
                self._steps[one.number] = witness

    def of_step(self, number: int) -> list[str]:
        """Of turns that another process made it is only known that one of them holds it."""
        return [self._steps[number]] if number in self._steps else list(self.witnesses)

    def of_admission(self) -> list[str]:
        """As :meth:`of_step`, for the admission."""
        return list(self.witnesses) if self._admission is None else [self._admission]


def _claims_needed(terms: RunTerms, calls: Iterable[ActionCall]) -> list[str]:
    """The base claim, one for each action, and what the policies demand of every mutation."""
    demanded = terms.chain.package.contents["mutation"].get("requiredCapabilityClaims", ())
    return sorted({BASE_CLAIM, *demanded, *(claim_of(call.action) for call in calls)})


def _rests_on(
    calls: Sequence[ActionCall], evidence: TurnEvidence, past: _Past
) -> tuple[list[TurnCall], list[str], list[str]]:
    """Results of this turn, witnesses of earlier ones, and refs that nothing leads to: those the harness refuses."""
    results: dict[str, TurnCall] = {}
    witnesses = past.witnesses[-1:]
    nowhere: list[str] = []
    sources = {source for call in calls for source in call.sources}
    undoing = [call for call in calls if call.kind == "undo"]
    if undoing:  # because of what failed, and to take back what was done
        sources.update(call.number for call in undoing)
        results |= {one.name: one for one in evidence.calls if one.has_failed}
    here = {one.number: one for one in evidence.calls if one.kind == "do"}  # the last attempt at each step
    for source in sorted(sources):
        if source in here:
            results[here[source].name] = here[source]
        elif known := past.of_step(source):
            witnesses += known
        else:
            nowhere.append(f"run://{calls[0].run}/s{source}")
    admissions = {one.name: one for one in evidence.calls if one.kind == "admission"}
    results |= admissions
    if not admissions:
        witnesses += past.of_admission()
    return list(results.values()), list(dict.fromkeys(witnesses)), nowhere


def _mutation_of(
    terms: RunTerms, calls: Sequence[ActionCall], claims: Iterable[str], inputs: Iterable[str], witnesses: Sequence[str]
) -> dict[str, Any]:
    """The row ``mutation`` of the turn: it names each call by its id, its tool and the digest of its input."""
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

# A server's turns always have one queue, one view, one injection point and one sandbox. A package that demands others
# would fail every turn, after effects: so the shortest turn is judged when the pack is opened. Only what is true of
# every run is refused; a package that admits no parallel steps, or no effects, is a choice.
_NOTHING: Final = digest("a turn on trial")
_FIX: Final = "ask for the queue events, the view run and the injection point invoke_response, or for none"


def check_policy_package(pack: Pack, sandbox: Profile) -> tuple[Diagnostic, ...]:
    """Why no run of the pack could end well under its policy package. ``sandbox`` is the profile of its hosts."""
    found, package = [], pack.governance
    promised = package.contents.get("sandbox", {}).get("profile", sandbox)
    if promised != sandbox and package.digest != default_governance().digest:  # the shipped package binds no hosts
        message = f"profile: turns would be bound to the sandbox {promised}, and the hosts run in {sandbox}"
        fix = f'write profile = "{sandbox}", or have the hosts run in {promised}'
        found.append(pack_problem(f"{FOLDER}/sandbox", message, fix=fix))
    if refused := sorted({name for tier in TIERS for name in _trial_classes(pack, tier)}):
        message = f"no turn of a server would close under this policy package: {', '.join(refused)}"
        shown = any(name.startswith("context.") for name in refused)
        found.append(pack_problem(f"{FOLDER}/", message, fix=_trial_fix(pack) if shown else None))
    return tuple(found)


def _trial_fix(pack: Pack) -> str:
    batch, most = pack.governance.contents["queue"].get("maxBatchSize"), pack.settings.invocation.max_events
    if batch is None or batch >= most:
        return _FIX
    return f"a run tells up to {most} events: raise maxBatchSize, or lower [invocation] max_events to it"


def _trial_classes(pack: Pack, tier: str) -> tuple[str, ...]:
    """What keeps the shortest turn of this tier from closing; nothing if it closes for one shape of run."""
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
