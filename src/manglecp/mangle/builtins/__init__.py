"""Built-in functions, predicates and reducers.

Each built-in is an entry of one of three tables: name, types (as Mangle type text, which the checker and the reference
page read) and body. The body is a pure function of the arguments and the evaluation time. It accepts values of any
kind, and raises only :class:`~manglecp.mangle.errors.ValueFault`, whose text names the built-in, the value and the
expected type.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from manglecp.mangle.builtins.collections_ import COLLECTIONS
from manglecp.mangle.builtins.predicates import PREDICATES
from manglecp.mangle.builtins.reducers import LIST_FOLDS, REDUCERS
from manglecp.mangle.builtins.registry import Function, Predicate, Reducer
from manglecp.mangle.builtins.scalars import NUMBERS, STRINGS
from manglecp.mangle.builtins.times import TIMES

__all__ = ["FUNCTIONS", "PREDICATES", "REDUCERS", "Function", "Predicate", "Reducer"]

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {entry.name: entry for entry in (*NUMBERS, *COLLECTIONS, *STRINGS, *TIMES, *LIST_FOLDS)}
)
