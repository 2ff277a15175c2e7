"""What must hold of the finished model: functional dependencies and inclusions (D27)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.mangle import printer
from manglecp.mangle.declarations import FunctionalDependency, Predicate
from manglecp.mangle.intervals import Interval
from manglecp.mangle.matching import Args, Row, Timed
from manglecp.mangle.syntax import Atom, Literal, Term, Variable
from manglecp.mangle.text import fact_text, value_text

MOST_VIOLATIONS: Final = 50


def violations(
    predicate: Predicate, facts: Iterable[Timed], holds: Callable[[Atom, Row], bool]
) -> Iterable[Diagnostic]:
    """What is wrong with the facts of one predicate. ``holds`` answers whether an atom has a match."""
    if not predicate.fundeps and not predicate.inclusion:
        return ()
    ordered = sorted(facts, key=lambda fact: fact_text(predicate.name, *fact))
    return islice(_violations(predicate, ordered, holds), MOST_VIOLATIONS)


def _violations(predicate: Predicate, facts: list[Timed], holds: Callable[[Atom, Row], bool]) -> Iterator[Diagnostic]:
    for dependency in predicate.fundeps:
        yield from _contradictions(predicate, dependency, facts)
    for atom in predicate.inclusion:
        yield from _lone_facts(predicate, atom, facts, holds)


def _contradictions(predicate: Predicate, dependency: FunctionalDependency, facts: list[Timed]) -> Iterator[Diagnostic]:
    """Facts with one key and two values; temporal facts only where they hold at the same instant."""
    by_key: dict[Args, list[Timed]] = {}
    for args, interval in facts:
        others = by_key.setdefault(tuple(args[c] for c in dependency.source), [])
        for other, at in others:
            if any(args[c] != other[c] for c in dependency.target) and _overlap(interval, at):
                both = f"{fact_text(predicate.name, other, at)} and {fact_text(predicate.name, args, interval)}"
                yield _violation(predicate, f"functional dependency violated by {both}")
                break
        others.append((args, interval))


def _overlap(left: Interval | None, right: Interval | None) -> bool:
    return left is None or right is None or (left[0] <= right[1] and right[0] <= left[1])


def _lone_facts(
    predicate: Predicate, atom: Atom, facts: list[Timed], holds: Callable[[Atom, Row], bool]
) -> Iterator[Diagnostic]:
    """Facts whose inclusion has no match."""
    assert predicate.decl is not None  # inclusions come from declarations
    names = [arg.name if isinstance(arg, Variable) else "_" for arg in predicate.decl.atom.args]
    for args, interval in facts:
        row = {name: value for name, value in zip(names, args, strict=True) if name != "_"}
        if not holds(atom, row):
            fact = fact_text(predicate.name, args, interval)
            yield _violation(predicate, f"inclusion violated: {fact} needs {_filled_in(atom, row)}")


def _filled_in(atom: Atom, row: Row) -> str:
    def write(term: Term) -> str:
        if isinstance(term, Variable):
            return value_text(row[term.name]) if term.name in row else "_"
        return printer.term(term)

    return printer.premise(Literal(atom), write)


def _violation(predicate: Predicate, message: str) -> Diagnostic:
    return Diagnostic("eval", message, None if predicate.decl is None else predicate.decl.span)
