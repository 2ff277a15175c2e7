"""Case 8: programs that never stop or never seem to. Each ends at the limit, soon and in little memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Final

import pytest

from manglecp.mangle import EvalError, Fact, LimitError, Limits, Program, Source, evaluate

pytestmark = pytest.mark.no_cover

LIMIT: Final = 5_000
FEWER: Final = {"sums of all": 1_000, "lists": 1_000}
"""The limit counts facts. Rows that lead to nothing new and the size of values cost time and memory besides."""
SECONDS: Final = 30.0  # of CPU time, measured as it runs under coverage on a slow machine
MEGABYTES: Final = 32
NUMBERS: Final = "Decl n(X) bound [/number].\n" + " ".join(f"n({i})." for i in range(100)) + "\n"
BOMBS: Final = {
    "counting": "Decl c(X) bound [/number]. c(0). c(fn:plus(X, 1)) :- c(X).",
    "counting, kinds unknown": "Decl c(X). c(0). c(Y) :- c(X), Y = fn:plus(X, 1).",
    "counting in turns": "Decl a(X). Decl b(X). a(0). b(fn:plus(X, 1)) :- a(X). a(fn:plus(X, 1)) :- b(X).",
    "pairs of numbers": "Decl p(X, Y). p(0, 0). p(fn:plus(X, 1), Y) :- p(X, Y). p(X, fn:plus(Y, 1)) :- p(X, Y).",
    "sums of all": "Decl s(X). s(1). s(2). s(fn:plus(X, fn:mult(Y, 3))) :- s(X), s(Y).",
    "cross product": NUMBERS + "q(A, B, C, D) :- n(A), n(B), n(C), n(D).",
    "cross product in recursion": NUMBERS + "r(A, B, C) :- n(A), n(B), n(C). r(B, A, C) :- r(A, B, C), n(C).",
    "wide closure": NUMBERS + "t(A, B) :- n(A), n(B). t(fn:plus(A, 100), B) :- t(A, B).",
    "lists": "Decl l(X). l([]). l(fn:list:cons(1, L)) :- l(L).",
    "lists of lists": "Decl l(X). l([]). l(fn:list(A, B)) :- l(A), l(B).",
    "time that steps on": """
        Decl tick(X) temporal bound [/name].
        tick(/a)@[2026-01-01].
        tick(/a)@[T1, T1] :- tick(/a)@[T], T1 = fn:time:add(T, fn:duration:parse("2s")).
    """,
    "intervals that grow": """
        Decl on(X) temporal bound [/name].
        on(/a)@[2026-01-01, 2026-01-02].
        on(/a)@[S, E1] :- on(/a)@[S, E], E1 = fn:time:add(E, fn:duration:parse("1s")).
    """,
}


def fresh(program: Program, limits: Limits) -> object:
    return evaluate(program, now=0, limits=limits)


def prepared(program: Program, limits: Limits) -> object:
    return program.base(limits=limits)


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("run", [fresh, prepared])
def test_it_ends_at_the_limit(name: str, run: Callable[[Program, Limits], object]) -> None:
    program = Program.load([Source("bomb.mg", BOMBS[name])], bounds="off")
    limits = Limits(derived_facts=FEWER.get(name, LIMIT))
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(LimitError) as raised:
            run(program, limits)
        seconds = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
    assert raised.value.limit == (limits.intervals if name == "time that steps on" else limits.derived_facts)
    assert seconds < SECONDS
    assert peak < MEGABYTES


def test_a_request_that_is_a_bomb_leaves_the_base_as_it_was() -> None:
    text = NUMBERS + "Decl go() . q(A, B, C, D) :- go(), n(A), n(B), n(C), n(D). even(X) :- n(X), X < 3."
    program = Program.load([Source("bomb.mg", text)])
    base = program.base()
    before = base.evaluate(now=0).facts()
    for _ in range(3):
        with pytest.raises(LimitError):
            base.evaluate([Fact("go", ())], now=0, limits=Limits(derived_facts=LIMIT))
        assert base.evaluate(now=0).facts() == before


def test_values_that_double_in_size() -> None:
    """Few facts, each twice as large: the size of a value has a limit of its own."""
    text = 'Decl s(X). s("ab"). s(fn:string:concat(X, X)) :- s(X).'
    program = Program.load([Source("bomb.mg", text)], bounds="off")
    start = time.process_time()
    with pytest.raises(EvalError):
        evaluate(program, now=0)
    assert time.process_time() - start < SECONDS
