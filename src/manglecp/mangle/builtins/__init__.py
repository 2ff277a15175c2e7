"""What the language can do without rules: functions, built-in predicates and reducers.

Everything here is an entry of one of three tables. An entry says its name, its types (as Mangle type text,
which the checker and the reference page read) and how to compute it. To add one, write its body, and its line
in the table at the end of the module where it belongs:

    numbers       fn:plus, fn:float:div, fn:sqrt …
    collections_  lists, pairs, maps and structs
    strings       strings, names and conversions
    times         instants, durations and intervals, over the plain arithmetic of ``calendar``
    reducers      what ``do fn:group_by`` folds rows with, and the same folds over a list
    predicates    comparisons, tests and matches

An entry is a pure function of its arguments and of the evaluation time. It meets values of any kind, and the
only exception it lets out is :class:`~manglecp.mangle.errors.ValueFault`, whose text names the entry, the
value and what was expected (``expect``).
"""

from __future__ import annotations

from .functions import FUNCTIONS
from .predicates import PREDICATES
from .reducers import REDUCERS
from .registry import Function, Predicate, Reducer

__all__ = ["FUNCTIONS", "PREDICATES", "REDUCERS", "Function", "Predicate", "Reducer"]
