"""The order in which premises run, and the proof that one exists (D2-D5).

Premises run in textual order as soon as what they need is bound; one that has to wait runs at the first chance. That
order is part of the meaning of a rule: it decides whether an interval variable is known or free at a temporal premise.
A rule for which no order works is unsafe, and the message says which variable is missing where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Span
from manglecp.mangle import printer
from manglecp.mangle.builtins import PREDICATES
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.packages import Key
from manglecp.mangle.syntax import (
    Apply,
    Atom,
    Clause,
    Equality,
    Literal,
    Premise,
    Term,
    Variable,
    bound_variables,
    premise_variables,
    term_variables,
)


@dataclass(frozen=True, slots=True)
class Ordering:
    """Premises as they run, and the variables they bind."""

    premises: tuple[Premise, ...]
    bound: frozenset[str]
    diagnostics: tuple[Diagnostic, ...] = ()


def order(clause: Clause, predicates: Mapping[Key, Predicate]) -> Ordering:
    """Put the premises of a rule into running order."""
    bound = set(_given_by_caller(clause.head, predicates))
    premises = clause.premises
    names = [{v.name for v in premise_variables(premise) if not v.anonymous} for premise in premises]
    mentions: dict[str, list[int]] = {}
    for position, mentioned in enumerate(names):
        for name in mentioned:
            mentions.setdefault(name, []).append(position)
    waiting = dict.fromkeys(range(len(premises)))
    ready: list[int] = []  # a heap: of those that can run, the first as written runs

    def look_at(positions: Iterable[int]) -> None:
        for position in positions:
            if position in waiting and not _missing(premises[position], bound, predicates):
                del waiting[position]
                heappush(ready, position)

    look_at(list(waiting))
    running: list[Premise] = []
    while ready:
        position = heappop(ready)
        running.append(_reflected(premises[position], bound, predicates))
        new = names[position] - bound
        bound |= new
        look_at(p for name in new for p in mentions[name])
    complaints = [_unsafe(premises[position], clause, bound, predicates) for position in waiting]
    return Ordering(tuple(running), frozenset(bound), tuple(complaints))


def _given_by_caller(head: Atom, predicates: Mapping[Key, Predicate]) -> Iterator[str]:
    """Head variables at input positions have a value before the body runs."""
    predicate = predicates.get(head.key)
    for position in () if predicate is None else predicate.inputs():
        yield from (v.name for v in term_variables(head.args[position]) if not v.anonymous)


def _unbound(terms: Iterable[Term], bound: set[str]) -> list[Variable]:
    return [v for v in term_variables(*terms) if v.anonymous or v.name not in bound]


def _missing(premise: Premise, bound: set[str], predicates: Mapping[Key, Predicate]) -> list[Variable]:
    """The variables a premise still waits for."""
    if isinstance(premise, Equality):
        return _missing_in_equality(premise, bound)
    waits = [] if premise.operator is None else _unbound(bound_variables(premise.operator.bounds), bound)
    for position, arg in enumerate(premise.atom.args):
        if not _can_bind(premise, position, predicates) or isinstance(arg, Apply):
            waits += _unbound((arg,), bound)
        elif premise.negated:
            waits += [v for v in _unbound((arg,), bound) if not v.anonymous]
    if premise.negated and premise.annotation is not None:
        free = _unbound(bound_variables(premise.annotation.bounds), bound)
        waits += [v for v in free if not v.anonymous]
    return waits


def _missing_in_equality(premise: Equality, bound: set[str]) -> list[Variable]:
    left, right = _unbound((premise.left,), bound), _unbound((premise.right,), bound)
    free_left, free_right = isinstance(premise.left, Variable), isinstance(premise.right, Variable)
    if premise.negated or not (free_left or free_right):
        return left + right
    if free_left and free_right:
        return left + right if left and right else []
    return right if free_left else left  # the variable takes the value of the other side


def _can_bind(premise: Literal, position: int, predicates: Mapping[Key, Predicate]) -> bool:
    """May a free variable stand at this position?"""
    if premise.atom.predicate.startswith(":"):
        builtin = PREDICATES.get(premise.atom.predicate)
        if builtin is None or len(builtin.modes) != len(premise.atom.args):
            return True  # refused for its name already
        return builtin.modes[position] == "-"
    predicate = predicates.get(premise.atom.key)
    if predicate is None or predicate.modes is None:
        return True
    asked_for_facts = premise.negated and not (predicate.deferred or predicate.external)
    return asked_for_facts or predicate.modes[position] != "+"


def _reflected(premise: Premise, bound: set[str], predicates: Mapping[Key, Predicate]) -> Premise:
    """A ``reflects(/p)`` predicate tests a bound value by its prefix."""
    if not isinstance(premise, Literal) or premise.negated or premise.timed:
        return premise
    predicate = predicates.get(premise.atom.key)
    if predicate is None or predicate.reflects is None or predicate.arity != 1:
        return premise
    if not isinstance(premise.atom.args[0], Variable) or _unbound(premise.atom.args, bound):
        return premise  # the stored facts answer
    test = Atom(":match_prefix", (premise.atom.args[0], predicate.reflects), premise.atom.span)
    return replace(premise, atom=test)


def _unsafe(premise: Premise, clause: Clause, bound: set[str], predicates: Mapping[Key, Predicate]) -> Diagnostic:
    variables = _missing(premise, bound, predicates)
    text = printer.premise(premise)
    first = variables[0]
    if first.anonymous:
        message = f"{text} needs a value where _ stands"
        fix = "name the variable and bind it in another premise"
    else:
        names = ", ".join(dict.fromkeys(v.name for v in variables if not v.anonymous))
        plural = "are" if "," in names else "is"
        message = f"{names} {plural} bound by no premise that could run before {text}"
        if isinstance(premise, Literal) and premise.negated:
            message = f"{names} {plural} bound nowhere outside the negation {text}"
        fix = _where_to_bind(first.name, premise, clause)
    return Diagnostic("analysis", message, first.span or premise.span, printer.clause(clause), fix)


def _where_to_bind(name: str, premise: Premise, clause: Clause) -> str:
    for other in clause.premises:
        if other is not premise and any(v.name == name for v in premise_variables(other)):
            return f"{name} also occurs in {printer.premise(other)}, which waits too; bind {name} in a positive premise"
    if isinstance(premise, Literal) and premise.negated:
        return f"write _ for 'no such fact at all', or bind {name} in a positive premise"
    return f"add a positive premise that binds {name}"


def unbound_in_head(clause: Clause, known: frozenset[str]) -> Iterator[tuple[Variable, Span | None]]:
    """Head variables that nothing binds, ``_`` among the arguments included."""
    for variable in term_variables(*clause.head.args):
        if variable.anonymous or variable.name not in known:
            yield variable, variable.span or clause.head.span
    if clause.annotation is not None:
        for variable in bound_variables(clause.annotation.bounds):
            if not variable.anonymous and variable.name not in known:
                yield variable, variable.span or clause.annotation.span
