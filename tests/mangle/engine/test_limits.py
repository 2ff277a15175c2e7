"""How much an evaluation may build, hold and take: exact, the same over a base, and checked while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

import pytest

from manglecp.mangle.engine import evaluate
from manglecp.mangle.engine.evaluation import Watchdog, watchdog
from manglecp.mangle.errors import LimitError
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import Limits
from manglecp.mangle.program import built_columns
from manglecp.mangle.values import Name
from tests.mangle import naive
from tests.mangle.engine.changing import NOW, load
from tests.mangle.engine.splitting import Split, split

# --- values --------------------------------------------------------------------------------------------------------

DECLS: Final = 'Decl n(X). Decl s(X). Decl l(X). n(1). n(2). n(3). s("a"). s("abcdefghijklmnopq"). l([1, 2]). l([]).\n'
BUILT: Final = [
    # a list counts itself and its elements; a string counts one, and one more per sixteen characters
    ("p([X]) :- n(X).", {"p": (0,)}, 6),
    ("p(X, [X, X]) :- n(X).", {"p": (1,)}, 9),
    ("p([X]) :- n(X). p([1]) :- n(X).", {"p": (0,)}, 6),
    ("p([]) :- n(1). p([1]) :- p(L), n(X).", {"p": (0,)}, 3),  # once, however often it is derived
    ("p([X]) :- n(X). p(X) :- l(X).", {"p": (0,)}, 10),  # handed on by one rule, built by the other
    ("p([X]) :- n(X). q(X) :- p(X). r(X) :- q(X).", {"p": (0,)}, 6),  # handed on: shared
    ("p(Y) :- s(X), Y = fn:string:concat(X, X).", {"p": (0,)}, 4),
    ("p(Y) :- n(X) |> let Y = fn:number:to_string(X).", {"p": (0,)}, 3),
    ("p(L) :- n(X) |> do fn:group_by(), let L = fn:collect(X).", {"p": (0,)}, 4),
    ("p(T) :- l(L), :match_cons(L, _, T). p(T) :- p(L), :match_cons(L, _, T).", {"p": (0,)}, 3),
    ("p(fn:plus(X, 1)) :- n(X). q(N) :- n(X) |> do fn:group_by(), let N = fn:count().", {}, 0),
    ("p(fn:list:len([X, X])) :- n(X).", {}, 0),
    ("p(fn:list:get([X, X], 0)) :- n(X).", {"p": (0,)}, 3),
    ("p([]). p([X]) :- n(X), !l([X]).", {"p": (0,)}, 7),  # what is given in such a column counts too
    ("p([1]) :- n(X), X > 3. p([1, 2]) :- n(3). q(L) :- p(L), !l([7]).", {"p": (0,)}, 3),
]


def over_a_base(chosen: Split, limits: Limits) -> object:
    *_, base = chosen.bases(check=True)
    return base.evaluate(chosen.request, now=NOW, limits=limits)


@pytest.mark.parametrize(("rules", "columns", "parts"), BUILT)
def test_parts_of_values(rules: str, columns: dict[str, tuple[int, ...]], parts: int) -> None:
    program = load(DECLS + rules, "off")
    assert {key[0]: found for key, found in built_columns(program.rules).items()} == columns
    random = Random(rules)
    ways: list[Callable[[Limits], object]] = [lambda limits: evaluate(program, now=NOW, limits=limits)]
    ways.append(lambda limits: naive.evaluate(program, now=NOW, limits=limits))
    for _ in range(4):
        ways.append(partial(over_a_base, split(program, random)))
    for way in ways:
        way(Limits(parts=parts))
        if parts:
            with pytest.raises(LimitError) as raised:
                way(Limits(parts=parts - 1))
            assert (raised.value.limit, raised.value.unit) == (parts - 1, "parts of values")


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("c(N) :- n(X), n(Y) |> do fn:group_by(), let N = fn:count().", 9),
        ("c(N) :- n(X), n(_) |> do fn:group_by(), let N = fn:count().", 3),  # rows are distinct bindings
        ("c(N) :- n(_) |> do fn:group_by(), let N = fn:count().", 3),  # of one premise: facts
    ],
)
def test_rows(rule: str, rows: int) -> None:
    program = load(DECLS + rule, "off")
    for run in (evaluate, naive.evaluate):
        run(program, now=NOW, limits=Limits(rows=rows))
        with pytest.raises(LimitError) as raised:
            run(program, now=NOW, limits=Limits(rows=rows - 1))
        assert (raised.value.limit, raised.value.unit) == (rows - 1, "rows of one rule")


@pytest.mark.req("EVAL-23")
def test_intervals_of_one_fact() -> None:
    """Counted after those that touch are joined, in the base and the request together."""
    program = load(
        "Decl up(X) temporal bound [/name]. Decl seen(X) temporal bound [/name].\nseen(X)@[S, E] :- up(X)@[S, E]."
    )
    days = [Fact("up", (Name("/a"),), (10 * i, 10 * i + 5)) for i in range(6)]
    base = program.base(days[:3])
    touching = Fact("up", (Name("/a"),), (6, 9))  # joins the first two
    for facts, count in ((days[3:], 6), ([*days[3:], touching], 5)):
        base.evaluate(facts, now=NOW, limits=Limits(intervals=count))
        with pytest.raises(LimitError) as raised:
            base.evaluate(facts, now=NOW, limits=Limits(intervals=count - 1))
        assert raised.value.unit == "intervals of up(/a)"


AGAIN: Final = """
Decl up(X) temporal bound [/name].
Decl again(X) temporal bound [/name].
again(X)@[S, E] :- up(X)@[S, E].
"""


@pytest.mark.req("EVAL-23")
@pytest.mark.parametrize("step", [1, 10**9])
def test_a_recursion_that_shifts_time_is_stopped_by_the_intervals(step: int) -> None:
    """As soon as there is one interval too many: derived facts would stop it much later."""
    shifting = f"again(X)@[U, U] :- again(X)@[T, T], U = fn:time:add(T, fn:duration:from_nanos({2 * step}))."
    program = load(AGAIN + shifting)
    given = [Fact("up", (Name("/a"),), (5 * step, 5 * step)), Fact("again", (Name("/a"),), (6 * step, 6 * step))]
    limits = Limits(intervals=7, derived_facts=60)
    for facts, more in ((given, []), ([], given)):
        with pytest.raises(LimitError) as raised:
            program.base(facts, limits=limits).evaluate(more, now=NOW, limits=limits)
        expected = (60, "derived facts") if step == 1 else (7, "intervals of again(/a)")  # 5, 7 and 6, 8 touch
        assert (raised.value.limit, raised.value.unit) == expected
    with pytest.raises(LimitError) as raised:
        naive.evaluate(load(AGAIN + "up(/a)@[2026-01-01T00:00:00Z]." + shifting), now=NOW, limits=limits)
    assert raised.value.unit == "intervals of again(/a)"


# --- time ----------------------------------------------------------------------------------------------------------

MANY: Final = "Decl go(). Decl n(X) bound [/number].\n" + " ".join(f"n({i})." for i in range(400)) + "\n"
ENDLESS: Final = {
    "facts": "Decl c(X). c(X) :- go(), X = 0. c(fn:plus(X, 1)) :- c(X).",
    "sets": "t(A, B) :- go(), n(A), n(B). t(A, B) :- t(B, C), t(C, A), n(D), n(E), fn:plus(D, E) < 0.",
    "rows": "c(N) :- go(), n(A), n(B), n(C), n(D), D < A |> do fn:group_by(A), let N = fn:max(A).",
    "rows that lead nowhere": "p(A) :- go(), n(A), n(B), n(C), n(D), n(E), fn:plus(A, B, C, D, E) < 0.",
    "rows that lead nowhere early": "p(A) :- go(), n(A), n(B), n(C), n(D), fn:plus(A, B, C, D) < 0, n(E), n(F).",
    "facts that may be lost": "p(A) :- n(A), !q(A). q(A) :- go(), n(A), n(B), n(C), n(D), fn:plus(A, B, C, D) < 0.",
    "interpreted": (
        'Decl d(X, Y) descr [deferred(), mode("+", "-")].\nd(X, Y) :- n(Y), Y < X.\n'
        "p(X, Y, Z) :- go(), n(X), d(X, Y), d(Y, Z), n(W), W < 0."
    ),
}
SOON: Final = 10.0


@pytest.mark.parametrize("name", ENDLESS)
def test_time_is_up(name: str) -> None:
    base = load(MANY + ENDLESS[name], "off").base()
    started = time.monotonic()
    with pytest.raises(LimitError) as raised:
        base.evaluate([Fact("go", ())], now=NOW, limits=Limits(seconds=0.05))
    assert raised.value.unit == "seconds"
    assert time.monotonic() - started < SOON


def test_a_change_of_the_base_can_be_stopped() -> None:
    base = load(MANY + ENDLESS["facts"], "off").base()
    with pytest.raises(LimitError):
        base.with_facts([Fact("go", ())], limits=Limits(seconds=0.05))


def test_deadlines() -> None:
    """They pass in their order, whatever the order they were set in; what is dropped is not held."""
    watchdog = Watchdog()
    passed: list[int] = []
    done = threading.Event()
    watchdog.after(0.8, done.set)
    dropped = [watchdog.after(60, done.set) for _ in range(200)]
    for number, seconds in enumerate((0.3, 0.1, 0.2)):
        watchdog.after(seconds, partial(passed.append, number))
    early = watchdog.after(0.05, partial(passed.append, -1))
    watchdog.drop(early)
    for number in dropped:
        watchdog.drop(number)
    assert len(watchdog) == 4
    watchdog.drop(watchdog.after(60, done.set))  # makes room
    assert done.wait(SOON)
    assert passed == [1, 2, 0]
    assert len(watchdog) == 0
    watchdog.drop(early)
    again = threading.Event()
    watchdog.after(0, again.set)
    assert again.wait(SOON)


def test_an_evaluation_in_time_leaves_no_deadline() -> None:
    base = load("Decl n(X). p(X) :- n(X).", "off").base()
    for _ in range(20):
        base.evaluate([Fact("n", (1,))], now=NOW, limits=Limits(seconds=60))
    assert len(watchdog) == 0
