"""Errors of the stages parse, analysis, stratification and evaluation.

Each error carries all diagnostics that its stage found.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from manglecp.base.diagnostic import Diagnostic, DiagnosticError
from manglecp.base.source import Span

Stage = Literal["parse", "analysis", "stratification", "eval"]


class MangleError(DiagnosticError):
    """The base of all errors about a program; carries diagnostics."""

    stage: ClassVar[Stage]


class ParseError(MangleError):
    """The text is not a Mangle program, or a fact file does not match the declarations."""

    stage = "parse"


class AnalysisError(MangleError):
    """A name, variable, declaration or type is wrong."""

    stage = "analysis"


class StratificationError(MangleError):
    """A predicate depends on its own negation or aggregate."""

    stage = "stratification"


class EvalError(MangleError):
    """A run-time error."""

    stage = "eval"


class LimitError(EvalError):
    """A limit was exceeded: ``consumed`` is more than ``limit``; ``unit`` is a plural noun (``"derived facts"``)."""

    def __init__(self, limit: float, consumed: float, unit: str, span: Span | None = None) -> None:
        self.limit = limit
        self.consumed = consumed
        self.unit = unit
        message = f"limit of {limit} {unit} passed ({consumed} reached)"
        super().__init__([Diagnostic("eval", message, span, fix="raise the limit, or bound the recursion")])


class ValueFault(Exception):
    """A function, built-in predicate or reducer got an invalid value.

    The evaluator converts the fault to an :class:`EvalError` with the place in the program.
    """
