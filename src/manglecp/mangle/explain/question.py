"""A question: the fact that a text names."""

from __future__ import annotations

from typing import NoReturn

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.base.suggestions import closest_match
from manglecp.mangle.clauses import ClauseCheck
from manglecp.mangle.errors import AnalysisError, ParseError, ValueFault
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import holds_somewhere
from manglecp.mangle.matching import head_interval
from manglecp.mangle.parser import parse_premise
from manglecp.mangle.program import Program
from manglecp.mangle.syntax import Clause, Literal
from manglecp.mangle.terms import evaluate_term


def read_fact(text: str, program: Program, now: int) -> Fact:
    """The fact that ``text`` names, such as ``p(1,/a)`` or ``on(/lamp)@[2026-01-01, _]``.

    It is read as a premise and checked as a fact of the program would be, so that a question is refused for the same
    reasons, and in the same words, as a clause.
    """
    source = Source("fact", text)
    place = Span(source, 0, len(text))

    def refuse(message: str, span: Span | None = None, fix: str | None = None) -> NoReturn:
        raise AnalysisError([Diagnostic("analysis", message, span or place, fix=fix)])

    try:
        literal = parse_premise(source)
    except ParseError as error:
        raise ParseError(error.diagnostics[:1]) from None
    if not isinstance(literal, Literal):
        refuse("this is a test, not a fact", fix="name one fact, such as p(1,/a)")
    if literal.negated:
        refuse("a fact is not negated", fix="ask about the fact itself")
    if literal.operator is not None:
        refuse("a fact has no operator", literal.operator.span, "say when it holds with @[start, end]")
    atom = literal.atom
    if atom.key not in program.predicates:
        if atom.predicate.startswith(":"):
            refuse("this is a test, not a fact", fix="name one fact, such as p(1,/a)")
        arities = sorted(arity for name, arity in program.predicates if name == atom.predicate)
        if arities:
            takes = " or ".join(map(str, arities))
            refuse(f"{atom.predicate} takes {takes} arguments, not {len(atom.args)}", atom.span)
        similar = closest_match(atom.predicate, {name for name, _ in program.predicates})
        refuse(f"unknown predicate {atom.predicate}", atom.span, f"did you mean {similar}?" if similar else None)
    check = ClauseCheck(Clause(atom, literal.annotation, (), (), literal.span), program.predicates)
    check.run()
    if check.diagnostics:
        raise AnalysisError([Diagnostic("analysis", d.message, d.span, None, d.fix) for d in check.diagnostics])
    try:
        args = tuple(evaluate_term(arg, {}, now) for arg in atom.args)
        if not program.predicates[atom.key].temporal:
            return Fact(atom.predicate, args)
        assert literal.annotation is not None  # checked above
        interval = head_interval(literal.annotation, {}, now)
    except ValueFault as fault:
        refuse(str(fault))
    if not holds_somewhere(*interval):
        refuse("the interval ends before it starts", literal.annotation.span)
    return Fact(atom.predicate, args, interval)
