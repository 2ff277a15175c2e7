"""Whatever a chain looks like, and whatever comes of its steps: its turns close, one more than it has gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace as replaced

from manglecp.base.digest import digest_text
from manglecp.harness import Witness
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.invoke.calls import Call, Outcome, Status
from manglecp.invoke.forms import Forms
from manglecp.invoke.turns import GateRefused, Reads, Turns
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


@given(
    st.lists(st.tuples(st.sampled_from(["read", "look"]), ENDS), max_size=3),
    st.sets(st.integers(1, 3)),
    st.sampled_from(["run-7", f"r-{'7' * 32}"]),
)
def test_turns_that_come_again_are_told_as_the_first_one(
    steps: Sequence[tuple[str, tuple[Status, str | None]]], read: set[int], name: str
) -> None:
    """Whatever their runs, inputs and results are. Events may be the same, and then are in the queue once."""

    def turn(number: int, paused: bool, alike: bool, *, plain: bool = False) -> bytes:
        run = name.replace("7", str(number))
        turns = Turns(terms("read", "look", run=run, admission_digest=digest_text(run)))
        if plain:
            turns.frame = replace(turns.frame, forms=Forms())  # that know of none
        turn = turns.open()
        turn.admit()
        events = []
        for place, (action, end) in enumerate(steps, 1):
            asked = replaced(call(action, place), run=run, input_digest=digest_text(f"{run} {place} in"))
            turn.request([asked])
            ended = outcome(asked, *end)
            turn.answer([ended])
            events.append({**event(ended), "detail": 0 if alike else place})
        witness = turn.finish(reads=Reads(frozenset(read)), events=events, paused=paused)
        check_witnesses(turns, witness)
        return bytes(witness.written)

    for number in range(1, 8):
        for how in product((False, True), repeat=2):
            assert turn(number, *how) == turn(number, *how, plain=True)


def test_a_digest_of_several_lines_is_told_as_it_is() -> None:
    """It does not pass for two: of events that are the same, and in the queue once, there may be one or several."""
    package = changed(default_governance(), queue={"dedup": True})

    def turn(number: int, times: int, output: str, *, plain: bool = False) -> bytes:
        run = f"r-{number:032x}"
        turns = Turns(terms("read", package=package, run=run, admission_digest=digest_text(run)))
        if plain:
            turns.frame = replace(turns.frame, forms=Forms())
        turn = turns.open()
        turn.admit()
        asked = replaced(call("read", 1), run=run, input_digest=digest_text(f"{run} in"))
        turn.request([asked])
        turn.answer([replaced(outcome(asked), output_digest=output)])
        return bytes(turn.finish(events=[told(number)] * times).written)

    def told(number: int) -> dict[str, Any]:
        return {"action": "another", "status": "success", "detail": number}

    for number in range(1, 6):
        turn(number, 2, digest_text(f"{number} out"))
    odd = f"{digest_text('out')}\n{digest(told(7))}"
    assert turn(7, 1, odd) == turn(7, 1, odd, plain=True)


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
        turn.answer([replaced(outcome(asked), output_digest=output)])
        turn.finish()

    for known in (0, 1, 5):
        for number in range(known):
            turn(number, digest_text(f"{number} out"))
        with pytest.raises(GateRefused):
            turn(7, "sha256:\ud800")
