"""Whatever a chain looks like, and whatever comes of its steps: its turns close, one more than it has gates."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace as replaced

from manglecp.base.digest import digest_text
from manglecp.harness import Witness
from manglecp.invoke.calls import ActionCall, Status, StepOutcome
from manglecp.invoke.evidence import UsedSteps
from manglecp.invoke.gate import GateRefused, Turns
from manglecp.pack import default_governance
from tests.invoke.turns import ACTIONS, call, changed, check_witnesses, claims, event, outcome, rows, terms

NAMES = [name for name, action in ACTIONS.items() if action.tier < 3]
ROUNDS = st.lists(
    st.one_of(
        st.lists(st.sampled_from([name for name in NAMES if ACTIONS[name].tier == 0]), min_size=1, max_size=3),
        st.lists(st.sampled_from([name for name in NAMES if ACTIONS[name].tier > 0]), min_size=1, max_size=3),
    ),
    max_size=6,
)
ENDS: st.SearchStrategy[tuple[Status, str | None]] = st.sampled_from(
    [("done", None), ("failed", "tool_error"), ("failed", "timeout"), ("unknown", "outcome_unknown")]
)


@given(ROUNDS, st.data())
def test_every_chain_closes(rounds: Sequence[Sequence[str]], data: st.DataObject) -> None:
    gates = sum(ACTIONS[together[0]].tier > 0 for together in rounds)
    turns = Turns(terms(*NAMES, gates=gates, pattern="parallel"))
    turn = turns.open(parallel=True)
    turn.admit()
    used = UsedSteps(*(frozenset(data.draw(st.sets(st.integers(1, 18)))) for _ in "ab"))
    witnesses: list[Witness] = []
    done: list[StepOutcome] = []
    number = 0
    for together in rounds:
        calls: list[ActionCall] = []
        for name in together:
            number += 1
            known = [one.number for one in done if one.status == "done"]
            sources = data.draw(st.sets(st.sampled_from(known))) if known else set()
            calls.append(call(name, number, sources=tuple(sources)))
        ended = [outcome(one, *data.draw(ENDS)) for one in calls]
        if calls[0].is_effect:
            events = [event(one) for one in done]
            _, witness = turn.authorize(calls, claims=claims(NAMES), used=used, events=events)
            witnesses.append(witness)
            turn = turns.open(parallel=True)
            turn.record_calls(calls, ended)
        else:
            turn.request(calls)
            turn.record_outcomes(data.draw(st.permutations(ended)))
        done += ended
    witnesses.append(turn.finish(used=used, events=[event(one) for one in done]))
    check_witnesses(turns, *witnesses)
    assert turns.count == len(witnesses) == gates + 1
    # every call is a row of exactly one turn
    recorded = [name for witness in witnesses for name in rows(witness, "toolRequests")]
    assert sorted(recorded) == sorted(["admit/1", *(f"s{one}/1" for one in range(1, number + 1))])


def test_a_digest_that_is_no_text_is_refused_as_ever() -> None:
    """Whether nothing is known of such turns, they are about to be known, or they are."""
    package = changed(default_governance(), render={"injectionPoints": ["invoke_response", "elsewhere"]})

    def turn(number: int, output: str) -> None:
        run = f"r-{number:032x}"
        turns = Turns(terms("read", package=package, run=run, admission_digest=digest_text(run)))
        turn = turns.open()
        turn.admit()
        asked = replaced(call("read", 1), run=run, input_digest=digest_text(f"{run} in"))
        turn.request([asked])
        turn.record_outcomes([replaced(outcome(asked), output_digest=output)])
        turn.finish()

    for known in (0, 1, 5):
        for number in range(known):
            turn(number, digest_text(f"{number} out"))
        with pytest.raises(GateRefused):
            turn(7, "sha256:\ud800")
