"""Definitions, executed literally: what an explanation is compared with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from manglecp.base.source import Source
from manglecp.mangle import printer
from manglecp.mangle.errors import MangleError
from manglecp.mangle.facts import Interval
from manglecp.mangle.matching import head_interval
from manglecp.mangle.parser import parse
from manglecp.mangle.printer import fact_text, interval_text, value_text
from manglecp.mangle.program import Program
from manglecp.mangle.syntax import Apply, Atom, Clause, Decl, Equality, Literal, Premise, Term, Variable
from manglecp.mangle.values import Duration, Name, Time, Value
from tests.mangle.naive import evaluate

from .programs import LIMITS, NOW, load

Key = tuple[str, int]
Facts = frozenset[str]


def holds(text: str, goal: str) -> bool | None:
    """None if the program breaks."""
    try:
        result = evaluate(load(text), now=NOW, limits=LIMITS)
        if "@" not in goal and not _is_deferred(text, goal):
            return goal in result.facts()
        probe = "asked() :- " + goal + "."
        return "asked()" in evaluate(load(f"{text}{probe}\n"), now=NOW, limits=LIMITS).facts()
    except MangleError:
        return None


def _is_deferred(text: str, goal: str) -> bool:
    name = goal.partition("(")[0]
    return any(line.startswith(f"Decl {name}(") and "deferred()" in line for line in text.splitlines())


def unlocking(text: str, goal: str, most: int = 3, tries: int = 1500) -> list[list[str]] | None:
    """All sets with the fewest facts that make the goal hold without an error; None if there are too many to try."""
    facts = list(candidates(text, goal))
    for size in range(1, most + 1):
        if math.comb(len(facts), size) > tries:
            return None
        found = {
            frozenset(some) for some in itertools.combinations(facts, size) if holds(text + _lines(some), goal) is True
        }
        if found:
            return sorted(sorted(one) for one in _smallest(found, text))
    return []


def _lines(facts: Iterable[str]) -> str:
    return "".join(f"{fact}.\n" for fact in facts)


def candidates(text: str, goal: str) -> Iterator[str]:
    """Every fact of a predicate without rules over the constants, as far as declarations allow."""
    unit = parse(Source("program", text))
    clauses = [item for item in unit.items if isinstance(item, Clause)]
    decls = {item.atom.key: item for item in unit.items if isinstance(item, Decl)}
    ruled = {clause.head.key for clause in clauses if clause.premises}
    keys = sorted({clause.head.key for clause in clauses} | set(decls), key=str)
    asked = parse(Source("goal", f"{goal}.")).items[0]
    assert isinstance(asked, Clause)
    constants = sorted({value_text(value) for value in _constants([*clauses, asked])})
    known = set(evaluate(load(text), now=NOW, limits=LIMITS).facts())
    for key in keys:
        if key in ruled:
            continue
        name, arity = key
        columns = [constants] * arity
        if key in decls and decls[key].bounds:
            (bounds,) = decls[key].bounds
            columns = [[c for c in constants if _conforms(c, bound)] for bound in bounds]
        temporal = (key in decls and decls[key].temporal) or any(
            clause.head.key == key and clause.annotation is not None for clause in clauses
        )
        times = sorted(map(interval_text, intervals(clauses, key, asked))) if temporal else [""]
        for args in itertools.product(*columns):
            for at in times:
                fact = f"{name}({','.join(args)}){at}"
                if fact not in known:
                    yield fact


def _conforms(constant: str, bound: Term) -> bool:
    assert isinstance(bound, Name)
    return {"/name": constant.startswith("/"), "/number": constant.lstrip("-").isdigit()}[bound.text]


def _constants(clauses: Iterable[Clause]) -> Iterator[Value]:
    for clause in clauses:
        terms: list[Term] = list(clause.head.args)
        for premise in clause.premises:
            terms += [premise.left, premise.right] if isinstance(premise, Equality) else premise.atom.args
        while terms:
            term = terms.pop()
            if isinstance(term, Apply):
                terms += term.args
            elif not isinstance(term, Variable):
                yield term


# --- time ------------------------------------------------------------------------------------------------------------


def intervals(clauses: list[Clause], key: Key, goal: Clause) -> set[Interval]:
    """The smallest intervals that satisfy premises on a predicate; all that is spoken of where ends are free."""
    own = [p for c in clauses for p in c.premises if isinstance(p, Literal) and p.atom.key == key]
    found = {interval for premise in own if (interval := dictated(premise)) is not None}
    if any(_has_free_ends(premise) for premise in own):
        everywhere = [p for c in clauses for p in c.premises if isinstance(p, Literal)]
        found |= {interval for p in everywhere if (interval := asked_for(p)) is not None}
        points = {NOW, *(end for i in found for end in i)}
        annotations = [a for c in [*clauses, goal] for a in (c.annotation,) if a is not None]
        annotations += [p.annotation for p in everywhere if p.annotation is not None]
        points |= {b.value.ns for a in annotations for b in a.bounds if isinstance(b.value, Time)}
        found |= {(ns, ns) for ns in points}
    if goal.annotation is not None and (goal.head.key == key or any(_has_free_ends(premise) for premise in own)):
        ends = [b.value.ns for b in goal.annotation.bounds if isinstance(b.value, Time)]
        found.add((min(ends), max(ends)))
    return found


def _has_free_ends(premise: Literal) -> bool:
    bounds = () if premise.annotation is None else premise.annotation.bounds
    return any(isinstance(b.value, Variable) and b.value.name != "_" for b in bounds)


def asked_for(premise: Literal) -> Interval | None:
    """The window or the instants that a premise names."""
    if premise.operator is not None:
        sign = 1 if premise.operator.is_future else -1
        ends = [NOW + sign * b.value.ns for b in premise.operator.bounds if isinstance(b.value, Duration)]
    elif premise.annotation is not None:
        values = [b.value for b in premise.annotation.bounds if not isinstance(b.value, Variable)]
        ends = [value.ns if isinstance(value, Time) else NOW for value in values]
    else:
        ends = []
    return (min(ends), max(ends)) if ends else None


def dictated(premise: Literal) -> Interval | None:
    """The smallest interval that satisfies a premise whose bounds are all known."""
    if _has_free_ends(premise):
        return None
    asked = asked_for(premise)
    if asked is None:
        return NOW, NOW
    if premise.operator is None or premise.operator.is_box:
        return asked
    instant = min(max(NOW, asked[0]), asked[1])
    return instant, instant


def _smallest(found: set[Facts], text: str) -> list[Facts]:
    """Without sets in which one fact could hold for less time, or, where any time would do, nearer to now."""
    clauses = [item for item in parse(Source("program", text)).items if isinstance(item, Clause)]
    return [one for one in found if not any(_better(other, one, clauses) for other in found)]


def _better(one: Facts, other: Facts, clauses: list[Clause]) -> bool:
    mine, its = one - other, other - one
    if len(mine) != 1 or len(its) != 1:
        return False
    (left,), (right,) = mine, its
    if "@" not in left or left.partition("@")[0] != right.partition("@")[0]:
        return False
    (s, e), (start, end) = _interval(left), _interval(right)
    if start <= s and e <= end:
        return True
    name = right.partition("(")[0]
    own = [p for c in clauses for p in c.premises if isinstance(p, Literal) and p.atom.predicate == name]
    if any(dictated(premise) == (start, end) for premise in own) or e - s != end - start:
        return False
    return (max(s - NOW, NOW - e, 0), s) < (max(start - NOW, NOW - end, 0), start)


def _interval(fact: str) -> Interval:
    clause = parse(Source("fact", f"{fact}.")).items[0]
    assert isinstance(clause, Clause)
    assert clause.annotation is not None
    ends = [b.value.ns for b in clause.annotation.bounds if isinstance(b.value, Time)]
    return ends[0], ends[-1]


# --- supports --------------------------------------------------------------------------------------------------------


def given_facts(program: Program, now: int) -> set[str]:
    """The facts that stand in the program, in canonical text."""
    found = set()
    for fact in program.facts:
        at = None
        if program.predicates[fact.key].temporal:
            assert fact.clause.annotation is not None
            at = head_interval(fact.clause.annotation, {}, now)
        found.add(fact_text(fact.key[0], fact.values(now), at))
    return found


def supporting(text: str, goal: str, most: int = 9) -> list[list[str]] | None:
    """The minimal sets of given facts that support a fact, negation read in the full model; None if too many to try.

    Negated premises ask copies that hold what the full model holds, so what is left of the program only grows.
    """
    program = load(text)
    given = sorted(given_facts(program, NOW))
    if len(given) > most:
        return None
    result = evaluate(program, now=NOW, limits=LIMITS)
    items = parse(Source("program", text)).items
    lines = [printer.decl(item) for item in items if isinstance(item, Decl)]
    copied: dict[Key, str] = {}
    for item in items:
        if isinstance(item, Clause) and item.premises:
            lines.append(printer.clause(replace(item, premises=tuple(_copied(p, copied) for p in item.premises))))
    for (name, arity), copy in copied.items():
        args = ", ".join(f"A{i}" for i in range(arity))
        temporal = " temporal" if program.predicates[name, arity].temporal else ""
        lines.append(f"Decl {copy}({args}){temporal}.")
        lines += [f"{fact_text(copy, *fact)}." for fact in result.relations.get((name, arity), ())]
    for key, predicate in program.predicates.items():  # the others' declarations come from their facts
        if predicate.decl is None and not any(rule.head.key == key for rule in program.rules):
            args = ", ".join(f"A{i}" for i in range(key[1]))
            lines.append(f"Decl {key[0]}({args}){' temporal' if predicate.temporal else ''}.")
    base = "\n".join(lines) + "\n"
    minimal: list[frozenset[str]] = []
    for size in range(len(given) + 1):
        for some in map(frozenset, itertools.combinations(given, size)):
            if not any(one <= some for one in minimal) and _derives(base + _lines(some), goal):
                minimal.append(some)
    return sorted(sorted(one) for one in minimal)


def _copied(premise: Premise, copied: dict[Key, str]) -> Premise:
    if not isinstance(premise, Literal) or not premise.negated or premise.atom.predicate.startswith(":"):
        return premise
    copy = copied.setdefault(premise.atom.key, f"full_{premise.atom.predicate}")
    return replace(premise, atom=Atom(copy, premise.atom.args))


def _derives(text: str, goal: str) -> bool:
    program = Program.load([Source("part", f"{text}asked() :- {goal}.\n")], bounds="off")
    return "asked()" in evaluate(program, now=NOW, limits=LIMITS).facts()
