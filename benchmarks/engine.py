"""Evaluation: requests on a prepared base, closures, same generation, points-to; answers are checked.

The reference is the Go implementation of Mangle on the same kind of machine (2 cores, shared), wall time. Figures here
are CPU time, best of five; for requests the median of 1,000. clingo runs in the same process on the same graph.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import clingo
from _programs import (
    Graph,
    closure_of_chain,
    intent_base,
    intent_facts,
    intent_rules,
    points_to,
    random_edges,
    reachable_from,
    reachable_pairs,
    same_generation,
)
from _table import best, print_table

from manglecp.mangle.engine.base import evaluate
from manglecp.mangle.facts import Fact
from manglecp.mangle.parser import parse
from manglecp.mangle.program import Program
from manglecp.mangle.source import Source
from manglecp.mangle.syntax import Clause

REQUESTS = 1_000
MEMORY = "--memory"
# name, how it is made, what the reference takes, how often it is measured
GRAPHS: list[tuple[str, Callable[[], Graph], str, int]] = [
    ("tc_chain300", lambda: closure_of_chain(300), "459 ms", 5),
    ("tc_random_100k", lambda: reachable_from(59), "1,781 ms", 5),
    ("tc_random", lambda: reachable_from(590), "30,370 ms", 3),
    ("sg_d8", lambda: same_generation(8), "633 ms", 5),
    ("sg_d9", lambda: same_generation(9), "3,561 ms", 5),
    ("pt_2000", lambda: points_to(1_400), "3,090 ms", 5),
    ("pt_2000_dense", lambda: points_to(900), "59,709 ms", 5),
]
INTENT = [(0, 296, "8.9 ms"), (1_000, 448, "14.0 ms"), (10_000, 418, "38.8 ms"), (100_000, 402, "316 ms")]


def loaded(text: str) -> Program:
    return Program.load([Source("program", text)])


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms" if seconds < 1 else f"{1000 * seconds:,.0f} ms"


def facts_of(text: str) -> list[Fact]:
    items = [item for item in parse(Source("facts", text)).items if isinstance(item, Clause)]
    return [Fact(item.head.predicate, item.head.args) for item in items]  # type: ignore[arg-type]  # constants only


def check(name: str, got: int, want: int) -> None:
    if got != want:
        sys.exit(f"{name}: {got:,} facts, {want:,} expected")


def graph_row(name: str, make: Callable[[], Graph], reference: str, times: int) -> tuple[str, ...]:
    graph = make()
    program = loaded(graph.text)
    result = evaluate(program, now=0)
    for predicate, want in graph.expected.items():
        check(f"{name}, {predicate}", len(result.relations[predicate, 2]), want)
    derived = result.statistics.derived
    check(name, derived, sum(graph.expected.values()))
    del result
    return name, f"{derived:,}", reference, milliseconds(best(lambda: evaluate(program, now=0), times))


def intent_row(count: int, want: int, reference: str) -> tuple[str, ...]:
    name = f"intent, {count:,} facts in the base"
    base = loaded(intent_rules()).base(facts_of("\n".join(intent_base(count))) if count else ())
    request = facts_of(intent_facts())
    check(name, base.evaluate(request, now=0).statistics.derived, want)
    taken = []
    for _ in range(REQUESTS):
        start = time.process_time()
        base.evaluate(request, now=0)
        taken.append(time.process_time() - start)
    return name, f"{want:,}", reference, f"{1000 * statistics.median(taken):.2f} ms"


def against_clingo() -> list[tuple[str, ...]]:
    edges = random_edges(400, 800, seed=7)
    want = reachable_pairs(edges, range(400))
    rules = "path(X, Y) :- edge(X, Y).\npath(X, Z) :- path(X, Y), edge(Y, Z).\n"
    facts = "\n".join(f"edge({a}, {b})." for a, b in edges)
    decls = "Decl edge(X, Y) bound [/number, /number].\nDecl path(X, Y) bound [/number, /number].\n"
    text = decls + facts + "\n" + rules
    program = loaded(text)
    check("closure", evaluate(program, now=0).statistics.derived, want)

    def ground() -> clingo.Control:
        control = clingo.Control(message_limit=0)
        control.add("base", [], facts + "\n" + rules)
        control.ground([("base", [])])
        return control

    control = ground()  # kept while its atoms are counted
    check("clingo", sum(1 for _ in control.symbolic_atoms.by_signature("path", 2)), want)
    name = "closure, 400 nodes, 800 edges"
    runs: list[tuple[str, Callable[[], object]]] = [
        (name, lambda: evaluate(program, now=0)),
        (f"{name}, with loading", lambda: evaluate(loaded(text), now=0)),
        (f"{name}, clingo reads and grounds", ground),
    ]
    return [(what, f"{want:,}", "", milliseconds(best(run))) for what, run in runs]


def peak_memory() -> str:
    """Of a process that does nothing but evaluate tc_random once."""
    run = subprocess.run([sys.executable, str(Path(__file__)), MEMORY], capture_output=True, text=True, check=True)
    return f"{int(run.stdout) / 1024:,.0f} MB"


def main() -> None:
    if sys.argv[1:] == [MEMORY]:
        evaluate(loaded(reachable_from(590).text), now=0)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return
    rows: list[tuple[str, ...]] = [intent_row(*row) for row in INTENT]
    rows += [graph_row(*row) for row in GRAPHS]
    rows.append(("tc_random, peak memory", "", "1.2 GB", peak_memory()))
    rows += against_clingo()
    print_table(("what", "derived", "Go reference", "here"), rows)


if __name__ == "__main__":
    main()
