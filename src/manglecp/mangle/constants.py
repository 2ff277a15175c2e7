"""Load-time checks of constants that every evaluation would refuse: texts of times, durations, regular expressions.

A constant is traced through equalities, and from a fact of the program through one premise. A fact is not traced
through a premise that shares a variable with another premise before the call, because the other premise may exclude
the fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.mangle import printer, syntax
from manglecp.mangle.builtins import FUNCTIONS, PREDICATES
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.matching import evaluate_term, mentions_now, unify
from manglecp.mangle.values import Value

if TYPE_CHECKING:
    from manglecp.mangle.program import GivenFact, Rule

_PARSERS: Final = frozenset({"fn:time:parse_rfc3339", "fn:time:parse_civil", "fn:duration:parse"})
_MATCHES: Final = ":string:matches"
_Row: TypeAlias = dict[str, Value]
# Position of the premise, name of the built-in, arguments, and the syntax node of the call.
_Call: TypeAlias = tuple[int, str, Sequence[syntax.Term], syntax.Apply | syntax.Literal]


def check_constants(rules: Iterable[Rule], facts: Iterable[GivenFact]) -> list[Diagnostic]:
    calls = [(rule, call) for rule in rules for call in _calls(rule)]
    facts_by_key: dict[syntax.Key, list[GivenFact]] = {}
    for fact in facts if calls else ():
        facts_by_key.setdefault(fact.key, []).append(fact)
    return [diagnostic for rule, call in calls for diagnostic in _check_call(rule, call, facts_by_key)]


def _calls(rule: Rule) -> Iterator[_Call]:
    lets = [let.expression for let in rule.clause.lets]
    premise_terms = [premise.terms for premise in rule.premises]
    for position, terms in enumerate([*premise_terms, (*rule.head.args, *lets)]):
        for term in syntax.subterms(*terms):
            if isinstance(term, syntax.Apply) and term.function in _PARSERS:
                yield position, term.function, term.args, term
    for position, premise in enumerate(rule.premises):
        if isinstance(premise, syntax.Literal) and premise.atom.predicate == _MATCHES:
            yield position, _MATCHES, ("", premise.atom.args[1]), premise


def _check_call(rule: Rule, call: _Call, facts: Mapping[syntax.Key, list[GivenFact]]) -> Iterator[Diagnostic]:
    position, name, args, node = call
    if any(map(mentions_now, args)):
        return
    for row, fact in _rows(rule, position, {v.name for v in syntax.term_variables(*args)}, facts):
        try:
            values = tuple(evaluate_term(arg, row, now=0) for arg in args)
        except ValueFault:
            continue  # a function inside an argument failed
        if not all(type(value) is str for value in values):
            continue  # the evaluation reports a value of another kind
        try:
            _ = PREDICATES[name].solve(values) if name in PREDICATES else FUNCTIONS[name].call(values, 0)
        except ValueFault as fault:
            message, clause, span = str(fault), rule.clause, node.span
            if fact is not None:
                message, clause, span = f"{message}; a rule of {rule.head.predicate} reads it", fact.clause, None
            yield Diagnostic("analysis", message, span or clause.span, printer.clause(clause))


def _rows(
    rule: Rule, position: int, wanted: set[str], facts: Mapping[syntax.Key, list[GivenFact]]
) -> Iterator[tuple[_Row, GivenFact | None]]:
    """Yield rows with known values of the ``wanted`` variables, and the fact that supplies them, if any."""
    row: _Row = {}
    earlier = rule.premises[:position]
    for premise in earlier:
        if isinstance(premise, syntax.Equality) and not premise.negated:
            for side, other in premise.directions:
                if isinstance(side, syntax.Variable) and not isinstance(other, syntax.Variable | syntax.Apply):
                    row[side.name] = other
    unknown = wanted - row.keys()
    if not unknown:
        yield row, None
    for premise in earlier if unknown else ():
        names = {v.name for v in syntax.premise_variables(premise) if not v.anonymous}
        if not isinstance(premise, syntax.Literal) or premise.negated or premise.timed or not unknown <= names:
            continue
        names_elsewhere = {v.name for other in earlier if other is not premise for v in syntax.premise_variables(other)}
        if names.isdisjoint(names_elsewhere) and not any(isinstance(arg, syntax.Apply) for arg in premise.atom.args):
            for fact in facts.get(premise.atom.key, ()):
                if fact.args is not None and (bound := unify(list(premise.atom.args), fact.args, row, 0)) is not None:
                    yield bound, fact
