"""Why a fact does not hold: what stops each rule, and the smallest sets of facts that would help."""

from __future__ import annotations

import pytest

from manglecp.base.source import Source
from manglecp.mangle.explain import WhyNot
from manglecp.mangle.facts import Fact
from manglecp.mangle.program import Program
from manglecp.mangle.values import Name

from .asking import about, evaluated, unlocking


def asked(text: str, fact: str) -> WhyNot:
    return about(text).why_not(fact)


def premises(text: str, fact: str) -> list[str]:
    return [one.premise for one in asked(text, fact).blocked]


@pytest.mark.parametrize(
    ("rule", "stops_at"),
    [
        ("goal(X) :- user(X), key(X, K).", "key(/eve,_)"),
        ("goal(X) :- user(X), key(X, K), door(K).", "key(/eve,_)"),
        ("goal(X) :- user(X), !banned(X).", "!banned(/eve)"),
        ("goal(X) :- user(X), age(X, N), N >= 18.", "15 >= 18"),
        ("goal(X) :- user(X), age(X, N), N > 18.", "15 > 18"),
        ("goal(X) :- user(X), age(X, N), N != 15.", "15 != 15"),
        ("goal(X) :- user(X), age(X, N), M = fn:plus(N, 1), M = 18.", "16 = 18"),
        ('goal(X) :- user(X), title(X, T), :string:starts_with(T, "Dr").', ':string:starts_with("Ms Eve","Dr")'),
        ("goal(X) :- user(X), on(X)@[now].", "on(/eve)@[now]"),
        ("goal(X) :- user(X), <-[1h] on(X).", "<-[1h] on(/eve)"),
        ('goal(X) :- user(X), T = fn:time:now(), T < fn:time:parse_rfc3339("2020-01-01T00:00:00Z").', None),
    ],
)
def test_where_a_rule_stops(rule: str, stops_at: str | None) -> None:
    text = f"""
    Decl on(X) temporal bound [/name].
    Decl door(K). Decl key(X, K).
    user(/eve). user(/bob). banned(/eve). age(/eve, 15). title(/eve, "Ms Eve"). on(/bob)@[2026-01-15T12:00:00Z].
    key(/bob, /k1).
    {rule}
    """
    found = premises(text, "goal(/eve)")
    assert len(found) == 1
    if stops_at is not None:
        assert found == [stops_at]


def test_each_rule_that_could_derive_it_is_named() -> None:
    text = "a(1). c(2). goal(X) :- a(X), b(X). goal(2) :- a(2). goal(3) :- a(3). goal(X) :- c(X), !c(X). Decl b(X)."
    found = asked(text, "goal(2)")
    assert [one.premise for one in found.blocked] == ["a(2)", "a(2)", "!c(2)"]
    assert [one.rule.line for one in found.blocked] == [1, 1, 1]


def test_the_way_that_leads_furthest_is_shown() -> None:
    text = "hop(/a, /b). hop(/a, /c). hop(/c, /d). three(X, W) :- hop(X, Y), hop(Y, Z), hop(Z, W)."
    found = asked(text, "three(/a,/e)")
    assert [one.premise for one in found.blocked] == ["hop(/d,/e)"]
    assert found.as_json()["blocked"][0]["bindings"] == {"X": "/a", "W": "/e", "Y": "/c", "Z": "/d"}


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("p(1). q(X) :- p(X), r(X). Decl r(X).", [["r(1)"]]),
        ("p(1). q(X) :- p(X), r(X), s(X). Decl r(X). Decl s(X).", [["r(1)", "s(1)"]]),
        ("p(1). q(X) :- p(X), r(X). q(X) :- s(X). Decl r(X). Decl s(X).", [["r(1)"], ["s(1)"]]),
        ("p(1). q(X) :- p(X), !p(X).", []),
        # a fact blocked by a negation of something derived: more facts cannot take it away
        ("p(1). b(X) :- p(X). q(X) :- p(X), !b(X).", []),
        # ... unless they take the reason of the negation away
        ("p(1). b(X) :- p(X), !ok(X). q(X) :- p(X), !b(X). Decl ok(X).", [["ok(1)"]]),
        # through recursion
        (
            "e(2, 3). q(X) :- r(X, 3). r(X, Y) :- e(X, Y). r(X, Z) :- e(X, Y), r(Y, Z).",
            [["e(1,2)"], ["e(1,3)"]],
        ),
        # a fact that would help breaks a functional dependency
        ("Decl k(X, Y) descr [fundep([X], [Y])]. k(1, 2). one(3). q(X) :- k(X, 3).", []),
        # four facts are too many
        ("o(1). q(X) :- a(X), b(X), c(X), d(X). Decl a(X). Decl b(X). Decl c(X). Decl d(X).", []),
    ],
)
def test_what_would_unlock(text: str, sets: list[list[str]]) -> None:
    assert unlocking(text, "q(1)") == sets


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("risk(9). ok() :- risk(N), N < 5.", [["risk(4)"]]),
        ("age(1). ok() :- age(N), N > 17.", [["age(18)"]]),
        ("x(1). y(1). ok() :- x(A), y(B), 7 = fn:plus(A, B).", [["x(6)"], ["y(6)"]]),
        ("Decl p(X) bound [/name]. ok() :- p(X), p(Y), X != Y.", [["p(/new/1)", "p(/new/2)"]]),
        (
            "Decl p(X) bound [/name]. m(N) :- p(X) |> do fn:group_by(), let N = fn:count(). ok() :- m(2).",
            [["p(/new/1)", "p(/new/2)"]],
        ),
        # no candidate helps, but a longer text would
        ('t("a"). ok() :- t(X), N = fn:string:concat(X, "b"), N = "abcb".', []),
    ],
)
def test_values_that_occur_nowhere(text: str, sets: list[list[str]]) -> None:
    """They are tried last, and whatever they give, it is never called complete."""
    found = asked(text, "ok()")
    assert [[fact.text for fact in one] for one in found.would_unlock] == sets
    assert not found.complete
    assert "no few facts" not in found.text()


def test_a_negated_premise_counts_though_its_predicate_is_also_needed() -> None:
    text = "a(1). a(2). b(3). c(N) :- a(X), !b(X), b(3) |> do fn:group_by(), let N = fn:count()."
    assert unlocking(text, "c(1)") == [["b(1)"], ["b(2)"]]


def test_an_explanation_reads_few_facts_of_a_large_graph() -> None:
    """The work is bounded, not the time: few instances are expanded, and few facts of a premise are tried."""
    size = 3_000
    edges = [Fact("edge", (i, (i * k + 1) % size)) for i in range(size) for k in (2, 3, 5)]
    text = "Decl edge(X, Y) bound [/number, /number]. reach(0). reach(Y) :- reach(X), edge(X, Y)."
    text += "many(N) :- reach(_) |> do fn:group_by(), let N = fn:count(). Decl stop(X)."
    text += "far(X) :- reach(X), edge(X, Y), edge(Y, Z), stop(Z)."
    result = Program.load([Source("rules.mg", text)]).base(edges).evaluate([])
    explainer = result.explainer
    ((count,),) = result.rows(("many", 1))
    assert isinstance(count, int)
    proof = explainer.explain(f"many({count})")
    assert proof is not None
    assert proof.root.omitted == count - len(proof.root.premises) > 1_000
    assert f"and {proof.root.omitted} more rows" in proof.text()
    assert proof.as_json()["proof"]["omitted_rows"] == proof.root.omitted
    assert len(explainer._prover.search._expanded) < 500
    assert [one.premise for one in explainer.why_not("far(1)").blocked]
    assert not explainer.why_not(f"reach({size})").complete


def test_more_than_three_facts_is_not_complete() -> None:
    found = asked("o(1). q(X) :- a(X), b(X), c(X), d(X). Decl a(X). Decl b(X). Decl c(X). Decl d(X).", "q(1)")
    assert not found.complete
    assert asked("p(1). q(X) :- p(X), !p(X).", "q(1)").complete


def test_facts_fit_their_declarations() -> None:
    text = 'Decl r(X, Y) bound [/name, /number]. v(/a). v(1). v("s"). q(X) :- r(X, Y), Y != 2. w(2).'
    assert unlocking(text, "q(/a)") == [["r(/a,1)"]]


def test_only_some_predicates_may_be_added() -> None:
    result = evaluated("p(1). q(X) :- p(X), r(X). q(X) :- s(X). Decl r(X). Decl s(X).")
    found = result.explainer.why_not("q(1)", over=[("s", 1)])
    assert [[fact.text for fact in one] for one in found.would_unlock] == [["s(1)"]]


def test_few_tries_are_not_complete() -> None:
    numbers = "".join(f"v({i})." for i in range(50))
    text = f"{numbers} q(X) :- r(X, Y), s(Y, Z). Decl r(X, Y). Decl s(X, Y)."
    assert not evaluated(text).explainer.why_not("q(1)", tries=5).complete
    assert evaluated(text).explainer.why_not("q(1)", tries=0).would_unlock == ()


def test_what_is_found_works() -> None:
    """Facts that would unlock something can be given to the next evaluation as they are."""
    text = "p(/a). q(X) :- p(X), r(X, Y), on(X)@[now]. Decl r(X, Y). Decl on(X) temporal bound [/name]."
    base = Program.load([Source("rules.mg", text)]).base([])
    result = base.evaluate([], now=10**18)
    (missing,) = result.explainer.why_not("q(/a)").would_unlock
    assert result.explainer.explain("q(/a)") is None
    again = base.evaluate(missing, now=10**18)
    proof = again.explainer.explain(Fact("q", (Name("/a"),)))
    assert proof is not None
    assert {node.origin for node in proof.root.premises} == {"given", "session"}


def test_what_was_found_counts_though_not_everything_was_looked_at() -> None:
    edges = "".join(f"edge({i}, {i + 1})." for i in range(110))
    text = f"{edges} path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z)."
    found = asked(text, "path(110,0)")
    assert [[fact.text for fact in facts] for facts in found.would_unlock] == [["edge(110,0)"]]
    assert not found.complete


@pytest.mark.no_cover
def test_where_there_are_few_facts_all_are_tried() -> None:
    """A dense closure has more ways than facts."""
    hops = "".join(f"hop({i}, {(2 * i) % 13})." for i in range(12))
    text = f"{hops} far(X, Y) :- hop(X, Y). far(X, Z) :- far(X, Y), far(Y, Z). n(99)."
    found = asked(text, "far(99,1)")
    assert found.complete
    back = {1, 7, 10, 5, 9, 11}  # from where there is a way to 1
    assert {facts[0].text for facts in found.would_unlock} == {f"hop(99,{i})" for i in back}


def test_a_sum_over_many_facts_ends() -> None:
    files = "".join(f'size(/f/{i}, "src/{i % 7}", {37 * i}, {i % 5}).' for i in range(40))
    text = f"{files} total(A, S) :- size(_, A, Z, _) |> do fn:group_by(A), let S = fn:sum(Z)."
    found = evaluated(text).explainer.why_not('total("src/1",1)', tries=500)
    assert [one.premise for one in found.blocked] == ["4107 = 1"]
    assert not found.complete


@pytest.mark.parametrize("other", ["", "other(X) :- p(X), <-[1d] u(X).", "other(X) :- p(X), <-[7d] u(X)."])
def test_rules_that_do_not_matter_do_not_matter(other: str) -> None:
    text = f"Decl u(X) temporal bound [/name]. p(/a). g(X) :- <-[1d, 2d] u(X), u(X)@[now], p(X). {other}"
    assert unlocking(text, "g(/a)") == [["u(/a)@[2026-01-14T12:00:00Z]", "u(/a)@[2026-01-15T12:00:00Z]"]]


def test_the_answer_is_the_same_whatever_the_order() -> None:
    facts = ["e(1, 2).", "e(2, 3).", "n(4).", "n(5)."]
    rules = ["p(X, Y) :- e(X, Y).", "p(X, Z) :- e(X, Y), p(Y, Z)."]
    one = asked("\n".join(facts + rules), "p(1,5)").as_json()
    other = asked("\n".join(rules[::-1] + facts[::-1]), "p(1,5)").as_json()
    assert one["would_unlock"] == other["would_unlock"] == [["e(1,5)"], ["e(2,5)"], ["e(3,5)"]]
    assert sorted(b["premise"] for b in one["blocked"]) == sorted(b["premise"] for b in other["blocked"])


@pytest.mark.parametrize(
    "text",
    [
        "ok() :- risk(N), N < 5, N > 2.",
        "low(N) :- risk(N). ok() :- low(N), N < 5.",
        'level("low") :- risk(N), N < 5. ok() :- level("low").',
        'Decl lt(N) descr [mode("+"), deferred()] bound [/number]. lt(N) :- N < 5. ok() :- risk(N), lt(N).',
        "ok() :- risk(N), N < 5, N != 4, N != 3, N != 2, N != 1, N != 0.",
        "limit(5). ok() :- risk(N), limit(L), N < L.",
        "ok() :- risk(N), M = fn:mult(N, 7), M > 700, M < 720.",
        "ok() :- risk(N), D = fn:minus(N, 100), D > 0, D < 3.",
        "ok() :- risk(A), risk(B), fn:plus(A, B) < 5.",
        "least(S) :- risk(N) |> do fn:group_by(), let S = fn:min(N). ok() :- least(S), S < 5.",
        "total(S) :- risk(N) |> do fn:group_by(), let S = fn:sum(N). ok() :- total(S), S > 1000, S < 1003.",
        "high() :- risk(N), N > 4. any() :- other(_). high() :- other(N), N > 4. ok() :- any(), !bad(). bad() :- "
        "other(N), N > 4. Decl other(N) bound [/number].",
    ],
)
def test_a_comparison_never_rules_out_a_fact_that_would_satisfy_it(text: str) -> None:
    """A fact with another value than those that occur makes the goal hold, so "no few facts" would be wrong."""
    found = asked(f"risk(9). {text}", "ok()")
    assert found.would_unlock or not found.complete
    for facts in found.would_unlock:
        added = "".join(f"{fact.text}." for fact in facts)
        assert about(f"risk(9). {text} {added}").explain("ok()") is not None
