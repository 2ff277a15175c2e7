"""Proofs: what they rest on, which one is chosen, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from manglecp.base.source import Source
from manglecp.mangle.engine.views import Rounds
from manglecp.mangle.explain import Explainer, Node
from manglecp.mangle.facts import Fact, TimedArgs
from manglecp.mangle.model import Limits, Origin
from manglecp.mangle.program import Program
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Key
from manglecp.mangle.values import Name
from tests.mangle.naive import BareModel

from .asking import about, evaluated, proof
from .checking import check

PATHS = """
edge(/a, /b). edge(/b, /c). edge(/c, /a). edge(/c, /d).
path(X, Y) :- edge(X, Y).
path(X, Z) :- path(X, Y), path(Y, Z).
"""


def test_a_step() -> None:
    root = proof("edge(/a, /b).\npath(X, Y) :-\n  edge(X, Y), X != Y.\n", "path(/a,/b)").root
    assert root.fact == "path(/a,/b)"
    assert root.origin == "derived"
    assert root.rule is not None
    assert (root.rule.head, root.rule.file, root.rule.line) == ("path", "rules.mg", 2)
    assert root.rule.text == "path(X, Y) :- edge(X, Y), X != Y."
    assert root.rule.id.startswith("/rule/")
    assert list(root.bindings) == ["X", "Y"]
    (leaf,) = root.premises
    assert (leaf.fact, leaf.origin, leaf.rule, leaf.premises) == ("edge(/a,/b)", "given", None, ())


def test_what_does_not_hold_has_no_proof() -> None:
    assert evaluated(PATHS).explainer.explain("path(/d,/a)") is None
    assert evaluated(PATHS).explainer.explain("edge(/d,/a)") is None


def test_recursion_is_well_founded() -> None:
    facts = evaluated(PATHS)
    explainer = facts.explainer
    for x in "abc":
        for y in "abcd":
            found = explainer.explain(f"path(/{x},/{y})")
            assert found is not None
            check(found, facts)


def test_the_proof_with_the_fewest_leaves() -> None:
    assert proof(PATHS + "edge(/a, /d).", "path(/a,/d)").leaves() == ["edge(/a,/d)"]
    assert proof(PATHS, "path(/a,/d)").leaves() == ["edge(/a,/b)", "edge(/b,/c)", "edge(/c,/d)"]


def test_the_shorter_of_two_proofs_from_the_same_facts() -> None:
    text = "q(1). r(X) :- q(X). s(X) :- r(X). p(X) :- s(X). p(X) :- q(X)."
    assert [rule.head for rule in proof(text, "p(1)").rules()] == ["p"]


def test_given_facts_are_leaves_though_they_are_derived() -> None:
    found = proof("p(1). q(1). p(X) :- q(X). r(X) :- p(X).", "p(1)")
    assert found.root.origin == "given"
    assert found.root.rule is None


def test_premises_in_written_order() -> None:
    text = "n(1). n(2). a(1). b(/x). r(X, Y) :- !a(Y), n(Y), b(X), Y > 1."
    root = proof(text, "r(/x,2)").root
    assert [(node.fact, node.origin) for node in root.premises] == [
        ("!a(2)", "absent"),
        ("n(2)", "given"),
        ("b(/x)", "given"),
    ]


def test_absence_names_what_is_absent() -> None:
    root = proof("node(/a). edge(/b, /a). sink(X) :- node(X), !edge(X, _).", "sink(/a)").root
    assert [node.fact for node in root.premises if node.origin == "absent"] == ["!edge(/a,_)"]


def test_a_proof_in_a_large_graph_expands_few_facts() -> None:
    size = 3_000
    edges = "".join(f"edge({i}, {(i * k + 1) % size})." for i in range(size) for k in (2, 3, 5))
    rules = """
    Decl extra(X, Y) bound [/number, /number].
    reach(0). reach(Y) :- reach(X), edge(X, Y). reach(Y) :- reach(X), extra(X, Y).
    """
    base = Program.load([Source("graph.mg", rules + edges)]).base()
    first = base.evaluate([])
    farthest = max(row[0] for row in first.rows(("reach", 1)))
    second = base.evaluate([Fact("extra", (farthest, -1)), Fact("extra", (-1, -2))])
    for result, goal in ((first, f"reach({farthest})"), (second, "reach(-2)")):
        proof = result.explainer.explain(goal)
        assert proof is not None
        if result is first:
            check(proof, result)
        assert len(result.explainer._prover.search._expanded) < 500
    assert base.layer.rounds, "kept, because the first request did not change the graph"


def test_the_order_of_clauses_does_not_matter() -> None:
    lines = [
        "edge(/a, /b).",
        "edge(/b, /d).",
        "edge(/a, /c).",
        "edge(/c, /d).",
        "tie(/a, /d) :- edge(/a, /b), edge(/b, /d).",
        "tie(/a, /d) :- edge(/a, /c), edge(/c, /d).",
        "path(X, Y) :- edge(X, Y).",
        "path(X, Z) :- path(X, Y), edge(Y, Z).",
        "path(X, Z) :- edge(X, Y), path(Y, Z).",
        "both(X, Y) :- tie(X, Y), path(X, Y), edge(X, _).",
    ]

    def shape(node: Node) -> tuple[object, ...]:
        rule = None if node.rule is None else node.rule.text
        return node.fact, rule, *map(shape, node.premises)

    seen = set()
    for seed in range(20):
        text = "\n".join(Random(seed).sample(lines, len(lines)))
        seen.add(shape(proof(text, "both(/a,/d)").root))
    assert len(seen) == 1


# --- aggregation, deferred and merged predicates ---------------------------------------------------------------------


def test_an_aggregate_rests_on_every_row_of_its_group() -> None:
    text = """
    item(/a, 1). item(/a, 2). item(/b, 7). ok(1). ok(2).
    total(K, N) :- item(K, V), ok(V) |> do fn:group_by(K), let N = fn:sum(V).
    """
    found = proof(text, "total(/a,3)")
    assert found.leaves() == ["item(/a,1)", "item(/a,2)", "ok(1)", "ok(2)"]
    assert list(found.root.bindings) == ["K", "N"]


def test_facts_that_are_rows_all_count() -> None:
    text = "item(/a, 1). item(/a, 2). count(K, N) :- item(K, _) |> do fn:group_by(K), let N = fn:count()."
    assert proof(text, "count(/a,2)").leaves() == ["item(/a,1)", "item(/a,2)"]


def test_a_wildcard_among_several_premises_needs_one_fact() -> None:
    text = """
    item(/a, 1). item(/a, 2). k(/a).
    count(K, N) :- k(K), item(K, _) |> do fn:group_by(K), let N = fn:count().
    """
    assert proof(text, "count(/a,1)").leaves() == ["item(/a,1)", "k(/a)"]


def test_aggregates_of_aggregates() -> None:
    text = """
    sale(/n, /x, 1). sale(/n, /x, 2). sale(/n, /y, 5). sale(/s, /z, 9).
    best(R, M) :- sale(R, S, V) |> do fn:group_by(R, S), let T = fn:sum(V) |> do fn:group_by(R), let M = fn:max(T).
    """
    found = proof(text, "best(/n,5)")
    assert found.leaves() == ["sale(/n,/x,1)", "sale(/n,/x,2)", "sale(/n,/y,5)"]


def test_deferred_rules_are_steps() -> None:
    text = """
    Decl fact(N, R) descr [mode("+", "-"), deferred()] bound [/number, /number].
    fact(0, 1).
    fact(N, R) :- N > 0, M = fn:minus(N, 1), fact(M, S), R = fn:mult(N, S).
    start(4).
    result(R) :- start(N), fact(N, R).
    """
    facts = evaluated(text)
    found = facts.explainer.explain("result(24)")
    assert found is not None
    check(found, facts)
    assert found.leaves() == ["fact(0,1)", "start(4)"]
    assert len([node for node in found.nodes() if node.fact.startswith("fact(")]) == 5
    asked = about(text).explain("fact(3,6)")
    assert asked is not None
    assert asked.leaves() == ["fact(0,1)"]


MERGED = """
Decl dist(To, Km) descr [fundep([To], [Km]), merge([Km], "smaller")] bound [/name, /number].
Decl smaller(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].
smaller(A, B, A) :- A <= B.
smaller(A, B, B) :- B < A.
road(/a, /b, 5). road(/a, /c, 1). road(/c, /b, 2). road(/b, /a, 0).
dist(/a, 0).
dist(Y, M) :- dist(X, N), road(X, Y, K), M = fn:plus(N, K).
"""


def test_merge_names_the_winning_derivation() -> None:
    facts = evaluated(MERGED)
    found = facts.explainer.explain("dist(/b,3)")
    assert found is not None
    check(found, facts)
    assert found.leaves() == ["dist(/a,0)", "road(/a,/c,1)", "road(/c,/b,2)"]
    assert facts.explainer.explain("dist(/b,5)") is None


def test_a_value_that_was_merged_rests_on_what_was_merged() -> None:
    text = """
    Decl m(X, V) descr [fundep([X], [V]), merge([V], "join")] bound [/name, /name].
    join(/one, /two, /both). join(/two, /one, /both). join(/both, /one, /both). join(/both, /two, /both).
    q(/a, /one). q(/a, /two).
    m(X, V) :- q(X, V).
    """
    facts = evaluated(text)
    found = facts.explainer.explain("m(/a,/both)")
    assert found is not None
    check(found, facts)
    assert found.leaves() == ["q(/a,/one)", "q(/a,/two)"]
    assert found.root.rule is None


def test_what_came_from_a_value_that_gave_way() -> None:
    text = """
    Decl m(X, V) descr [fundep([X], [V]), merge([V], "join")] bound [/name, /name].
    join(/one, /two, /two). join(/two, /one, /two).
    q(/a, /one). late(/a).
    m(X, V) :- q(X, V).
    m(/b, V) :- m(/a, V), V != /two.
    m(X, /two) :- m(/b, /one), late(X).
    """
    facts = evaluated(text)
    found = facts.explainer.explain("m(/b,/one)")
    assert found is not None
    assert found.leaves() == ["q(/a,/one)"]


# --- time ------------------------------------------------------------------------------------------------------------

LEASES = """
Decl lease(X) temporal bound [/name].
lease(/a)@[2026-01-08, 2026-01-12].
lease(/a)@[2026-01-12, 2026-01-16].
lease(/a)@[2026-01-09, 2026-01-10].
lease(/a)@[2025-01-01, 2025-02-01].
"""


@pytest.mark.parametrize(
    ("rule", "fact", "leaves"),
    [
        ("week(X) :- [-[7d] lease(X).", "week(/a)", ["08/12", "12/16"]),
        ("some(X) :- <-[4d] lease(X).", "some(/a)", ["08/12"]),
        ("then(X) :- lease(X)@[2026-01-13].", "then(/a)", ["12/16"]),
        ("both(X) :- lease(X)@[2026-01-11, 2026-01-13].", "both(/a)", ["08/12", "12/16"]),
        ("ever(X) :- lease(X)@[_, _].", "ever(/a)", ["25"]),
        ("first(S) :- lease(_)@[S, _], :time:gt(S, fn:time:parse_rfc3339(\"2026-01-01T00:00:00Z\")).",
         'first(fn:time:parse_rfc3339("2026-01-08T00:00:00Z"))', ["08/12"]),
        ("all(S, E) :- <-[1d] lease(_)@[S, E].",
         'all(fn:time:parse_rfc3339("2026-01-08T00:00:00Z"),fn:time:parse_rfc3339("2026-01-16T00:00:00Z"))',
         ["08/12", "12/16"]),
    ],
)  # fmt: skip
def test_only_the_intervals_that_are_needed(rule: str, fact: str, leaves: list[str]) -> None:
    names = {
        "08/12": "lease(/a)@[2026-01-08T00:00:00Z, 2026-01-12T00:00:00Z]",
        "12/16": "lease(/a)@[2026-01-12T00:00:00Z, 2026-01-16T00:00:00Z]",
        "25": "lease(/a)@[2025-01-01T00:00:00Z, 2025-02-01T00:00:00Z]",
    }
    facts = evaluated(LEASES + rule)
    found = facts.explainer.explain(fact)
    assert found is not None
    assert found.leaves() == [names[leaf] for leaf in leaves]


def test_a_question_about_a_stretch_of_time() -> None:
    explainer = about(LEASES)
    joined = explainer.explain("lease(/a)@[2026-01-08, 2026-01-16]")
    assert joined is not None
    assert joined.root.rule is None
    assert len(joined.leaves()) == 2
    part = explainer.explain("lease(/a)@[2026-01-13, 2026-01-14]")
    assert part is not None
    assert part.leaves() == ["lease(/a)@[2026-01-12T00:00:00Z, 2026-01-16T00:00:00Z]"]
    assert explainer.explain("lease(/a)@[2026-01-13, 2026-01-17]") is None


def test_recursion_through_time_reads_intervals_as_derived() -> None:
    text = """
    Decl link(P, Q) temporal bound [/name, /name].
    Decl reach(P, Q) temporal bound [/name, /name].
    link(/a, /b)@[2026-01-01, 2026-01-04]. link(/b, /c)@[2026-01-02, 2026-01-05].
    reach(P, Q)@[S, E] :- link(P, Q)@[S, E].
    reach(P, R)@[S2, E1] :- reach(P, Q)@[S1, E1], link(Q, R)@[S2, E2], :time:le(S1, S2), :time:le(E1, E2).
    """
    facts = evaluated(text)
    found = facts.explainer.explain("reach(/a,/c)@[2026-01-02, 2026-01-04]")
    assert found is not None
    check(found, facts)
    assert len(found.leaves()) == 2


# --- origins ---------------------------------------------------------------------------------------------------------


def test_origins() -> None:
    text = "open(/x). Decl wish(X). Decl stock(X). deal(X) :- wish(X), stock(X), open(X)."
    program = Program.load([Source("deal.mg", text)])
    base = program.base([Fact("stock", (Name("/x"),))])
    found = base.evaluate([Fact("wish", (Name("/x"),))]).explainer.explain("deal(/x)")
    assert found is not None
    assert [node.origin for node in found.root.premises] == ["session", "server", "given"]


# --- size and form ---------------------------------------------------------------------------------------------------


class Chain(BareModel):
    """A chain whose model is known without evaluating it."""

    def __init__(self, length: int, rules: str) -> None:
        program = Program.load([Source("chain.mg", f"next(0, 1). at(0).\n{rules}\n")])
        super().__init__(program, 0, Limits(), {})
        self.length = length

    def facts(self, key: Key) -> Iterable[TimedArgs]:
        if key == ("next", 2):
            return [((i, i + 1), None) for i in range(self.length)]
        return [((i,), None) for i in range(self.length + 1)]

    stored_as_derived = facts

    def rounds(self, component: Component, limits: Limits) -> Rounds:  # noqa: ARG002
        return {("at", 1): {(i,): i for i in range(1, self.length + 1)}}

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> Chain:
        raise AssertionError((added, limits))  # what holds is explained without adding facts

    def origin(self, fact: Fact) -> Origin | None:
        return "given" if fact.predicate == "next" or fact.args == (0,) else None


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "rule",
    ["at(Y) :- at(X), next(X, Y).", "at(Y) :- at(X), X < 2000, Y = fn:plus(X, 1).", "at(fn:plus(X, 1)) :- at(X)."],
)
def test_a_proof_two_thousand_deep(rule: str) -> None:
    found = Explainer(Chain(2000, rule)).explain("at(2000)")
    assert found is not None
    assert len(found.nodes()) >= 2001
    nested = found.as_json()["proof"]
    depth = 0
    while nested["premises"]:
        nested = nested["premises"][0]
        depth += 1
    assert depth == 2000
    assert found.text().count("\n") >= 2001


def test_shared_parts_are_shared() -> None:
    lines = ["n0(). m0() :- n0()."]
    lines += [f"n{i}() :- n{i - 1}(), m{i - 1}(). m{i}() :- n{i}()." for i in range(1, 41)]
    found = proof("\n".join(lines), "n40()")
    assert len(found.nodes()) == 81
    assert '"repeated": True' in str(found.as_json()).replace("'", '"')
    text = found.text()
    assert len(text) < 20_000
    assert "[see above]" in text


def test_a_small_tree_is_written_in_full() -> None:
    text = "q(1). r(X) :- q(X). s(X) :- r(X). t(X) :- r(X), s(X)."
    found = proof(text, "t(1)")
    assert len(found.nodes()) == 4
    full = found.as_json()["proof"]
    assert [node["fact"] for node in full["premises"]] == ["r(1)", "s(1)"]
    assert full["premises"][1]["premises"][0]["premises"] != []
    cut = found.as_json(max_nodes=3)["proof"]
    assert cut["premises"][1]["premises"][0] == {
        "fact": "r(1)",
        "origin": "derived",
        "rule": full["premises"][0]["rule"],
        "bindings": {"X": "1"},
        "premises": [],
        "repeated": True,
    }


def test_json() -> None:
    found = proof('edge("a", /b).\npath(X, Y) :- edge(X, Y), !gone(Y).\nDecl gone(X).', 'path("a",/b)')
    answer = found.as_json()
    rule = answer["proof"]["rule"]
    assert rule.pop("id").startswith("/rule/")
    assert answer == {
        "fact": 'path("a",/b)',
        "proof": {
            "fact": 'path("a",/b)',
            "origin": "derived",
            "rule": {"head": "path", "file": "rules.mg", "line": 2},
            "bindings": {"X": '"a"', "Y": "/b"},
            "premises": [
                {"fact": 'edge("a",/b)', "origin": "given", "rule": None, "bindings": {}, "premises": []},
                {"fact": "!gone(/b)", "origin": "absent", "rule": None, "bindings": {}, "premises": []},
            ],
        },
    }


def test_text() -> None:
    assert proof("edge(/a, /b).\npath(X, Y) :- edge(X, Y).", "path(/a,/b)").text() == (
        "path(/a,/b)  with X = /a, Y = /b\n  by path(X, Y) :- edge(X, Y).  (rules.mg:2)\n  edge(/a,/b)  [given]\n"
    )


def test_names_in_packages() -> None:
    text = "Package zoo!\nbird(/owl). flies(X) :- bird(X)."
    found = proof(text, "zoo.flies(/owl)")
    assert found.leaves() == ["zoo.bird(/owl)"]
    assert [rule.head for rule in found.rules()] == ["zoo.flies"]


def test_reflected_premises_are_tests() -> None:
    text = """
    Decl animal(X) descr [reflects(/animal)] bound [/animal].
    seen(/animal/owl). seen(/rock).
    beast(X) :- seen(X), animal(X).
    """
    found = proof(text, "beast(/animal/owl)")
    assert found.leaves() == ["seen(/animal/owl)"]
