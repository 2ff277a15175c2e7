"""Facts as people write them, in Mangle, made into facts as they travel.

``now`` in a fact is the evaluation time, which whoever reads them decides. Whether anybody takes the facts is not
looked at here: that is the business of whoever receives the request.
"""

from __future__ import annotations

from typing import Any, Final

from manglecp.mangle import (
    INT_MAX,
    INT_MIN,
    Diagnostic,
    ParseError,
    Source,
    Span,
    ValueFault,
    evaluate_term,
    head_interval,
    instant_text,
    parse,
)
from manglecp.mangle.syntax import Clause, Term, Variable, term_variables
from manglecp.wire.values import to_json

__all__ = ["one_fact", "patterns", "stated"]

_ANYTHING: Final = Variable("_")


def stated(source: Source, now: int, *, wildcards: bool = False) -> list[dict[str, Any]]:
    """The facts of a text; a :class:`manglecp.mangle.errors.ParseError` says what is none.

    ``wildcards`` takes ``_`` for an argument that may be anything, which is null, as in what a delta retracts.
    """
    unit = parse(source)
    for declaration in unit.decls:
        raise _wrong("facts have no declarations", declaration.span)
    return [_fact(clause, now, wildcards) for clause in unit.clauses]


def one_fact(name: str, text: str, now: int) -> list[dict[str, Any]]:
    """What is written without the point at its end. ``name`` is what errors call the text."""
    return stated(_source(name, text), now)


def patterns(name: str, text: str, now: int) -> list[dict[str, Any]]:
    """The same for what facts are compared with."""
    return stated(_source(name, text), now, wildcards=True)


def _source(name: str, text: str) -> Source:
    return Source(name, text.strip().removesuffix(".") + " .")


def _fact(clause: Clause, now: int, wildcards: bool) -> dict[str, Any]:
    if not clause.is_fact:
        raise _wrong("this is a rule, and clients state facts", clause.span)
    try:
        args = [None if wildcards and arg == _ANYTHING else _value(arg, now) for arg in clause.head.args]
        fact: dict[str, Any] = {"pred": clause.head.predicate, "args": args}
        if clause.annotation is not None:
            fact["t"] = _time(*head_interval(clause.annotation, {}, now))
    except ValueFault as fault:
        raise _wrong(str(fault), clause.span) from None
    return fact


def _value(arg: Term, now: int) -> Any:
    for variable in term_variables(arg):
        raise ValueFault(f"a fact has no variables, found {variable.name}")
    return to_json(evaluate_term(arg, {}, now))


def _time(start: int, end: int) -> dict[str, str]:
    if start == end:
        return {"at": instant_text(start)}
    return {
        "start": "_" if start == INT_MIN else instant_text(start),
        "end": "_" if end == INT_MAX else instant_text(end),
    }


def _wrong(message: str, span: Span | None) -> ParseError:
    return ParseError([Diagnostic("parse", message, span)])
