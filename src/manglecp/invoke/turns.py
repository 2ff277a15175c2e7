"""The turns of a run: evidence of what happens, closed by the harness, and the right to the next effect.

Three ideas:

* **An effect is the mutation of one turn and a row of the next.** A turn holds the effects that the turn before it
  authorised, the calls of tier 0 that follow them, and ends in the authorisation of the next effect or, the last one,
  in a join without a mutation.
* **Earlier turns are their witnesses.** What a mutation rests on is a consumed row of its own turn, or the witness of
  the turn that holds the row.
* **Nothing that the next turn could not hold is authorised.** A gate also judges the requests that the effects will be,
  so that no effect happens that could not be accounted for afterwards.

Pure: whoever runs the chain says what happened, and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from manglecp.harness.canonical import digest
from manglecp.harness.classes import State
from manglecp.harness.errors import InvalidEvidence
from manglecp.harness.judging import Judgement, judge
from manglecp.harness.policy.package import PolicyPackage, call_id
from manglecp.harness.states import Blocked, CallSpec, JoinClosed, MutationReady, ToolRequests
from manglecp.harness.witness import witness_of
from manglecp.invoke import evidence
from manglecp.invoke.call_spec import ADMIT, BASE_CLAIM, RunTerms, claim_of, constraints_of, frame_of, spec_of
from manglecp.invoke.model import Call, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from manglecp.harness.findings import Finding

__all__ = ["GateRefused", "Reads", "Resumption", "RunTerms", "Turn", "Turns"]

Row = dict[str, Any]
Witness = dict[str, Any]


class GateRefused(Exception):
    """The evidence does not carry the run on: which state it cannot reach, and the classes that keep it from it."""

    def __init__(self, state: State, classes: Sequence[str], findings: Sequence[Finding] = (), why: str = "") -> None:
        super().__init__(f"{state.title} cannot be reached: {', '.join(classes) or why}")
        self.state = state
        self.classes = tuple(classes)
        self.findings = tuple(findings)


@contextmanager
def _refusing(state: State) -> Iterator[None]:
    try:
        yield
    except Blocked as blocked:
        raise GateRefused(blocked.state, _classes(blocked.findings), blocked.findings) from None
    except InvalidEvidence as bad:  # rows that contradict one another: nothing follows from them
        raise GateRefused(state, (), (), str(bad)) from bad


def _classes(findings: Iterable[Finding]) -> list[str]:
    return sorted({finding.failure.name for finding in findings})


@dataclass(frozen=True, slots=True)
class Reads:
    """Whose results were read, by the numbers of their steps. What nobody read was only observed."""

    steps: frozenset[int] = frozenset()
    """Read by a later step, on the way to a gate where there is one."""
    answer: frozenset[int] = frozenset()
    """Read by the result object, by an extractor, or by a rule."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """What a turn goes on from that someone else began."""

    fence: int
    witnesses: tuple[str, ...] = ()
    """The ids of the witnesses of the run so far, in the order of their turns."""


@dataclass(slots=True)
class _Happened:
    """A call of this turn, with what came of it."""

    request: Row
    number: int | None
    """None for the admission."""
    kind: str
    action: str
    result: Row | None = None
    outcome: Outcome | None = None
    retry: str | None = None


_NO_READS: Final = Reads()
_NOTHING: Final[Mapping[Any, str]] = {}


class Turns:
    """The turns of one run, one after the other."""

    def __init__(self, terms: RunTerms) -> None:
        self.terms = terms
        self.frame = frame_of(terms.package, terms.actions)
        self.loaded = terms.package
        """The package in force at this moment."""
        self.count = 0
        """How many turns were opened."""
        self.witnesses: list[str] = []
        """The ids of the witnesses so far."""
        self.admitted_in: str | None = None
        """The witness of the turn that holds the admission."""
        self.held_by: dict[int, str] = {}
        """By the number of a step, the witness of the turn that holds its result."""
        self.authorised: dict[str, Call] = {}
        """The calls that the last turn authorised, by their ids."""
        self._constraints = constraints_of(self.frame, terms, terms.package)

    def under(self, package: PolicyPackage) -> None:
        """Say which package is in force now. If it is not the one of the run, no gate opens any more."""
        self.loaded = package

    def open(self, *, parallel: bool = False, resumed: Resumption | None = None) -> Turn:
        """The next turn. ``parallel``: it will hold calls, or effects of the turn before, that ran side by side."""
        if resumed is not None:
            self.witnesses = list(resumed.witnesses)
            self.count = max(self.count, len(self.witnesses))
            self.authorised = {}
        self.count += 1
        return Turn(self, self.count, parallel, resumed)

    def spec(self, number: int, parallel: bool, fence: int | None = None) -> Row:
        """The call spec of a turn."""
        terms = self.terms
        said = terms.admission_digest if fence is None else digest([terms.admission_digest, fence])
        name = call_id(terms.run, number, terms.model_ref, said)
        return spec_of(self.frame, terms, call_id=name, parallel=parallel)

    @property
    def constraints(self) -> Row:
        return self._constraints

    def constraints_now(self) -> Row:
        return constraints_of(self.frame, self.terms, self.loaded)

    def witnesses_of(self, step: int) -> list[str]:
        """The turns that hold a step of an earlier turn. Of turns that others made it is only known that one does."""
        return [self.held_by[step]] if step in self.held_by else list(self.witnesses)


class Turn:
    """One turn while it happens. Made by :meth:`Turns.open`."""

    def __init__(self, turns: Turns, number: int, parallel: bool, resumed: Resumption | None) -> None:
        self.number = number
        self._turns = turns
        self._resumed = resumed
        self._owed = dict(turns.authorised)
        self._calls: dict[str, _Happened] = {}
        self._unjudged: list[Row] = []
        """Requests that were recorded and not yet judged: what has happened is judged with what is asked for next."""
        self._stray: list[Row] = []
        """Results of calls that nobody asked for."""
        self._answers = 0
        self._branches: dict[str, str] = {}
        """The call of each branch."""
        self._widest = 1
        self._ungated: list[str] = []
        self._over = False
        self._spec = turns.spec(number, parallel, None if resumed is None else resumed.fence)
        with _refusing(State.CALL_SPEC):
            self._state: CallSpec | ToolRequests = CallSpec.open(self._spec, turns.constraints)

    # --- what happens ----------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Record that the run was admitted."""
        terms = self._turns.terms
        row = evidence.admission_request(terms.run, self.number, len(self._calls))
        result = evidence.admission_result(row["toolCallId"], terms.admission_digest, self._position())
        self._record([_Happened(row, None, "admission", ADMIT, result)])

    def request(self, calls: Sequence[Call]) -> ToolRequests:
        """Ask to make calls of tier 0; the state that their leases are minted from. More than one run in parallel."""
        for call in calls:
            if call.is_effect:
                raise ValueError(f"{call.call_id} has an effect: that is authorised, not requested")
        asked = self._rows(calls, len(self._calls))
        state = self._judge(asked)
        self._record(asked)
        self._state, self._unjudged = state, []
        return state

    def answer(self, outcomes: Iterable[Outcome]) -> None:
        """Record what came back of requested calls. A step that was skipped was never called and has no row."""
        self._must_be_open()
        for outcome in outcomes:
            if outcome.call is None:
                continue
            row = evidence.result_row(outcome.call, outcome, self._turns.terms.plugin_digest, self._position())
            happened = self._calls.get(outcome.call.call_id)
            if happened is None or happened.result is not None:
                self._stray.append(row)
            else:
                happened.result, happened.outcome = row, outcome

    def effects(self, calls: Sequence[Call], outcomes: Sequence[Outcome]) -> None:
        """Record what happened before this turn: effects that the turn before authorised, and what a journal holds."""
        for call in calls:
            authorised = self._turns.authorised.get(call.call_id)
            if self._resumed is None and call.is_effect and authorised != call:
                self._ungated.append(call.call_id)
        self._record(self._rows(calls, len(self._calls)))
        self.answer(outcomes)

    def retried(self, call: Call, outcome: Outcome) -> None:
        """Record an attempt of which nobody knows how it ended, and which is made again."""
        self.effects([call], [outcome])
        run, group = self._turns.terms.run, call.group
        self._calls[call.call_id].retry = f"{run}/{group}/{call.attempt + 1}"

    # --- the end ---------------------------------------------------------------------------------------------------

    def authorize(
        self,
        calls: Sequence[Call],
        *,
        claims: Iterable[str],
        reads: Reads = _NO_READS,
        events: Sequence[Mapping[str, Any]] = (),
        states: Mapping[Any, str] = _NOTHING,
    ) -> tuple[MutationReady, Witness]:
        """Close the turn with the right to make exactly these calls, and the witness of it."""
        if not calls:
            raise ValueError("there is nothing to authorise")
        turns = self._turns
        self._foresee(calls)
        mutation, inputs = self._mutation(calls, claims)
        protocol = {"stopReason": "tool_use", "continuationAllowed": True, "turnIndex": self.number}
        if turns.terms.approval is not None:
            protocol["checkpointRef"] = turns.terms.approval
        demanded = {
            **turns.constraints_now().get("mutationConstraints", {}),
            "requiredCapabilityClaims": sorted(self._claims_needed(calls)),
        }
        with _refusing(State.MUTATION_READY):
            closed = self._close(protocol, self._uses(reads, inputs), events, states)
            if turns.loaded.digest != turns.terms.package.digest:
                self._refuse_under_new_policy(closed, mutation, demanded)
            ready = closed.authorize(mutation, {"mutationConstraints": demanded})
        turns.authorised = {call.call_id: call for call in calls}
        return ready, self._closed(ready.judgement)

    def finish(
        self,
        *,
        reads: Reads = _NO_READS,
        events: Sequence[Mapping[str, Any]] = (),
        states: Mapping[Any, str] = _NOTHING,
        paused: bool = False,
    ) -> Witness:
        """Close the last turn. ``paused``: the run does not end here, it waits for somebody to decide."""
        reason = "pause_turn" if paused else "end_turn"
        protocol = {"stopReason": reason, "continuationAllowed": False, "turnIndex": self.number}
        with _refusing(State.JOIN_CLOSED):
            closed = self._close(protocol, self._uses(reads, None), events, states)
        self._turns.authorised = {}
        return self._closed(closed.judgement)

    # --- how ---------------------------------------------------------------------------------------------------------

    def _must_be_open(self) -> None:
        if self._over:
            raise RuntimeError("the turn is over")

    def _position(self) -> int:
        self._answers += 1
        return self._answers - 1

    def _rows(self, calls: Sequence[Call], first: int) -> list[_Happened]:
        several = len(calls) > 1
        group = "+".join(call.group for call in calls)
        return [
            _Happened(
                evidence.request_row(call, self._turns.frame, first + place, group, branch=several),
                call.number,
                call.kind,
                call.action.name,
            )
            for place, call in enumerate(calls)
        ]

    def _record(self, happened: Sequence[_Happened]) -> None:
        self._must_be_open()
        for one in happened:
            name = one.request["toolCallId"]
            self._calls[name] = one
            self._unjudged.append(one.request)
            if "branchId" in one.request:
                self._branches[one.request["branchId"]] = name
        self._widest = max(self._widest, len(happened))

    def _judge(self, asked: Sequence[_Happened] = ()) -> ToolRequests:
        """The state that holds all requests so far and those that are asked for, if they may run."""
        with _refusing(State.TOOL_REQUESTS):
            return self._state.request([*self._unjudged, *(one.request for one in asked)])

    def _foresee(self, calls: Sequence[Call]) -> None:
        """Refuse what the next turn could not hold."""
        turns = self._turns
        with _refusing(State.TOOL_REQUESTS):
            spec = turns.spec(self.number + 1, len(calls) > 1)
            CallSpec.open(spec, turns.constraints).request([one.request for one in self._rows(calls, 0)])

    def _claims_needed(self, calls: Sequence[Call]) -> set[str]:
        demanded = self._turns.terms.package.contents["mutation"].get("requiredCapabilityClaims", ())
        return {BASE_CLAIM, *demanded, *(claim_of(call.action) for call in calls)}

    def _mutation(self, calls: Sequence[Call], claims: Iterable[str]) -> tuple[Row, set[str]]:
        """The mutation, and the ids of the calls of this turn that it rests on."""
        turns = self._turns
        run = turns.terms.run
        own: set[str] = set()
        refs: list[str] = []
        earlier: list[str] = turns.witnesses[-1:]
        sources = {source for call in calls for source in call.sources}
        if any(call.kind == "undo" for call in calls):
            sources.update(call.number for call in calls)
            own.update(name for name, one in self._calls.items() if one.kind == "do" and _failed(one))
        answered = {one.number: name for name, one in self._calls.items() if one.kind == "do" and one.retry is None}
        for source in sorted(sources):
            if source in answered:
                own.add(answered[source])
            elif known := turns.witnesses_of(source):
                earlier += known
            else:
                refs.append(_step_ref(run, "do", source))  # nothing covers it, and the harness says so
        admission = next((name for name, one in self._calls.items() if one.number is None), None)
        if admission is not None:
            own.add(admission)
        elif turns.admitted_in is not None:
            earlier.append(turns.admitted_in)
        else:
            earlier += turns.witnesses
        if self._resumed is not None:
            earlier += self._resumed.witnesses
        refs += [self._ref(name) for name in own]
        known_joins = list(dict.fromkeys(earlier))
        mutation: Row = {
            "kind": "effect",
            "action": "+".join(sorted({call.action.aid for call in calls})),
            "instructionRef": f"instr1_{turns.terms.admission_digest.removeprefix('sha256:')}",
            "inputRefs": sorted(refs) + known_joins,
            "capabilityClaims": sorted(claims),
            "joinWitnessRefs": known_joins,
            "calls": [
                {"toolCallId": call.call_id, "toolName": call.action.aid, "inputDigest": call.input_digest}
                for call in calls
            ],
        }
        return mutation, own

    def _ref(self, name: str) -> str:
        """What a mutation calls the result of a call of this turn."""
        one, terms = self._calls[name], self._turns.terms
        if one.number is None:
            return f"admission:{terms.admission_digest}"
        return _step_ref(terms.run, one.kind, one.number)

    def _uses(self, reads: Reads, inputs: set[str] | None) -> list[Row]:
        """What became of every result. ``inputs`` are those that the mutation rests on; None if there is none."""
        response = f"response:{self._turns.terms.run}"
        rows = []
        for name, one in self._calls.items():
            if one.result is None:
                continue
            gate = summary = None
            if one.retry is None:
                done = one.kind == "do" and one.outcome is not None and one.outcome.status == "done"
                read_by_step = done and one.number in reads.steps
                if inputs is not None and (name in inputs or read_by_step):
                    gate = self._ref(name)
                if one.number is None:
                    summary = None if gate else self._ref(name)
                elif (done and one.number in reads.answer) or (read_by_step and inputs is None):
                    summary = response
            rows.append(evidence.use_row(one.result, gate=gate, summary=summary, retry=one.retry))
        return rows

    def _close(
        self, protocol: Row, uses: list[Row], events: Sequence[Mapping[str, Any]], states: Mapping[Any, str]
    ) -> JoinClosed:
        self._must_be_open()
        turns, spec = self._turns, self._spec
        terms = turns.terms
        missing = [call for name, call in self._owed.items() if name not in self._calls]
        if missing:  # authorised, and nobody says what became of it: a request without a result
            self._record(self._rows(missing, len(self._calls)))
        if self._unjudged or not isinstance(self._state, ToolRequests):
            self._state, self._unjudged = self._judge(), []
        state = self._state
        happened = [one for one in self._calls.values() if one.result is not None]
        results = [one.result for one in happened if one.result is not None] + self._stray
        shown: Row = {
            "toolRender": evidence.render_rows(
                [(one.result, one.action, one.outcome) for one in happened if one.result is not None],
                events,
                spec["toolRenderProtocolDigest"],
            ),
            "reminderQueue": [
                evidence.queue_row(
                    events,
                    spec["reminderQueuePolicyDigest"],
                    dedup=bool(terms.package.contents["queue"].get("dedup")),
                )
            ],
            "stateViews": [evidence.view_row(terms.run, self.number, states, spec["stateViewPolicyDigest"])],
            "sessionRefs": [f"run://{terms.run}"],
            "trajectoryRefs": [f"run://{terms.run}/{self.number}"],
        }
        if self._resumed is not None:
            shown["continuity"] = {"mode": "descent", "handoffRef": f"journal://{terms.run}/{self._resumed.fence}"}
        return state.answer(results, self._decided(happened)).use(uses).close(protocol, shown)

    def _decided(self, happened: Sequence[_Happened]) -> Row:
        """Decisions of guardrails, and how parallel groups came together."""
        found: Row = {
            "guardrailDecisions": evidence.guardrail_rows(
                self._spec.get("guardrailStagePolicyDigest"),
                approval=self._turns.terms.approval,
                ungated=self._ungated,
                misshapen=[
                    one.request["toolCallId"]
                    for one in happened
                    if one.outcome is not None and one.outcome.code == evidence.BAD_OUTPUT
                ],
            )
        }
        if self._branches:
            answered = {one.request["toolCallId"] for one in happened}
            found["branchJoins"] = [
                {"branchId": branch, "joinClosed": call in answered} for branch, call in self._branches.items()
            ]
            found["decomposition"] = {"mode": "split", "fanOut": self._widest}
        return found

    def _refuse_under_new_policy(self, closed: JoinClosed, mutation: Row, demanded: Row) -> None:
        """Judge the turn once more under the package that is in force now: it was made under another one."""
        now = {**self._turns.constraints_now(), "mutationConstraints": demanded}
        document = closed.document
        document["evidence"]["mutation"] = mutation
        judgement = judge({**document, **now})
        raise Blocked(State.MUTATION_READY, judgement.findings)

    def _closed(self, judgement: Judgement) -> Witness:
        """The witness, which from now on stands for the rows of this turn."""
        self._over = True
        turns = self._turns
        turns.witnesses.append(judgement.witness_id)
        for one in self._calls.values():
            if one.number is None:
                turns.admitted_in = judgement.witness_id
            elif one.kind == "do" and one.retry is None:
                turns.held_by[one.number] = judgement.witness_id
        return witness_of(judgement)


def _step_ref(run: str, kind: str, number: int) -> str:
    return f"run://{run}/{'s' if kind == 'do' else 'u'}{number}"


def _failed(one: _Happened) -> bool:
    return one.retry is None and one.outcome is not None and one.outcome.status in ("failed", "unknown")
