"""Whatever a chain looks like, and whatever comes of its steps: its turns close, one more than it has gates."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from manglecp.harness.witness import Witness
from manglecp.invoke.model import Call, Outcome, Status
from manglecp.invoke.turns import Reads, Turns
from tests.invoke.turns import ACTIONS, call, check_witnesses, claims, event, outcome, rows, terms

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
    reads = Reads(*(frozenset(data.draw(st.sets(st.integers(1, 18)))) for _ in "ab"))
    witnesses: list[Witness] = []
    done: list[Outcome] = []
    number = 0
    for together in rounds:
        calls: list[Call] = []
        for name in together:
            number += 1
            known = [one.number for one in done if one.status == "done"]
            sources = data.draw(st.sets(st.sampled_from(known))) if known else set()
            calls.append(call(name, number, sources=tuple(sources)))
        ended = [outcome(one, *data.draw(ENDS)) for one in calls]
        if calls[0].is_effect:
            events = [event(one) for one in done]
            _, witness = turn.authorize(calls, claims=claims(NAMES), reads=reads, events=events)
            witnesses.append(witness)
            turn = turns.open(parallel=True)
            turn.effects(calls, ended)
        else:
            turn.request(calls)
            turn.answer(data.draw(st.permutations(ended)))
        done += ended
    witnesses.append(turn.finish(reads=reads, events=[event(one) for one in done]))
    check_witnesses(turns, *witnesses)
    assert turns.count == len(witnesses) == gates + 1
    # every call is a row of exactly one turn
    recorded = [name for witness in witnesses for name in rows(witness, "toolRequests")]
    assert sorted(recorded) == sorted(["admit/1", *(f"s{one}/1" for one in range(1, number + 1))])
