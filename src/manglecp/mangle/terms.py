"""The value of a term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from manglecp.mangle.builtins import FUNCTIONS
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.syntax import Apply, Term, Variable
from manglecp.mangle.values import Value

Row: TypeAlias = Mapping[str, Value]


def evaluate_term(term: Term, row: Row, now: int) -> Value:
    """Innermost first, left to right. ``now`` is the evaluation time in nanoseconds."""
    if isinstance(term, Variable):
        value = row.get(term.name)
        if value is None:
            raise ValueFault(f"variable {term.name} has no value")
        return value
    if isinstance(term, Apply):
        args = tuple([evaluate_term(arg, row, now) for arg in term.args])
        function = FUNCTIONS.get(term.function)
        if function is None:
            raise ValueFault(f"unknown function {term.function}")
        if not function.accepts(len(args)):
            raise ValueFault(f"{term.function} does not take {len(args)} arguments")
        return function.call(args, now)
    return term


def mentions_now(term: Term) -> bool:
    """Does the value depend on the evaluation time?"""
    return isinstance(term, Apply) and (term.function == "fn:time:now" or any(map(mentions_now, term.args)))
