"""Case 23: wherever a chain fails, whatever can be taken back: what is reported is what stands."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st

from tests.adversarial._invoked import invoked
from tests.effort import examples
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import Fails, Stop, shop

Handling = Literal["stop", "continue", "undo"]
DELTA = 'asserts("done", [N], "server") :- step_status(N, "write", "success").'


@dataclass(frozen=True)
class Case:
    """A chain of reads and effects; which of them fail, and what undoing meets."""

    actions: tuple[Literal["look", "write"], ...]
    fails: frozenset[int]
    handling: tuple[Handling, ...]
    undoable: frozenset[int]
    undo_fails: frozenset[int]
    reversible: bool
    cancel_at: int | None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    actions = draw(st.lists(st.sampled_from(["look", "write"]), min_size=1, max_size=6))
    numbers = st.frozensets(st.integers(1, len(actions)))
    handling = st.sampled_from(["stop", "continue", "undo"])
    possible = draw(numbers | st.just(frozenset(range(1, len(actions) + 1))))
    undoable = frozenset(n for n in possible if actions[n - 1] == "write")
    how = draw(st.lists(handling, min_size=len(actions), max_size=len(actions)))
    return Case(
        actions=tuple(actions),  # type: ignore[arg-type]
        fails=draw(st.frozensets(st.integers(1, len(actions)), max_size=2)),
        handling=tuple("stop" if one == "undo" and not undoable else one for one in how),  # type: ignore[misc]
        undoable=undoable,
        undo_fails=draw(st.frozensets(st.integers(1, len(actions)), max_size=1)),
        reversible=draw(st.booleans()),
        cancel_at=draw(st.none() | st.integers(1, len(actions))),
    )


def expected(case: Case) -> tuple[str | None, list[int], list[int]]:
    """A simple model: how it ends (None: well), which effects stand, and which were taken back."""
    done: list[int] = []
    ended: str | None = None
    undo = False
    for n, name in enumerate(case.actions, 1):
        if n in case.fails:
            if case.handling[n - 1] != "continue":
                ended, undo = "execution_failed", case.handling[n - 1] == "undo" or case.reversible
                break
        elif name == "write":
            done.append(n)
        if case.cancel_at == n:  # also after the last step: who cancels wants nothing to stand
            ended, undo = "cancelled", case.reversible
            break
    undone: list[int] = []
    for n in reversed(done if undo else []):
        if n not in case.undoable or n in case.undo_fails:
            break
        undone.append(n)
    return ended, [n for n in done if n not in undone], sorted(undone)


@pytest.mark.req("INVK-17", "DELTA-13")
@examples(60)
@given(cases())
def test_what_is_reported_is_what_stands(case: Case) -> None:
    asyncio.run(_check(case))


async def _check(case: Case) -> None:
    world: set[int] = set()
    cancel = Stop()
    rules = [
        steps(*case.actions),
        DELTA,
        *(f'arg_value("t", {n}, "n", {n}).' for n in range(1, len(case.actions) + 1)),
        *(f'on_error("t", {n}, "{how}").' for n, how in enumerate(case.handling, 1)),
        *(f'undo_step("t", {n}, "erase"). undo_value("t", {n}, "n", {n}).' for n in sorted(case.undoable)),
        *['reversible("t").'] * case.reversible,
        'summary("Everything was done.") :- ran("t").',
    ]

    def act(name: str) -> Any:
        def work(given: dict[str, Any]) -> dict[str, Any]:
            n = given["n"]
            if name == "erase":
                if n in case.undo_fails:
                    raise Fails
                world.discard(n)
                return given
            if n == case.cancel_at:
                cancel.set()
            if n in case.fails:
                raise Fails
            if name == "write":
                world.add(n)
            return given

        return work

    ended, standing, undone = expected(case)
    async with shop(chain(*rules), {name: act(name) for name in ("look", "write", "erase")}) as s:
        if ended is None:
            answer = await s.invoke("t", {}, cancel=cancel)
            told = [one["args"][0] for one in answer.state_delta.asserts]
        else:
            error = await s.refused("t", {}, cancel=cancel)
            assert error.code == ended
            assert error.details is not None
            effects = {one["step"]: one["status"] for one in error.details["effects"]}
            assert effects == {**dict.fromkeys(standing, "done"), **dict.fromkeys(undone, "undone")}
            told = [one["args"][0] for one in error.details["state_delta"]["assert"]]
            assert "Everything" not in f"{error.message}{error.details}"
        s.ledger()
    assert sorted(told) == standing == sorted(world)


@invoked
async def test_an_effect_in_doubt_is_neither_claimed_nor_denied() -> None:
    def lost(_: dict[str, Any]) -> Any:
        raise Fails("crash", "outcome_unknown")

    undo = 'undo_step("t", 1, "erase"). undo_in("t", 1, "n", "n"). reversible("t").'
    async with shop(chain(steps("write", "erase"), DELTA, undo), {"erase": lost}) as s:
        error = await s.refused("t", {"n": 1})
        assert [name for name, _ in s.bench.ran] == ["write", "erase"]
    assert error.details is not None
    assert [one["status"] for one in error.details["effects"]] == ["done", "unknown"]
    assert [one["args"] for one in error.details["state_delta"]["assert"]] == [[1]]
    assert error.details["reason"] == "needs_decision"
