"""A base is shared by requests: by many at once, at different times, and none leaves a trace."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from manglecp.base.source import Span
from manglecp.mangle.engine import Base, evaluate
from manglecp.mangle.errors import EvalError, LimitError
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import Limits
from tests.mangle.engine.changing import World, load
from tests.mangle.engine.splitting import Answer, oracle

WORLD = World("""
Decl edge(X, Y) bound [/number, /number].
Decl hidden(X) bound [/number].
Decl path(X, Y) bound [/number, /number].
Decl shown(X, Y) bound [/number, /number].
Decl degree(X, N) bound [/number, /number].
Decl far(X) bound [/number].
path(X, Y) :- edge(X, Y).
path(X, Z) :- path(X, Y), edge(Y, Z).
shown(X, Y) :- path(X, Y), !hidden(X), !hidden(Y).
degree(X, N) :- shown(X, Y) |> do fn:group_by(X), let N = fn:count().
far(X) :- degree(X, N), N > 3.
""")
GIVEN = " ".join(f"edge({i},{i + 1})" for i in range(12))
REQUESTS = [
    *(f"hidden({i}) edge({i},{(5 * i) % 7})" for i in range(8)),
    *(f"edge({i + 20},{i}) edge({i},{i + 20})" for i in range(8)),
]


@pytest.fixture
def busy() -> Iterator[None]:
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.no_cover
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("attempt", range(3))
def test_threads_share_a_base(attempt: int) -> None:
    want = [WORLD.want(f"{GIVEN} {request}") for request in REQUESTS]
    requests = [WORLD.facts(request) for request in REQUESTS]
    base = WORLD.base(GIVEN)  # its functions and indexes are made while the threads run

    def answer(number: int) -> bool:
        chosen = (number * 7 + attempt) % len(requests)
        return Answer.of(base.evaluate(requests[chosen], now=0)) == want[chosen]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(answer, range(96)))


@pytest.mark.usefixtures("busy")
def test_threads_make_bases_from_one() -> None:
    base = WORLD.base(GIVEN)

    def changed(request: str) -> bool:
        other = base.with_facts(WORLD.facts(request), WORLD.facts("edge(3,4)"))
        left = " ".join(fact for fact in GIVEN.split() if fact != "edge(3,4)" or fact in request.split())
        return WORLD.ask(other) == WORLD.want(f"{left} {request}")

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(changed, REQUESTS))
    WORLD.agrees(base, "", GIVEN)


def contents(base: Base) -> list[tuple[frozenset[object], frozenset[object]]]:
    relations = zip(base.layer.facts, base.layer.given, strict=True)
    return [(frozenset(frozen.facts), frozenset(given)) for frozen, given in relations]


def test_no_request_changes_the_next_answer() -> None:
    base = WORLD.base(GIVEN)
    before = contents(base)
    first = WORLD.ask(base)
    for request in REQUESTS:
        answer = WORLD.agrees(base, request, f"{GIVEN} {request}")
        assert WORLD.ask(base, request) == answer
        base.with_facts(WORLD.facts(request), WORLD.facts(GIVEN))
        with pytest.raises(LimitError):
            base.evaluate(WORLD.facts(request), now=0, limits=Limits(derived_facts=answer.derived - 1))
        assert WORLD.ask(base) == first
    assert contents(base) == before


def test_results_stay_as_they_are() -> None:
    base = WORLD.base(GIVEN)
    result = base.evaluate(WORLD.facts(REQUESTS[0]), now=0)
    before = result.facts()
    base.evaluate(WORLD.facts(REQUESTS[9]), now=0)
    base.with_facts(WORLD.facts(REQUESTS[10]))
    assert result.facts() == before
    assert result.query("far(X)") == result.facts("far")


# --- the time belongs to the request -------------------------------------------------------------------------------

CLOCK = """
Decl open(X) temporal bound [/name].
Decl at(T) bound [/time].
Decl now_open(X) bound [/name].
Decl lately(X) bound [/name].
Decl since(X) temporal bound [/name].
Decl count(N) bound [/number].
open(/shop)@[2026-01-01, 2026-01-10].
open(/bar)@[2026-01-05, _].
open(/stall)@[now].
at(fn:time:now()).
now_open(X) :- open(X)@[now].
lately(X) :- <-[3d] open(X).
since(X)@[S, now] :- open(X)@[S, _].
count(N) :- now_open(X) |> do fn:group_by(), let N = fn:count().
"""
DAYS = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 4, 5, 9, 10, 11, 14, 30)]


def test_each_request_has_its_own_time() -> None:
    program = load(CLOCK)
    base = program.base()
    for day in [*DAYS, *reversed(DAYS)]:
        now = int(day.timestamp()) * 10**9
        want = oracle(program, now)
        assert Answer.of(base.evaluate(now=now)) == want
        assert Answer.of(evaluate(program, now=now)) == want
        assert Answer.of(base.with_facts().evaluate(now=now)) == want


LATE = World("""
Decl e(X) temporal bound [/name].
Decl p(X) temporal bound [/name].
p(X)@[_, now] :- <-[1s] e(X).
""")


def test_given_facts_of_a_predicate_that_waits_for_the_time() -> None:
    """A base cannot derive p yet, but what is given for it is there."""
    base = LATE.base("p(/a)@[2026-01-10]")
    assert LATE.agrees(base, "", "p(/a)@[2026-01-10]").facts == ("p(/a)@[2026-01-10T00:00:00Z]",)
    more = base.with_facts(LATE.facts("p(/a)@[2026-01-11] p(/b)@[2026-01-11] e(/a)@[2026-01-11,_]"))
    everything = "p(/a)@[2026-01-10] p(/a)@[2026-01-11] p(/b)@[2026-01-11] e(/a)@[2026-01-11,_]"
    LATE.agrees(more, "", everything)
    LATE.agrees(more, "e(/b)@[2026-01-01,_]", f"{everything} e(/b)@[2026-01-01,_]")
    less = more.with_facts((), LATE.facts("p(/a)@[2026-01-10]"))
    LATE.agrees(less, "", everything.removeprefix("p(/a)@[2026-01-10] "))


def test_without_a_time_the_clock_decides() -> None:
    result = load(CLOCK).base().evaluate()
    assert abs(result.now - int(datetime.now(UTC).timestamp() * 10**9)) < 60 * 10**9


# --- errors --------------------------------------------------------------------------------------------------------

DIVISION = World("""
Decl given(X) bound [/number].
Decl extra(X) bound [/number].
Decl guard(X) bound [/number].
Decl share(X, Y) bound [/number, /number].
share(X, Y) :- given(X), extra(Z), !guard(Z), Y = fn:div(X, Z).
""")


def test_an_error_names_the_place_whatever_the_base_holds() -> None:
    base = DIVISION.base("given(1) given(2)")
    everything = "given(1) given(2) extra(0)"
    for way in (base, DIVISION.base(), DIVISION.base("given(1)")):
        with pytest.raises(EvalError) as raised:
            way.evaluate(DIVISION.facts(everything), now=0)
        (diagnostic,) = raised.value.diagnostics
        assert isinstance(diagnostic.span, Span)
        assert "fn:div" in (diagnostic.clause or "")
    DIVISION.agrees(base, "extra(0) guard(0)", f"{everything} guard(0)")
    DIVISION.agrees(base, "extra(1)", "given(1) given(2) extra(1)")


def test_a_base_that_is_sound_only_with_a_request_is_refused() -> None:
    with pytest.raises(EvalError):
        DIVISION.base("given(1) extra(0)")
    base = DIVISION.base("given(1) extra(0) guard(0)")
    with pytest.raises(EvalError):
        base.with_facts((), [Fact("guard", (0,))])
    DIVISION.agrees(base, "", "given(1) extra(0) guard(0)")
