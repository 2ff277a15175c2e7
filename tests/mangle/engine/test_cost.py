"""The cost of a request, and of a change to the base, follows what they bring and not what the base holds.

Work is counted, not timed: the lines of Python that run, and the memory that is asked for, which shows what a line of
Python leaves to C.
"""

from __future__ import annotations

import importlib.util
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from manglecp.base.source import Source
from manglecp.mangle.engine import Base
from manglecp.mangle.facts import Fact
from manglecp.mangle.parser import parse
from manglecp.mangle.program import Program
from manglecp.mangle.syntax import Clause
from manglecp.mangle.values import Name
from tests.mangle.engine.changing import NOW, load

PROGRAMS: Final = Path(__file__).parents[3] / "benchmarks" / "_programs.py"
SMALL, LARGE = 100, 20_000
MORE: Final = 1.1
"""Other facts match in the larger base, not more of them."""
KILOBYTES: Final = 200


def lines(run: Callable[[], object]) -> int:
    """How many lines of Python run."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def kilobytes(run: Callable[[], object]) -> float:
    """The most memory that is held while it runs."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 1024
    finally:
        tracemalloc.stop()


@cache
def programs() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_programs", PROGRAMS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def facts_of(text: str) -> list[Fact]:
    clauses = [item for item in parse(Source("facts", text)).items if isinstance(item, Clause)]
    return [Fact(clause.head.predicate, clause.head.args) for clause in clauses]  # type: ignore[arg-type]  # constants


@pytest.fixture(scope="module")
def bases() -> tuple[Base, Base]:
    program = Program.load([Source("intent.mg", programs().intent_rules())])
    small, large = (program.base(facts_of("\n".join(programs().intent_base(count)))) for count in (SMALL, LARGE))
    return small, large


@pytest.fixture(scope="module")
def request_facts() -> list[Fact]:
    return facts_of(programs().intent_facts())


def is_no_dearer(runs: list[Callable[[], object]]) -> None:
    """The second run does the work of the first, once functions and indexes are there."""
    for run in runs:
        run()
    small, large = map(lines, runs)
    assert small > 1_000  # it does something
    assert large < MORE * small
    small, large = map(kilobytes, runs)  # type: ignore[assignment]
    assert large < small + KILOBYTES


def test_a_request(bases: tuple[Base, Base], request_facts: list[Fact]) -> None:
    is_no_dearer([partial(base.evaluate, request_facts, now=NOW) for base in bases])


NEW: Final = [
    Fact("calls", (Name("/s/1"), Name("/s/new"))),
    Fact("symbol", (Name("/s/new"), Name("/f/1"), Name("/func"), 7)),
]


def test_a_change_of_the_base(bases: tuple[Base, Base]) -> None:
    """No set and no index of a large predicate is copied."""
    is_no_dearer([partial(base.with_facts, NEW, base_facts(base)[:3]) for base in bases])


def test_many_changes_of_the_base(bases: tuple[Base, Base], request_facts: list[Fact]) -> None:
    """A change of a base that was changed before costs as much, and the request after it."""
    changed = []
    for base in bases:
        for number in range(10):
            base = base.with_facts([Fact("calls", (Name("/s/1"), Name(f"/s/more{number}")))], base_facts(base)[:1])
            base.evaluate(request_facts, now=NOW)
        changed.append(base)
    is_no_dearer([partial(base.with_facts, NEW, base_facts(base)[:3]) for base in changed])
    is_no_dearer([partial(base.evaluate, request_facts, now=NOW) for base in changed])


def base_facts(base: Base) -> list[Fact]:
    i = base.compiled.ids["calls", 2]
    return [Fact("calls", args) for args in sorted(base.layer.given[i], key=str)]


def test_a_request_after_a_change(bases: tuple[Base, Base], request_facts: list[Fact]) -> None:
    """Indexes come along; nothing is built again."""
    for base in bases:
        base.evaluate(request_facts, now=NOW)
    changed = [base.with_facts(NEW, base_facts(base)[:3]) for base in bases]
    small, large = (lines(partial(base.evaluate, request_facts, now=NOW)) for base in changed)
    assert large < MORE * small


def test_what_is_negated_and_aggregated() -> None:
    """A request that takes facts away, or changes a group, looks at these."""
    rules = """
    Decl item(X, G) bound [/number, /number].
    Decl hidden(X) bound [/number].
    Decl shown(X, G) bound [/number, /number].
    Decl size(G, N) bound [/number, /number].
    Decl large(G) bound [/number].
    shown(X, G) :- item(X, G), !hidden(X).
    size(G, N) :- shown(X, G) |> do fn:group_by(G), let N = fn:count().
    large(G) :- size(G, N), N > 4.
    """
    program = load(rules)
    bases = [program.base([Fact("item", (i, i // 5)) for i in range(count)]) for count in (SMALL, LARGE)]
    request = [Fact("hidden", (i,)) for i in range(0, 40, 3)] + [Fact("item", (i, 99)) for i in range(7)]
    is_no_dearer([partial(base.evaluate, request, now=NOW) for base in bases])


CONSTRAINED: Final = """
Decl owner(F, P) descr [fundep([F], [P])] bound [/number, /number] inclusion [person(P)].
Decl person(P) bound [/number].
mine(F) :- owner(F, 1).
"""


def test_constraints_of_a_base_are_not_checked_again() -> None:
    counts = []
    for size in (SMALL, LARGE):
        people = [Fact("person", (i,)) for i in range(size)]
        base = load(CONSTRAINED).base([*people, *(Fact("owner", (i, i % size)) for i in range(size))])
        request = [Fact("owner", (size + 1, 1))]
        base.evaluate(request, now=NOW)  # what is found once about the base
        counts.append(lines(partial(base.evaluate, request, now=NOW)))
    assert counts[1] < counts[0] * MORE


def test_rules_of_other_intents_cost_nothing() -> None:
    """A request visits the rules whose constants have a fact; others are not even generated."""
    bases = []
    for intents in (30, 300):
        rules = (
            "Decl asked(I) bound [/string].\nDecl size(N) bound [/number].\nDecl tool(I, N) bound [/string, /number].\n"
        )
        rules += "".join(f'tool("i{i}", N) :- asked("i{i}"), size(N), N > {i}.\n' for i in range(intents))
        bases.append(load(rules).base([Fact("size", (i,)) for i in range(400)]))
    request = [Fact("asked", ("i7",))]
    assert len(bases[1].evaluate(request, now=NOW).rows(("tool", 2))) == 392
    assert sum(1 for component in bases[1].compiled.components for _ in component.functions()) == 1
    is_no_dearer([partial(base.evaluate, request, now=NOW) for base in bases])
    for base in bases:
        assert base.evaluate(request, now=NOW).rules_fired() == 1
