"""Until when facts go on holding: the formulas, and how derivations combine."""

from __future__ import annotations

import time

import pytest

from manglecp.base.source import Source
from manglecp.mangle.engine import evaluate
from manglecp.mangle.facts import Fact
from manglecp.mangle.program import Program
from manglecp.mangle.result import Result

from .asking import instant, without_compiled_rules

NOW = instant("2026-01-15T12:00:00Z")
MINUTE = 60 * 1_000_000_000

DECLS = """
Decl t(X) temporal bound [/name].
Decl u(X) temporal bound [/name].
"""


def both(rules: str, now: int = NOW) -> list[Result]:
    """Compiled functions run backwards, and instances of rules."""
    program = Program.load([Source("rules.mg", DECLS + rules)])
    return [evaluate(program, now=now), without_compiled_rules(evaluate(program, now=now))]


def expiry(rules: str, fact: str) -> int | None:
    """Minutes from now."""
    found = {result.expiry(fact) for result in both(rules)}
    assert len(found) == 1
    end = found.pop()
    assert end is None or (end - NOW) % MINUTE == 0
    return None if end is None else (end - NOW) // MINUTE


FACT = "t(/a)@[2026-01-15T11:00:00Z, 2026-01-15T12:30:00Z]."
PAST = "t(/a)@[2026-01-15T11:50:00Z, 2026-01-15T11:55:00Z]."


@pytest.mark.parametrize(
    ("fact", "premise", "minutes"),
    [
        (FACT, "t(X)@[now]", 30),
        (FACT, "<-[5m, 20m] t(X)", 50),
        (FACT, "[-[5m, 20m] t(X)", 35),
        (FACT, "<+[5m, 20m] t(X)", 25),
        (FACT, "[+[5m, 20m] t(X)", 10),
        (FACT, "<-[20m] t(X)", 50),
        (FACT, "[-[20m] t(X)", 30),
        (FACT, "<+[20m] t(X)", 30),
        (FACT, "[+[20m] t(X)", 10),
        (FACT, "<-[20m] t(X)@[now]", 30),
        (FACT, "t(X)@[2026-01-15T11:30:00Z]", None),
        (FACT, "t(X)@[_, now]", 30),
        (FACT, "t(X)@[_]", None),
        (FACT, "t(X)@[S, E]", None),
        (PAST, "<-[0m, 10m] t(X)", 5),
        ("t(/a)@[2026-01-15T11:50:00Z].", "<-[0m, 10m] t(X)", 0),
        ("t(/a)@[2026-01-15T11:00:00Z, _].", "t(X)@[now]", None),
        ("t(/a)@[2026-01-15T11:00:00Z, _].", "[+[5m, 20m] t(X)", None),
        (FACT, "<-[2026-01-15T11:00:00Z, 2026-01-15T11:30:00Z] t(X)", None),
        (FACT, "[-[2026-01-15T11:00:00Z, 10m] t(X)", 40),
        (FACT, "<-[2026-01-15T11:00:00Z, 10m] t(X)", None),
    ],
)
def test_each_operator(fact: str, premise: str, minutes: int | None) -> None:
    assert expiry(f"{fact} p(X) :- {premise}.", "p(/a)") == minutes


def test_a_bound_that_is_a_variable() -> None:
    rules = f"{PAST} Decl window(D) bound [/duration]. window(fn:duration:from_minutes(20))."
    assert expiry(rules + "p(X) :- window(D), <-[D] t(X).", "p(/a)") == 15


def test_intervals_that_touch_end_together() -> None:
    more = "t(/a)@[2026-01-15T12:30:00Z, 2026-01-15T12:45:00Z]."
    assert expiry(f"{FACT} {more} p(X) :- t(X)@[now].", "p(/a)") == 45


def test_a_derivation_ends_with_its_first_premise_and_a_fact_with_its_last_derivation() -> None:
    facts = f"{FACT} u(/a)@[2026-01-15T11:00:00Z, 2026-01-15T12:20:00Z]."
    assert expiry(facts + "p(X) :- t(X)@[now], u(X)@[now].", "p(/a)") == 20
    assert expiry(facts + "p(X) :- t(X)@[now]. p(X) :- u(X)@[now].", "p(/a)") == 30


def test_premises_below_count() -> None:
    facts = f"{FACT} u(/a)@[2026-01-15T11:00:00Z, 2026-01-15T12:20:00Z]. base(/a)."
    rules = facts + "low(X) :- u(X)@[now]. p(X) :- t(X)@[now], low(X). other(X) :- base(X), low(_)."
    assert expiry(rules, "p(/a)") == 20
    assert expiry(rules, "other(/a)") == 20
    assert expiry(rules, "base(/a)") is None


def test_what_was_given_or_follows_without_time_does_not_end() -> None:
    assert expiry(f"{FACT} p(/a). p(X) :- t(X)@[now].", "p(/a)") is None
    assert expiry(f"{FACT} q(/a). p(X) :- t(X)@[now]. p(X) :- q(X).", "p(/a)") is None
    assert expiry(f"{FACT} low(/a). low(X) :- t(X)@[now]. p(X) :- low(X).", "p(/a)") is None


def test_negation_is_ignored() -> None:
    rules = f"{FACT} q(/a). p(X) :- q(X), !u(X)@[now]. r(X) :- t(X)@[now], !<-[5m] u(X)."
    assert expiry(rules, "p(/a)") is None
    assert expiry(rules, "r(/a)") == 30


def test_a_temporal_fact_counts_by_its_own_interval() -> None:
    rules = f"""{FACT}
        Decl shorter(X) temporal bound [/name].
        shorter(X)@[2026-01-15T11:00:00Z, 2026-01-15T12:10:00Z] :- t(X)@[now].
        p(X) :- shorter(X)@[now]."""
    assert expiry(rules, "p(/a)") == 10
    assert expiry(rules, "shorter(/a)@[2026-01-15T12:00:00Z]") == 10
    assert expiry(rules, "t(/a)@[2026-01-15T12:00:00Z]") == 30


def test_a_cycle_does_not_support_itself() -> None:
    rules = f"{FACT} p(X) :- t(X)@[now]. p(X) :- q(X). q(X) :- p(X)."
    assert expiry(rules, "q(/a)") == 30
    later = "u(/a)@[2026-01-15T11:00:00Z, 2026-01-15T13:00:00Z]."
    assert expiry(f"{rules} {later} q(X) :- u(X)@[now].", "p(/a)") == 60


def test_a_long_chain() -> None:
    length = 3_000
    links = " ".join(f"next({i}, {i + 1})." for i in range(length))
    rules = f"""{FACT} {links} Decl on(N) bound [/number].
        on(0) :- t(/a)@[now]. on(M) :- on(N), next(N, M)."""
    program = Program.load([Source("rules.mg", DECLS + rules)])
    assert evaluate(program, now=NOW).expiry(f"on({length})") == NOW + 30 * MINUTE


def test_an_aggregate_ends_when_the_first_of_its_group_does() -> None:
    facts = f"{FACT} t(/b)@[2026-01-15T11:00:00Z, 2026-01-15T12:20:00Z]. in(/a, /g). in(/b, /g). in(/a, /h)."
    count = "size(G, N) :- in(X, G), t(X)@[now] |> do fn:group_by(G), let N = fn:count()."
    assert expiry(facts + count, "size(/g, 2)") == 20
    assert expiry(facts + count, "size(/h, 1)") == 30
    assert expiry(facts + count + "many(G) :- size(G, N), N > 1.", "many(/g)") == 20


def test_an_aggregate_over_facts_counts_each() -> None:
    facts = """Decl hit(G, X) temporal bound [/name, /name].
        hit(/g, /a)@[2026-01-15T11:55:00Z]. hit(/g, /b)@[2026-01-15T11:58:00Z]. hit(/g, /b)@[2026-01-15T11:59:00Z]."""
    count = "hits(G, N) :- <-[10m] hit(G, _) |> do fn:group_by(G), let N = fn:count()."
    assert expiry(facts + count, "hits(/g, 3)") == 5


def test_a_row_of_an_aggregate_lasts_as_long_as_its_best_fact() -> None:
    facts = """Decl hit(X, Y) temporal bound [/name, /name]. in(/a, /g).
        hit(/a, /b)@[2026-01-15T11:55:00Z]. hit(/a, /c)@[2026-01-15T11:58:00Z].
        low(X, Y) :- <-[10m] hit(X, Y)."""
    count = "size(G, N) :- in(X, G), {} |> do fn:group_by(G), let N = fn:count()."
    assert expiry(facts + count.format("<-[10m] hit(X, _)"), "size(/g, 1)") == 8
    assert expiry(facts + count.format("low(X, _)"), "size(/g, 1)") == 8


def test_another_rule_with_the_same_group_is_not_taken_for_the_cause() -> None:
    facts = f"{FACT} u(/a)@[2026-01-15T11:00:00Z, 2026-01-15T13:00:00Z]. in(/a, /g). in(/b, /g)."
    rules = """
        size(G, 1) :- in(_, G), t(/a)@[now].
        size(G, N) :- in(_, G), u(/a)@[now], in(X, G) |> do fn:group_by(G), let N = fn:count()."""
    assert expiry(facts + rules, "size(/g, 1)") == 30
    assert expiry(facts + rules, "size(/g, 2)") == 60


def test_deferred_predicates() -> None:
    rules = f"""{FACT} q(/a).
        Decl asked(X) descr [mode("+"), deferred()] bound [/name].
        asked(X) :- t(X)@[now].
        p(X) :- q(X), asked(X)."""
    assert expiry(rules, "p(/a)") == 30


def test_merged_predicates() -> None:
    rules = f"""{FACT} u(/a)@[2026-01-15T11:00:00Z, 2026-01-15T12:20:00Z].
        Decl best(A, B) descr [fundep([A], [B]), merge([B], "better")] bound [/name, /number].
        Decl better(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].
        better(A, B, A) :- A <= B. better(A, B, B) :- B < A.
        best(X, 1) :- u(X)@[now]. best(X, 2) :- t(X)@[now].
        p(X) :- best(X, 1)."""
    assert expiry(rules, "p(/a)") == 20


def test_computed_heads_and_constants() -> None:
    rules = f"""{FACT} u(/a)@[2026-01-15T11:00:00Z, 2026-01-15T12:20:00Z]. n(1). n(2).
        p(X, fn:plus(N, 1)) :- t(X)@[now], n(N).
        p(X, 2) :- u(X)@[now].
        p(X, M) :- u(X)@[now], n(N) |> let M = fn:plus(N, 2).
        same(X, X) :- t(X)@[now]. same(X, /b) :- u(X)@[now]."""
    assert expiry(rules, "p(/a, 2)") == 30
    assert expiry(rules, "p(/a, 4)") == 20
    assert expiry(rules, "same(/a, /a)") == 30
    assert expiry(rules, "same(/a, /b)") == 20


def test_a_fact_that_does_not_hold_has_no_end() -> None:
    for result in both(f"{FACT} p(X) :- t(X)@[now]. q(/a)."):
        for fact in ("p(/b)", "q(/b)", "t(/a)@[2026-01-15T12:00:00Z, _]", Fact("nothing", (1,))):
            with pytest.raises(ValueError, match="does not hold"):
                result.expiry(fact)


def test_the_ways_followed_are_the_ones_that_could_last_longest() -> None:
    """Many facts to rest on, each with an end of its own; the premise beside them says which could last longest."""
    facts = "Decl v(N) temporal bound [/number]. Decl low(N) bound [/number]. Decl w(N) temporal bound [/number]."
    for n in range(50):
        facts += f" v({n})@[2026-01-15T11:00:00Z, 2026-01-15T12:{10 + n % 40}:00Z]. w({n})@[2026-01-15T11:00:00Z, _]."
    rules = facts + "low(N) :- w(N)@[now]. p() :- low(N), v(N)@[now]."
    assert expiry(rules, "p()") == 49


def test_where_the_ways_followed_lead_nowhere_all_are() -> None:
    """Sixty facts that rest on each other only, and one that really holds them up."""
    edges = "".join(f" e(0, {n})." for n in range(1, 60)) + "".join(f" e({n}, 0)." for n in range(1, 60))
    rules = f"{FACT} {edges} e(0, 99). on(99) :- t(/a)@[now]. on(X) :- e(X, Y), on(Y)."
    assert expiry(rules, "on(0)") == 30
    assert expiry(rules, "on(7)") == 30


def test_it_is_quick_where_many_facts_satisfy_a_window() -> None:
    """A selection that rests on two windows with forty facts in them; far from what a request may take."""
    rules = """
        Decl event(S, M) temporal bound [/string, /string].
        Decl failed(S, U) temporal bound [/string, /string].
        Decl asked(N) bound [/string].
        Decl relevant(T, N) bound [/string, /number].
        error(S) :- <-[5m] event(S, _).
        chain(S) :- error(S), <-[10m] failed(S, _).
        relevant("diagnose", 90) :- asked("why"), chain(S)."""
    base = Program.load([Source("rules.mg", rules)]).base()
    second = 1_000_000_000
    facts = [Fact("asked", ("why",))]
    facts += [Fact("event", ("s", f"m{i}"), (NOW - i * second, NOW - i * second)) for i in range(30)]
    facts += [Fact("failed", ("s", f"u{i}"), (NOW - i * second, NOW - i * second)) for i in range(10)]
    goal = Fact("relevant", ("diagnose", 90))
    base.evaluate(facts, now=NOW).expiry(goal)
    took = []
    for _ in range(20):
        result = base.evaluate(facts, now=NOW)
        start = time.perf_counter()
        assert result.expiry(goal) == NOW + 5 * MINUTE
        took.append(time.perf_counter() - start)
    assert min(took) < 0.005


def test_of_many_derivations_the_one_that_lasts_longest_counts() -> None:
    ends = {n: f"2026-01-15T12:{10 + n}:00Z" for n in range(40)}
    facts = "\n".join(f"t(/x{n})@[2026-01-15T11:00:00Z, {end}].\nlisted(/x{n})." for n, end in ends.items())
    rules = "open(X) :- t(X)@[now].\nboth(X) :- open(X), listed(X).\nany() :- both(X), open(X).\n"
    assert expiry(f"{rules}{facts}", "any()") == 49
