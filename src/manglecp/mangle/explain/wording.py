"""Premises with what is known filled in: variables as canonical values, those without value as ``_``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manglecp.mangle import printer
from manglecp.mangle.matching import Row
from manglecp.mangle.syntax import Apply, Equality, Premise, Term, Variable
from manglecp.mangle.text import value_text
from manglecp.mangle.values import Value


def filled_in(term: Term, row: Row) -> str:
    """A term with values in the place of variables; applications stay as they were written."""
    return printer.term(_substitute(term, row))


def _substitute(term: Term, row: Row) -> Any:
    if isinstance(term, Variable):
        return row.get(term.name, Variable("_"))
    if isinstance(term, Apply):
        return Apply(term.function, tuple(_substitute(arg, row) for arg in term.args))
    return term


def premise_text(premise: Premise, row: Row) -> str:
    """The premise under a row. An atom is written as a fact is, so that a missing fact reads like what is missing."""
    if isinstance(premise, Equality):
        return printer.premise(premise, lambda term: filled_in(term, row))
    if premise.atom.predicate in printer.INFIX and not premise.negated and not premise.timed:
        return printer.premise(premise, lambda term: filled_in(term, row))
    args = ",".join(filled_in(arg, row) for arg in premise.atom.args)
    sign = "!" if premise.negated else ""
    operator, annotation = printer.operator(premise.operator), printer.annotation(premise.annotation)
    return f"{sign}{operator}{premise.atom.predicate}({args}){annotation}"


def bindings_text(bindings: Mapping[str, Value]) -> dict[str, str]:
    """Each value as its canonical text."""
    return {name: value_text(value) for name, value in bindings.items()}
