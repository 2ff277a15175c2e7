"""How costs grow: with the facts of a server, from a thousand to a million, and with tools, from 15 to 20,000.

Budgets: one fact added to or removed from a base of a million facts 1 ms; an answer over 5,000 tools, of which 11 fit,
9 ms, and the first answer of a process 1.5 s. Milliseconds are CPU time. clingo has no base to change: its column is
the time to read and ground the same program and facts. ``explaining.py`` has explanations.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import clingo
from _packs import NOW, base_facts, make_pack, request_bytes
from _table import print_table

from manglecp.intent import Domain, Identity
from manglecp.intent.responder import answer_bytes
from manglecp.mangle import Base, Fact, Program, Source

RULES = """
Decl call(Caller, Callee, Line) bound [/number, /number, /number].
Decl owner(Function, Team) bound [/number, /string].
Decl deprecated(Function) bound [/number].
late(F) :- call(F, _, Line), Line > 995.
uses(F, G) :- call(F, G, _), owner(G, "core"), !deprecated(G).
"""
ASP_RULES = """
late(F) :- call(F, _, Line), Line > 995.
uses(F, G) :- call(F, G, _), owner(G, "core"), not deprecated(G).
"""
FACTS = (1_000, 10_000, 100_000, 1_000_000)
TOOLS = (15, 60, 300, 1_000, 5_000, 20_000)
T = TypeVar("T")
UPDATE_MS, ANSWER_MS, FIRST_MS = 1.0, 9.0, 1_500.0
PRINCIPAL = Identity("bench", frozenset({"weekend"}), "user")


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """Return the result, and the CPU time in milliseconds."""
    before = time.process_time()
    result = run()
    return result, (time.process_time() - before) * 1_000


def facts_of(count: int) -> list[Fact]:
    calls = count * 9 // 10
    facts = [Fact("call", (i, i * 7 % calls, i % 1_000)) for i in range(calls)]
    return facts + [Fact("owner", (i * 10, "core" if i % 10 == 0 else "shop")) for i in range(count - calls)]


def clingo_ms(facts: list[Fact]) -> float:
    text = ASP_RULES + "\n".join(f"{fact.text}." for fact in facts)

    def ground() -> None:
        control = clingo.Control(message_limit=0)
        control.add("base", [], text)
        control.ground([("base", [])])

    return timed(ground)[1]


def updates_ms(base: Base, facts: list[Fact]) -> tuple[float, float]:
    """Return the median time of adding one fact, and of removing one, each to the base that the last one made."""
    added, removed = [], []
    for number, fact in enumerate(facts[:200]):
        base, taken = timed(partial(base.with_facts, [Fact("call", (len(facts) + number, 5, 999))]))
        added.append(taken)
        base, taken = timed(partial(base.with_facts, (), [fact]))
        removed.append(taken)
    return statistics.median(added), statistics.median(removed)


def grow_facts() -> bool:
    rows, is_missed = [], False
    for count in FACTS:
        facts = facts_of(count)
        base, prepared = timed(partial(Program.load([Source("growth.mg", RULES)]).base, facts))
        evaluate = partial(base.evaluate, [Fact("deprecated", (70,))], now=NOW)
        first = timed(evaluate)[1]
        usual = statistics.median(timed(evaluate)[1] for _ in range(50))
        updates = updates_ms(base, facts)
        missed = max(updates) > UPDATE_MS
        is_missed |= missed
        figures = (prepared, first, usual, *updates, clingo_ms(facts))
        rows.append((f"{count:,}", *(f"{figure:,.2f}" for figure in figures), "MISSED" if missed else ""))
    print_table(("ms, facts", "prepare", "first request", "request", "add one", "remove one", "clingo", ""), rows)
    return is_missed


def grow_tools() -> bool:
    rows, is_missed = [], False
    for count in TOOLS:
        domain, loaded = timed(partial(Domain.load, make_pack(count), facts=base_facts(1_000)))
        answer = partial(answer_bytes, domain, request_bytes(), PRINCIPAL, lambda: NOW)
        first = timed(answer)[1]
        usual = min(timed(answer)[1] for _ in range(30))
        missed = count == 5_000 and (usual > ANSWER_MS or first > FIRST_MS)
        is_missed |= missed
        rows.append((f"{count:,}", f"{loaded:,.0f}", f"{first:,.0f}", f"{usual:.2f}", "MISSED" if missed else ""))
    print_table(("ms, tools", "load", "first answer", "answer", ""), rows)
    return is_missed


def main() -> int:
    is_missed = grow_facts()
    print()
    return int(grow_tools() or is_missed)


if __name__ == "__main__":
    sys.exit(main())
