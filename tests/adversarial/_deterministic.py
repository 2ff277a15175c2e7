"""Evaluate some programs and print everything; run by the tests of case 29 as a process of its own.

The argument is a number that decides the order in which facts and files arrive.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from manglecp.mangle import Fact, List, MangleError, Program, Source, parse
from manglecp.mangle.syntax import Clause

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "benchmarks" / "programs"
NOW = 1_768_478_400 * 10**9

MIXED = """
Decl num(X, Y) bound [/number, /number].
Decl any(X) bound [/any].
Decl text(X, S) bound [/number, /string].
Decl path(X, Y) bound [/number, /number].
path(X, Y) :- num(X, Y).
path(X, Z) :- path(X, Y), path(Y, Z).
sizes(X, N) :- path(X, Y) |> do fn:group_by(X), let N = fn:count().
all(L) :- any(X) |> do fn:group_by(), let L = fn:collect(X).
pairs(M) :- text(X, S) |> do fn:group_by(), let M = fn:collect_to_map(X, S).
one(V) :- any(X) |> do fn:group_by(), let V = fn:pick_any(X).
"""
REACH = """
Decl hop(X, Y) bound [/number, /number].
reach(X, Y) :- hop(X, Y).
reach(X, Z) :- reach(X, Y), reach(Y, Z).
"""
FAILING = """
Decl num(X, Y) bound [/number, /number].
q(Z) :- num(X, Y), Z = fn:div(X, fn:minus(Y, 3)).
"""


def facts_of(text: str) -> list[Fact]:
    items = [item for item in parse(Source("facts", text)).items if isinstance(item, Clause)]
    return [Fact(item.head.predicate, item.head.args) for item in items]  # type: ignore[arg-type]  # constants only


def show(title: str, rules: str, facts: list[Fact], order: Random) -> None:
    lines = [line for line in rules.splitlines() if line.strip()]
    decls = [line for line in lines if line.startswith("Decl")]
    others = [line for line in lines if not line.startswith("Decl")]
    sources = [Source("a.mg", "\n".join(decls)), Source("b.mg", "\n".join(others))]
    order.shuffle(sources)
    facts = order.sample(facts, len(facts))
    half = order.randint(0, len(facts))
    print(title)
    try:
        result = Program.load(sources).base(facts[:half]).evaluate(facts[half:], now=NOW)
    except MangleError as error:
        print(error)
        return
    print("\n".join(result.facts()))
    print(result.statistics.given, result.statistics.derived)
    for fact in result.facts()[::9]:
        proof = result.explainer.explain(fact)
        assert proof is not None
        for node in proof.nodes():
            rule = "" if node.rule is None else node.rule.text
            print(node.fact, "derived" if node.origin == "derived" else "leaf", rule, list(node.bindings.items()))
    for fact in result.facts()[::60]:
        print([[leaf.text for leaf in leaves] for leaves in result.explainer.alternatives(fact, 10).sets])
    for fact in ("permitted(/deploy)", "reach(1,5)"):
        if fact.partition("(")[0] in {name for name, _ in result.program.predicates}:
            answer = result.explainer.why_not(fact)
            print(answer.fact, sorted((b.rule.text, b.premise) for b in answer.blocked), answer.would_unlock)
    print(sorted((rule.rule.text, rule.status, rule.fired, rule.missing) for rule in result.explainer.coverage().rules))
    print([(unused.fact.text, unused.reason) for unused in result.explainer.unused(facts)])


def main() -> None:
    order = Random(int(sys.argv[1]))
    numbers = [Fact("num", (i, (7 * i) % 31)) for i in range(30)]
    others = facts_of('any(/b). any("x"). any(2). any(1.5). text(1, "b"). text(1, "a"). text(2, "c").')
    others.append(Fact("any", (List((1, 2)),)))
    intent = (PROGRAMS / "intent_rules.mg").read_text(encoding="utf-8")
    request = facts_of((PROGRAMS / "intent_facts.mg").read_text(encoding="utf-8"))
    show("intent", intent, request, order)
    show("mixed", MIXED, [*numbers, *others], order)
    show("why not", REACH, [Fact("hop", (i, i + 1)) for i in (1, 2, 4)], order)
    show("failing", FAILING, numbers, order)
    show("two errors", FAILING, [Fact("num", (i, 3)) for i in range(9)], order)
    show("refused", MIXED, [Fact("num", (1, "x"))], order)
    show("unknown", MIXED, [Fact("nun", (1, 2))], order)


if __name__ == "__main__":
    main()
