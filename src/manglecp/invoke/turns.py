"""The turns of a run: evidence of what happens, closed by the harness, and the right to the next effect.

Three ideas:

* **An effect is the mutation of one turn and a row of the next.** A turn holds the effects that the turn before it
  authorised, the calls of tier 0 that follow them, and ends in the authorisation of the next effect or, the last one,
  in a join without a mutation.
* **What was authorised is owed a result, and nothing else is taken.** The next turn does not close before it says what
  became of every call that was authorised, nor with an effect that was not.
* **Nothing that the next turn could not hold is authorised.** A gate also judges the requests that the effects will be,
  so that no effect happens that could not be accounted for afterwards.

Data meets the modules in this order: ``call_spec`` (under what a turn is made), ``evidence`` (rows), ``happened`` (the
calls of a turn), ``mutation`` (what is authorised, and on what it rests), ``refusal`` (a gate that stays shut), and the
turns here. Pure: whoever runs the chain says what happened, and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from manglecp.harness import (
    Blocked,
    CallSpec,
    JoinClosed,
    Judgement,
    MutationReady,
    State,
    ToolRequests,
    Witness,
    digest_v1 as digest,
    joined,
    judge,
    written,
)
from manglecp.harness.policy import PolicyPackage, call_id
from manglecp.invoke.call_spec import ChainTerms, Frame, RunTerms, constraints_of, mutation_constraints
from manglecp.invoke.calls import Call, Outcome
from manglecp.invoke.evidence import Requested, closing_rows, request_rows
from manglecp.invoke.happened import Events, Happened, Happenings, Reads, States
from manglecp.invoke.mutation import Past, claims_needed, mutation_of, rests_on
from manglecp.invoke.refusal import REFUSED, GateRefused, refusal

__all__ = ["ChainTerms", "GateRefused", "Reads", "Resumption", "RunTerms", "Turn", "Turns"]

Row: TypeAlias = dict[str, Any]

_NO_READS: Final = Reads()
_NO_STATES: Final[States] = {}


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
        self.frame = terms.chain.frame
        self.loaded = terms.chain.package
        """The package in force at this moment."""
        self.count = 0
        """How many turns there were, this one included."""
        self.past = Past()
        self.authorised: dict[str, Call] = {}
        """The calls that the last turn authorised, by their ids."""
        self._opened: tuple[tuple[int, bool, int | None], CallSpec] | None = None
        """The newest: a gate looks at the turn after it, which is then the next."""

    def under(self, package: PolicyPackage) -> None:
        """Say which package is in force now. If it is not the one of the run, no gate opens any more."""
        self.loaded = package

    def open(self, *, parallel: bool = False, resumed: Resumption | None = None) -> Turn:
        """The next turn. ``parallel``: it will hold calls, or effects of the turn before, that ran side by side."""
        if resumed is None and self.count == 0:
            self._refuse_unfinishable()
        if resumed is not None:
            self.past = Past(resumed.witnesses)
            self.count = max(self.count, len(resumed.witnesses))
            self.authorised = {}
        self.count += 1
        return Turn(self, self.count, parallel, resumed)

    def _refuse_unfinishable(self) -> None:
        """A package that admits fewer turns than the chain has would stop it with an effect done and others not."""
        chain = self.terms.chain
        if chain.admitted < chain.needed:
            why = f"the chain takes {chain.needed} turns, and its policies admit {chain.admitted}"
            raise GateRefused(State.CALL_SPEC, ("protocol.stop_reason_unhandled",), why=why)

    def opened(self, number: int, parallel: bool, fence: int | None = None) -> CallSpec:
        """A turn of which nothing has happened yet. Two who go on from the same turn do not make the same one."""
        which = (number, parallel, fence)
        if self._opened is None or self._opened[0] != which:
            terms = self.terms
            asked = terms.admission_digest if fence is None else digest([terms.admission_digest, fence])
            name = call_id(terms.run, number, terms.chain.model_ref, asked)
            try:
                turn = terms.chain.open(name, terms.approval, parallel=parallel)
            except REFUSED as error:
                raise refusal(error, State.CALL_SPEC) from error
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
        self._happened = Happenings(turns.terms, turns.frame)
        self._unjudged: list[Happened] = []
        """Requests that were recorded and not yet judged: what has happened is judged with what is asked for next."""
        self._over = False
        self._fence = None if resumed is None else resumed.fence
        self._state: CallSpec | ToolRequests = turns.opened(number, parallel, self._fence)

    # --- what happens ----------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Record that the run was admitted."""
        self._must_be_open()
        self._record([self._happened.admission(self.number)])

    def request(self, calls: Sequence[Call]) -> ToolRequests:
        """Ask to make calls of tier 0; the state that their leases are minted from. More than one run in parallel.

        What is refused leaves no trace in the turn.
        """
        self._must_be_open()
        for call in calls:
            if call.is_effect:
                raise ValueError(f"{call.call_id} has an effect: that is authorised, not requested")
        asked = self._happened.asked(calls)
        self._state = state = self._judged(asked)
        self._unjudged = []
        self._happened.record(asked)
        return state

    def answer(self, outcomes: Iterable[Outcome]) -> None:
        """Record what came back of requested calls. A step that was skipped was never called and has no row."""
        self._must_be_open()
        self._happened.answer(outcomes)

    def effects(self, calls: Sequence[Call], outcomes: Iterable[Outcome]) -> None:
        """Record what happened before this turn: effects that the turn before authorised, or what a journal holds.

        Calls that are given together ran side by side.
        """
        self._must_be_open()
        for call in calls:
            if self._resumed is None and call.is_effect and self._owed.get(call.call_id) != call:
                self._happened.ungated(call)
        self._record(self._happened.asked(calls))
        self._happened.answer(outcomes)

    def retried(self, call: Call, outcome: Outcome) -> None:
        """Record an attempt of which nobody knows how it ended, and which is made again."""
        self.effects([call], [outcome])
        self._happened[call.call_id].retry = f"{call.group}/{call.attempt + 1}"

    # --- the end ---------------------------------------------------------------------------------------------------

    def authorize(
        self,
        calls: Sequence[Call],
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
        inputs, witnesses, nowhere = rests_on(calls, self._happened, turns.past)
        refs = sorted([*(one.ref for one in inputs), *nowhere])
        mutation = mutation_of(turns.terms, calls, claims, refs, witnesses)
        demanded = {
            **mutation_constraints(turns.loaded),
            "requiredCapabilityClaims": claims_needed(turns.terms, calls),
        }
        try:
            closed = self._close("tool_use", reads, events, states, inputs)
            if turns.loaded.digest != turns.terms.chain.package.digest:
                self._refuse_under(turns.loaded, closed, mutation, demanded)
            ready = closed.authorize(mutation, {"mutationConstraints": demanded})
        except REFUSED as error:
            raise refusal(error, State.MUTATION_READY) from error
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
        except REFUSED as error:
            raise refusal(error, State.JOIN_CLOSED) from error
        self._turns.authorised = {}
        return self._ended(closed.judgement)

    # --- how -------------------------------------------------------------------------------------------------------

    def _must_be_open(self) -> None:
        if self._over:
            raise RuntimeError("the turn is over")

    def _record(self, happened: Sequence[Happened]) -> None:
        self._happened.record(happened)
        self._unjudged += happened

    def _judged(self, asked: Sequence[Happened]) -> ToolRequests:
        """The state that holds all requests so far and those that are asked for, if they may run."""
        state, new = self._state, [*self._unjudged, *asked]
        if not new and isinstance(state, ToolRequests):
            return state
        try:
            return _requested(self._turns.frame, state, new, max(self._happened.widest, len(asked)))
        except REFUSED as error:
            raise refusal(error, State.TOOL_REQUESTS) from error

    def _foresee(self, calls: Sequence[Call]) -> None:
        """Refuse what the next turn could not hold."""
        turns = self._turns
        asked = Happenings(turns.terms, turns.frame).asked(calls)
        opened = turns.opened(self.number + 1, self._parallel or len(calls) > 1)
        try:
            _requested(turns.frame, opened, asked, len(calls))
        except REFUSED as error:
            raise refusal(error, State.TOOL_REQUESTS) from error

    def _close(
        self, reason: str, reads: Reads, events: Events, states: States, inputs: Sequence[Happened] | None = None
    ) -> JoinClosed:
        """``inputs`` are what the mutation rests on that comes next; None if there is none."""
        happened, frame = self._happened, self._turns.frame
        # What was authorised, and of which nobody says what became of it, is a request without a result.
        owed = [call for name, call in self._owed.items() if name not in happened]
        requested = self._judged(happened.asked(owed) if owed else ())
        closing, words = happened.closing(self.number, reason, reads, events, states, inputs=inputs, fence=self._fence)
        if closing.usual and inputs is None:
            form = frame.forms.of(closing, lambda words: joined(*closing_rows(closing, frame.policies, words)), words)
            closed = None if form is None else requested.closed(form, written(words))
            if closed is not None:
                return closed
        return requested.close(*closing_rows(closing, frame.policies, words), of_json=True)

    def _refuse_under(self, loaded: PolicyPackage, closed: JoinClosed, mutation: Row, demanded: Row) -> NoReturn:
        """Judge the turn once more under the package that is in force now. It was made under another one."""
        terms = self._turns.terms
        document = closed.document | constraints_of(terms.chain, terms.approval, loaded)
        document["mutationConstraints"] = demanded
        document["evidence"]["mutation"] = mutation
        raise Blocked(State.MUTATION_READY, judge(document).findings)

    def _ended(self, judgement: Judgement) -> Witness:
        """The witness, which from now on stands for what happened in this turn."""
        self._over = True
        self._turns.past.add(judgement, self._happened.calls)
        return Witness(judgement)


def _requested(frame: Frame, state: CallSpec | ToolRequests, happened: Sequence[Happened], width: int) -> ToolRequests:
    """The state with these requests; ``width`` is how many calls run side by side, at most."""
    asked = tuple([one.request for one in happened])
    words = [word for one in happened for word in (one.run, one.input_digest)]
    form = frame.forms.of((width, asked), lambda words: _more(width, asked, words), words)
    requested = None if form is None else state.requested(form, written(words))
    return requested or state.request(request_rows(asked, words), _split(width), of_json=True)


def _more(width: int, asked: Sequence[Requested], words: Sequence[str]) -> Row:
    return {**_split(width), "toolRequests": request_rows(asked, words)}


def _split(width: int) -> Row:
    """How work is divided: not at all, or side by side."""
    return {"decomposition": {"mode": "split", "fanOut": width}} if width > 1 else {}
