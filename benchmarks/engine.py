"""Evaluation: requests on a prepared base, closures, same generation, points-to. Results are verified.

The reference is the Go implementation of Mangle on the same kind of machine (2 cores, shared), wall time. Figures here
are CPU time, best of five; for requests the median of 1,000. clingo, if it is installed, runs in the same process on
the same graph. A figure over its budget is marked; a slow machine does not fail the benchmark.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
from _table import best, peak_kilobytes, print_table

from manglecp.mangle import CompiledProgram, Fact, Program, Source, evaluate, parse
from manglecp.mangle.syntax import Clause

REQUESTS = 1_000
MEMORY = "--memory"
# name, program, time of the reference, budget in milliseconds, number of runs
GRAPHS: list[tuple[str, Callable[[], Graph], str, float | None, int]] = [
    ("tc_chain300", lambda: closure_of_chain(300), "459 ms", 40, 5),
    ("tc_random_100k", lambda: reachable_from(59), "1,781 ms", None, 5),
    ("tc_random", lambda: reachable_from(590), "30,370 ms", 1_500, 5),
    ("sg_d8", lambda: same_generation(8), "633 ms", None, 5),
    ("sg_d9", lambda: same_generation(9), "3,561 ms", 350, 5),
    ("pt_2000", lambda: points_to(1_400), "3,090 ms", 150, 5),
    ("pt_2000_dense", lambda: points_to(900), "59,709 ms", 1_500, 5),
]
# facts in the base, derived facts, time of the reference, budget in milliseconds
INTENT = [
    (0, 296, "8.9 ms", 0.9),
    (1_000, 448, "14.0 ms", 1.0),
    (10_000, 418, "38.8 ms", 1.1),
    (100_000, 402, "316 ms", 1.5),
]


@dataclass(frozen=True)
class Row:
    """A figure in milliseconds or megabytes, with its budget."""

    what: str
    derived: int | None
    reference: str
    figure: float
    most: float | None = None
    unit: str = "ms"

    def cells(self) -> tuple[str, ...]:
        derived = "" if self.derived is None else f"{self.derived:,}"
        most, mark = "", ""
        if self.most is not None:
            most, mark = self._shown(self.most), "ok" if self.figure <= self.most else "OVER"
        return self.what, derived, self.reference, most, self._shown(self.figure), mark

    def _shown(self, figure: float) -> str:
        return f"{figure:,.2f} {self.unit}" if figure < 10 else f"{figure:,.0f} {self.unit}"


def loaded(text: str) -> Program:
    return Program.load([Source("program", text)])


def facts_of(text: str) -> list[Fact]:
    items = [item for item in parse(Source("facts", text)).items if isinstance(item, Clause)]
    return [Fact(item.head.predicate, item.head.args) for item in items]  # type: ignore[arg-type]  # constants only


def check(name: str, got: int, want: int) -> None:
    if got != want:
        sys.exit(f"{name}: {got:,} facts, {want:,} expected")


def graph_row(name: str, make: Callable[[], Graph], reference: str, most: float | None, times: int) -> Row:
    graph = make()
    program = loaded(graph.text)
    result = evaluate(program, now=0)
    for predicate, want in graph.expected.items():
        check(f"{name}, {predicate}", len(result.relations[predicate, 2]), want)
    derived = result.statistics.derived
    check(name, derived, sum(graph.expected.values()))
    del result
    return Row(name, derived, reference, 1000 * best(lambda: evaluate(program, now=0), times), most)


def intent_row(count: int, want: int, reference: str, most: float) -> Row:
    name = f"intent, {count:,} facts in the base"
    base = loaded(intent_rules()).base(facts_of("\n".join(intent_base(count))) if count else ())
    request = facts_of(intent_facts())
    check(name, base.evaluate(request, now=0).statistics.derived, want)
    taken = []
    for _ in range(REQUESTS):
        start = time.process_time()
        base.evaluate(request, now=0)
        taken.append(time.process_time() - start)
    return Row(name, want, reference, 1000 * statistics.median(taken), most)


def loading() -> list[Row]:
    text = intent_rules() + intent_facts()
    return [
        Row("load intent.mg", None, "", 1000 * best(lambda: CompiledProgram(loaded(text))), 60),
        Row("load intent.mg and evaluate once", 296, "", 1000 * best(lambda: evaluate(loaded(text), now=0))),
    ]


def closure() -> list[Row]:
    """Measure the closure of a graph with 400 nodes and 800 edges. Budget: the time of clingo."""
    edges = random_edges(400, 800, seed=7)
    want = reachable_pairs(edges, range(400))
    rules = "path(X, Y) :- edge(X, Y).\npath(X, Z) :- path(X, Y), edge(Y, Z).\n"
    facts = "\n".join(f"edge({a}, {b})." for a, b in edges)
    decls = "Decl edge(X, Y) bound [/number, /number].\nDecl path(X, Y) bound [/number, /number].\n"
    text = decls + facts + "\n" + rules
    program = loaded(text)
    check("closure", evaluate(program, now=0).statistics.derived, want)
    clingo = clingo_takes(facts + "\n" + rules, want)
    name = "closure, 400 nodes, 800 edges"
    rows = [
        Row(name, want, "", 1000 * best(lambda: evaluate(program, now=0)), clingo),
        Row(f"{name}, with loading", want, "", 1000 * best(lambda: evaluate(loaded(text), now=0)), clingo),
    ]
    return rows if clingo is None else [*rows, Row(f"{name}, clingo reads and grounds", want, "", clingo)]


def clingo_takes(text: str, want: int) -> float | None:
    """Return the time of clingo in milliseconds; None if it is not installed."""
    try:
        import clingo
    except ImportError:
        print("clingo is not installed: no comparison")
        return None

    def ground() -> clingo.Control:
        control = clingo.Control(message_limit=0)
        control.add("base", [], text)
        control.ground([("base", [])])
        return control

    control = ground()  # kept while its atoms are counted
    check("clingo", sum(1 for _ in control.symbolic_atoms.by_signature("path", 2)), want)
    return 1000 * best(ground)


def peak_memory() -> Row:
    """Measure the peak memory of a process that evaluates tc_random once."""
    run = subprocess.run([sys.executable, str(Path(__file__)), MEMORY], capture_output=True, text=True, check=True)
    return Row("tc_random, peak memory", None, "1.2 GB", int(run.stdout) / 1024, 400, "MB")


def main() -> None:
    if sys.argv[1:] == [MEMORY]:
        evaluate(loaded(reachable_from(590).text), now=0)
        print(peak_kilobytes())
        return
    rows = [*(intent_row(*row) for row in INTENT), *loading(), *(graph_row(*row) for row in GRAPHS)]
    rows += [peak_memory(), *closure()]
    header = ("program", "derived", "Go reference", "budget", "result", "")
    print_table(header, [row.cells() for row in rows])


if __name__ == "__main__":
    main()
