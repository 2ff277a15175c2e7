"""The parser of fact files, which makes no syntax tree for plain facts: 2.3 times as fast as with a tree.

All syntax of facts is accepted, except terms and times that depend on the evaluation time.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from manglecp.base.gc_pause import gc_paused
from manglecp.base.source import Source
from manglecp.mangle.errors import ParseError, ValueFault
from manglecp.mangle.facts import Fact, Interval, is_nonempty_interval
from manglecp.mangle.matching import evaluate_term, head_interval, mentions_now
from manglecp.mangle.parser import Parser
from manglecp.mangle.syntax import Annotation, Clause, Constant, Now, Term, term_variables
from manglecp.mangle.values import INT_MAX, INT_MIN, Duration, Value


class FactText(NamedTuple):
    """The facts of a text in order, and their positions for messages."""

    facts: list[Fact]
    starts: array[int]  # the offset of each fact in the text


def parse_facts(source: Source) -> FactText:
    """Parse the facts of a source. Raises :class:`ParseError` with all problems."""
    with gc_paused():
        parser = _FactParser(source)
        return FactText(parser.statements(), parser.starts)


def read_literal(text: str) -> Value:
    """Parse the text of one value. Raises :class:`ValueFault`."""
    parser = Parser(Source("value", text))
    try:
        parser.lex.advance()
        term = parser.term()
        if parser.lex.kind != "end":
            parser.lex.fail(f"one value is enough, found {parser.current_token()}")
    except ParseError as error:
        raise ValueFault(error.diagnostics[0].message) from None
    return _value(term)


def _value(term: Term) -> Value:
    """Evaluate a term without variables. Raises ValueFault."""
    for variable in term_variables(term):
        raise ValueFault(f"a fact has no variables, found {variable.name}")
    if mentions_now(term):
        raise ValueFault("the evaluation time is known only when a request is evaluated")
    return evaluate_term(term, {}, now=0)  # the term does not use ``now``


class _FactParser(Parser):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.starts = array("q")

    def _full_name(self, predicate: str) -> str:
        return predicate if self.own_package is None else f"{self.own_package.name}.{predicate}"

    def plain_fact(self, predicate: str, args: tuple[Constant, ...], start: int, atom_end: int, end: int) -> Fact:  # noqa: ARG002
        self.starts.append(start)
        return tuple.__new__(Fact, (self._full_name(predicate), args, None))

    def item(self) -> Fact:
        lex = self.lex
        start = lex.start
        if lex.kind == "Decl":
            lex.fail("a file of facts has no declarations", fix="put it into a file of the program")
        clause = super().item()
        assert isinstance(clause, Clause)
        if not clause.is_fact:
            lex.fail("a file of facts has no rules", clause.span, "put it into a file of the program")
        try:
            args = tuple([_value(arg) for arg in clause.head.args])
            interval = None if clause.annotation is None else _interval(clause.annotation)
        except ValueFault as fault:
            lex.fail(str(fault), clause.span)
        self.starts.append(start)
        return Fact(self._full_name(clause.head.predicate), args, interval)


def _interval(annotation: Annotation) -> Interval | None:
    """Return the interval of a fact; None if the fact always holds. Raises ValueFault."""
    for bound in annotation.bounds:
        if isinstance(bound.value, Now):
            raise ValueFault("now is known only when a request is evaluated")
        if isinstance(bound.value, Duration):
            raise ValueFault(f"{bound.text} is a duration, an annotation needs instants")
    start, end = head_interval(annotation, {}, now=0)  # the bounds do not use ``now``
    if (start, end) == (INT_MIN, INT_MAX):
        return None
    if not is_nonempty_interval(start, end):
        raise ValueFault("the interval ends before it starts")
    return start, end
