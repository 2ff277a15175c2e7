"""What the language can do without rules: functions, built-in predicates and reducers.

Everything here is an entry of one of three tables. An entry says its name, its types (as Mangle type text,
which the checker and the reference page read) and how to compute it. To add one, write its body, and its line
in the table at the end of the module where it belongs:

    scalars       fn:plus, fn:float:div, fn:sqrt …; strings, names and conversions
    collections_  lists, pairs, maps and structs
    times         instants, durations and intervals, over the plain arithmetic of ``calendar``
    reducers      what ``do fn:group_by`` folds rows with, and the same folds over a list
    predicates    comparisons, tests and matches

An entry is a pure function of its arguments and of the evaluation time. It meets values of any kind, and the
only exception it lets out is :class:`~manglecp.mangle.errors.ValueFault`, whose text names the entry, the
value and what was expected (``registry``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from manglecp.mangle.builtins.collections_ import COLLECTIONS
from manglecp.mangle.builtins.predicates import PREDICATES
from manglecp.mangle.builtins.reducers import LIST_FOLDS, REDUCERS
from manglecp.mangle.builtins.registry import Function, Predicate, Reducer, by_name
from manglecp.mangle.builtins.scalars import NUMBERS, STRINGS
from manglecp.mangle.builtins.times import TIMES

__all__ = ["FUNCTIONS", "PREDICATES", "REDUCERS", "Function", "Predicate", "Reducer"]

FUNCTIONS: Final[Mapping[str, Function]] = by_name(NUMBERS, COLLECTIONS, STRINGS, TIMES, LIST_FOLDS)
