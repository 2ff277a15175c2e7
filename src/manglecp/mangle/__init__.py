"""The Mangle language: Datalog with types, aggregation and time. Knows nothing of MangleCP.

Data meets the modules in this order:

    source, lexer, term_parser, parser     text to a syntax tree                       stage parse
    fact_parser                            text that holds facts only, without a tree
    packages, declarations                 full names; what is known of a predicate    stage analysis
    clauses, safety                        one clause at a time; the order of premises
    types, checker                         what the bounds forbid
    stratify                               what is evaluated together, in which order  stage stratification
    program                                all of the above: Program.load
    engine                                 the least model, compiled and incremental   stage eval
    naive (matching, terms, constraints)   the same by repeated application: its oracle
    model                                  the answer
    explain                                why it holds, why not, and what every rule contributed

`values` and `text` are the constants and their canonical spelling, `syntax` the tree, `printer` and `layout` its way
back to text, `builtins` the functions, predicates and reducers, `errors` everything that can be reported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from manglecp.mangle.errors import (
        AnalysisError,
        Diagnostic,
        EvalError,
        LimitError,
        MangleError,
        ParseError,
        StratificationError,
    )
    from manglecp.mangle.externals import External
    from manglecp.mangle.facts import Fact
    from manglecp.mangle.limits import Limits
    from manglecp.mangle.model import Result, Statistics
    from manglecp.mangle.parser import decode, parse
    from manglecp.mangle.program import Program
    from manglecp.mangle.source import Source, Span, Trust

__all__ = [
    "AnalysisError",
    "Diagnostic",
    "EvalError",
    "External",
    "Fact",
    "LimitError",
    "Limits",
    "MangleError",
    "ParseError",
    "Program",
    "Result",
    "Source",
    "Span",
    "Statistics",
    "StratificationError",
    "Trust",
    "decode",
    "parse",
]

_HOMES: Final = {
    "errors": (
        "AnalysisError",
        "Diagnostic",
        "EvalError",
        "LimitError",
        "MangleError",
        "ParseError",
        "StratificationError",
    ),
    "externals": ("External",),
    "facts": ("Fact",),
    "limits": ("Limits",),
    "model": ("Result", "Statistics"),
    "parser": ("decode", "parse"),
    "program": ("Program",),
    "source": ("Source", "Span", "Trust"),
}
"""Where each name lives. Whoever wants a place in a text does not pay for the language."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
