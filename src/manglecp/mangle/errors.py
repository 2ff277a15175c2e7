"""What can be wrong with a program, as diagnostics (D28).

    MangleError                 one or more diagnostics of one stage
    ├── ParseError              the text is not Mangle
    ├── AnalysisError           names, declarations, safety, types
    ├── StratificationError     negation or aggregation through recursion
    └── EvalError               a run-time error
        └── LimitError          more facts, intervals or time than allowed

A stage reports everything it finds before it stops; the code of its diagnostics is its name.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from manglecp.base.diagnostic import Diagnostic, DiagnosticError
from manglecp.base.source import Span

Stage = Literal["parse", "analysis", "stratification", "eval"]


class MangleError(DiagnosticError):
    """A program was refused, or its evaluation stopped."""

    stage: ClassVar[Stage]


class ParseError(MangleError):
    """The text is no Mangle program, or a fact file cannot be read as the declarations say."""

    stage = "parse"


class AnalysisError(MangleError):
    """It is one, but a name, a variable, a declaration or a type is wrong."""

    stage = "analysis"


class StratificationError(MangleError):
    """A predicate depends on its own negation or aggregate."""

    stage = "stratification"


class EvalError(MangleError):
    """The program was accepted, and failed while running."""

    stage = "eval"


class LimitError(EvalError):
    """A limit was passed; nothing of the evaluation remains."""

    def __init__(self, limit: float, consumed: float, unit: str, span: Span | None = None) -> None:
        self.limit = limit
        self.consumed = consumed
        self.unit = unit
        message = f"limit of {limit} {unit} passed ({consumed} reached)"
        super().__init__([Diagnostic("eval", message, span, fix="raise the limit, or bound the recursion")])


class ValueFault(Exception):
    """A function, built-in predicate or reducer met a value it cannot take.

    It says what is wrong; whoever evaluates the clause adds where, and raises :class:`EvalError`.
    """
