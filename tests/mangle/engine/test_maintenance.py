"""Facts come and go: what follows from them follows."""

from __future__ import annotations

from random import Random

import pytest

from tests.mangle.engine.changing import World, maintained, only
from tests.mangle.engine.splitting import difference

NEGATION = World("""
Decl item(X) bound [/name].
Decl blocked(X, Y) bound [/name, /name].
Decl free(X) bound [/name].
Decl open(X, Y) bound [/name, /name].
Decl quiet() .
free(X) :- item(X), !blocked(X, _).
open(X, Y) :- item(X), item(Y), !blocked(X, Y).
quiet() :- item(_), !free(/a).
""")


def test_a_request_takes_facts_away() -> None:
    base = NEGATION.base("item(/a) item(/b)")
    before = NEGATION.agrees(base, "", "item(/a) item(/b)")
    assert only(before, "free") == ["free(/a)", "free(/b)"]
    answer = NEGATION.agrees(base, "blocked(/a,/b)", "item(/a) item(/b) blocked(/a,/b)")
    assert only(answer, "free") == ["free(/b)"]
    assert only(answer, "quiet") == ["quiet()"]
    assert maintained(base, "free")
    assert maintained(base, "open")
    assert NEGATION.agrees(base, "", "item(/a) item(/b)") == before


def test_facts_of_the_base_are_taken_away() -> None:
    base = NEGATION.base("item(/a) item(/b) blocked(/a,/b) blocked(/a,/a)")
    less = base.with_facts((), NEGATION.facts("blocked(/a,/b)"))
    NEGATION.agrees(less, "", "item(/a) item(/b) blocked(/a,/a)")
    none = less.with_facts((), NEGATION.facts("blocked(/a,/a) item(/b)"))
    assert only(NEGATION.agrees(none, "", "item(/a)"), "open") == ["open(/a,/a)"]
    NEGATION.agrees(base, "", "item(/a) item(/b) blocked(/a,/b) blocked(/a,/a)")


def test_what_was_never_given_cannot_be_taken_away() -> None:
    base = NEGATION.base("item(/a)")
    same = base.with_facts((), NEGATION.facts("free(/a) item(/b) blocked(/a,/a)"))
    NEGATION.agrees(same, "", "item(/a)")


def test_added_and_removed_at_once_is_added() -> None:
    base = NEGATION.base("item(/a)")
    facts = NEGATION.facts("item(/a)")
    NEGATION.agrees(base.with_facts(facts, facts), "", "item(/a)")


GIVEN_AND_DERIVED = World("""
Decl a(X) bound [/number].
Decl b(X) bound [/number].
Decl c(X) bound [/number].
Decl d(X) bound [/number].
c(X) :- a(X), !b(X).
d(X) :- c(X).
d(X) :- a(X), X < 2.
""")


@pytest.mark.parametrize("given", ["a(1) c(1)", "a(1) a(3) c(1) d(3)", "c(1) d(1) a(5)"])
def test_given_facts_that_are_derived_too(given: str) -> None:
    world = GIVEN_AND_DERIVED
    base = world.base(given)
    world.agrees(base, "", given)
    world.agrees(base, "b(1)", f"{given} b(1)")
    world.agrees(base, "c(1)", f"{given} c(1)")
    for fact in given.split():
        rest = " ".join(other for other in given.split() if other != fact)
        less = base.with_facts((), world.facts(fact))
        world.agrees(less, "", rest)
        world.agrees(less, "b(1)", f"{rest} b(1)")
        world.agrees(less.with_facts(world.facts(fact)), "", given)


GROUPS = World("""
Decl sold(Shop, Item, N) bound [/name, /name, /number].
Decl returned(Shop, Item) bound [/name, /name].
Decl total(Shop, N) bound [/name, /number].
Decl kinds(Shop, N) bound [/name, /number].
Decl best(N) bound [/number].
Decl both(Shop, N) bound [/name, /number].
Decl items(Shop, L) bound [/name, fn:List(/name)].
total(S, N) :- sold(S, I, V), !returned(S, I) |> do fn:group_by(S), let N = fn:sum(V).
kinds(S, N) :- sold(S, I, V) |> do fn:group_by(S), let N = fn:count().
best(N) :- total(S, V) |> do fn:group_by(), let N = fn:max(V).
both(S, N) :- sold(S, I, V) |> do fn:group_by(S), let N = fn:count().
both(S, N) :- sold(S, I, V), V > 2 |> do fn:group_by(S), let N = fn:max(V).
items(S, L) :- sold(S, I, V) |> do fn:group_by(S), let L = fn:collect_distinct(I).
""")


def test_groups() -> None:
    given = "sold(/x,/p,1) sold(/x,/q,3) sold(/y,/p,5)"
    base = GROUPS.base(given)
    answer = GROUPS.agrees(base, "sold(/x,/r,4)", f"{given} sold(/x,/r,4)")
    assert only(answer, "total") == ["total(/x,8)", "total(/y,5)"]
    assert only(answer, "items") == ["items(/x,[/p, /q, /r])", "items(/y,[/p])"]
    assert maintained(base, "total")
    assert maintained(base, "both")
    GROUPS.agrees(base, "returned(/y,/p)", f"{given} returned(/y,/p)")
    GROUPS.agrees(base, "sold(/z,/p,7)", f"{given} sold(/z,/p,7)")
    empty = base.with_facts((), GROUPS.facts("sold(/y,/p,5)"))
    answer = GROUPS.agrees(empty, "", "sold(/x,/p,1) sold(/x,/q,3)")
    assert only(answer, "best") == ["best(4)"]
    nothing = empty.with_facts((), GROUPS.facts("sold(/x,/p,1) sold(/x,/q,3)"))
    assert GROUPS.agrees(nothing, "", "").facts == ()


CLOSURE = World("""
Decl edge(X, Y) bound [/number, /number].
Decl path(X, Y) bound [/number, /number].
Decl far(X, Y) bound [/number, /number].
path(X, Y) :- edge(X, Y).
path(X, Z) :- path(X, Y), path(Y, Z).
far(X, Y) :- path(X, Y), !edge(X, Y).
""")


def test_a_closure_loses_an_edge() -> None:
    base = CLOSURE.base("edge(1,2) edge(2,3) edge(3,1)")
    less = base.with_facts((), CLOSURE.facts("edge(3,1)"))
    assert only(CLOSURE.agrees(less, "", "edge(1,2) edge(2,3)"), "far") == ["far(1,3)"]
    CLOSURE.agrees(less, "edge(3,4)", "edge(1,2) edge(2,3) edge(3,4)")
    CLOSURE.agrees(base, "edge(1,3)", "edge(1,2) edge(2,3) edge(3,1) edge(1,3)")


@pytest.mark.no_cover
@pytest.mark.parametrize("world", [NEGATION, GIVEN_AND_DERIVED, GROUPS, CLOSURE], ids=["not", "given", "groups", "tc"])
def test_long_chains_of_changes(world: World) -> None:
    """Each base is made from the one before; none differs from a fresh one."""
    random = Random(7)
    names, numbers = ["/a", "/b", "/c"], ["1", "2", "3", "4"]
    shapes = {
        (key[0], tuple(str(t) for t in predicate.rows[0])) if predicate.rows else (key[0], ())
        for key, predicate in world.program.predicates.items()
        if key[0] != "items"
    }
    known = sorted(shapes)
    held: set[str] = set()
    base = world.base()

    def fact() -> str:
        name, types = random.choice(known)
        return f"{name}({','.join(random.choice(names if t == '/name' else numbers) for t in types)})"

    for _ in range(60):
        add = {fact() for _ in range(random.randint(0, 4))}
        remove = {fact() for _ in range(2)} | set(random.sample(sorted(held), min(len(held), random.randint(0, 4))))
        base = base.with_facts(world.facts(" ".join(sorted(add))), world.facts(" ".join(sorted(remove))))
        held = (held - remove) | add
        request = {fact() for _ in range(random.randint(0, 3))}
        everything = " ".join(sorted(held | request))
        world.agrees(base, " ".join(sorted(request)), everything)
    fresh = world.program.base(world.facts(" ".join(sorted(held))))
    assert difference(world.ask(base), world.ask(fresh)) is None
