"""What is more than stored facts: deferred and merged predicates over a base, and derivations that hold at no time."""

from __future__ import annotations

import pytest

from manglecp.mangle.errors import EvalError
from tests.mangle.engine.changing import NOW, World, only

DEFERRED = World("""
Decl edge(X, Y) bound [/name, /name].
Decl ask(X) bound [/name].
Decl step(X, Y) descr [deferred(), mode("+", "-")] bound [/name, /name].
Decl far(X, Y) descr [deferred(), mode("+", "-")] bound [/name, /name].
Decl seen(X, Y) bound [/name, /name].
Decl lonely(X) bound [/name].
step(X, Y) :- edge(X, Y).
far(X, Z) :- step(X, Y), step(Y, Z).
seen(X, Y) :- ask(X), far(X, Y).
lonely(X) :- ask(X), !far(X, /c).
""")


def test_what_a_deferred_predicate_reads_changes() -> None:
    """It has no facts of its own, so a change shows only behind it; here two calls behind."""
    base = DEFERRED.base("ask(/a) edge(/a,/b)")
    assert only(DEFERRED.agrees(base, "", "ask(/a) edge(/a,/b)"), "lonely") == ["lonely(/a)"]
    more = "ask(/a) edge(/a,/b) edge(/b,/c)"
    answer = DEFERRED.agrees(base, "edge(/b,/c)", more)
    assert only(answer, "seen") == ["seen(/a,/c)"]
    assert only(answer, "lonely") == []
    grown = base.with_facts(DEFERRED.facts("edge(/b,/c)"))
    DEFERRED.agrees(grown, "", more)
    DEFERRED.agrees(grown.with_facts((), DEFERRED.facts("edge(/a,/b)")), "", "ask(/a) edge(/b,/c)")


MERGED = World("""
Decl road(X, Y, N) bound [/name, /name, /number].
Decl way(X, N) descr [fundep([X], [N]), merge([N], "shorter")] bound [/name, /number].
Decl shorter(A, B, C) descr [deferred(), mode("+", "+", "-")] bound [/number, /number, /number].
Decl near(X) bound [/name].
shorter(A, B, A) :- A <= B.
shorter(A, B, B) :- B < A.
way(/a, 0) :- road(_, _, _).
way(Y, fn:plus(N, M)) :- way(X, N), road(X, Y, M).
near(X) :- way(X, N), N < 5.
""")


def test_a_merged_value_of_the_base_is_replaced_and_comes_back() -> None:
    given = "road(/a,/b,7) road(/b,/c,1)"
    base = MERGED.base(given)
    assert only(MERGED.agrees(base, "", given), "near") == ["near(/a)"]
    shortcut = "road(/a,/b,2)"
    answer = MERGED.agrees(base, shortcut, f"{given} {shortcut}")
    assert only(answer, "way") == ["way(/a,0)", "way(/b,2)", "way(/c,3)"]
    changed = base.with_facts(MERGED.facts(shortcut))
    MERGED.agrees(changed, "", f"{given} {shortcut}")
    MERGED.agrees(changed.with_facts((), MERGED.facts(shortcut)), "", given)


CONSTRAINED = World("""
Decl user(X) bound [/name].
Decl role(X, R) descr [fundep([X], [R])] bound [/name, /name] inclusion [user(X)].
""")


def test_constraints_look_at_base_and_request_together() -> None:
    base = CONSTRAINED.base("role(/a,/admin)")  # no answer yet: a request may still say who /a is
    assert CONSTRAINED.ask(base).error == "eval"
    CONSTRAINED.agrees(base, "user(/a)", "role(/a,/admin) user(/a)")
    CONSTRAINED.agrees(base, "user(/a) role(/a,/guest)", "role(/a,/admin) user(/a) role(/a,/guest)")
    known = base.with_facts(CONSTRAINED.facts("user(/a)"))
    CONSTRAINED.agrees(known, "", "role(/a,/admin) user(/a)")
    with pytest.raises(EvalError):
        known.with_facts((), CONSTRAINED.facts("user(/a)")).evaluate(now=NOW)


# --- intervals that end before they start --------------------------------------------------------------------------

BACKWARDS = World("""
Decl from(X, T) bound [/name, /any].
Decl to(X, T) bound [/name, /any].
Decl stay(X) temporal bound [/name].
stay(X)@[S, E] :- from(X, S), to(X, E).
""")


def test_intervals_that_end_before_they_start_are_skipped() -> None:
    given = "from(/a,9) to(/a,1) to(/a,2) to(/a,12)"
    base = BACKWARDS.base(given)
    BACKWARDS.agrees(base, "", given)
    BACKWARDS.agrees(base, "from(/a,9)", given)
    BACKWARDS.agrees(base, "from(/a,11)", f"{given} from(/a,11)")
    BACKWARDS.agrees(base, "to(/a,13)", f"{given} to(/a,13)")
    less = base.with_facts((), BACKWARDS.facts("to(/a,1)"))
    BACKWARDS.agrees(less, "", "from(/a,9) to(/a,2) to(/a,12)")
    more = base.with_facts(BACKWARDS.facts("to(/a,3)"))
    BACKWARDS.agrees(more, "", f"{given} to(/a,3)")
