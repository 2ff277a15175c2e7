"""The result of an evaluation: the facts of the least model, queries, expiry and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.mangle.clauses import ClauseCheck
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.errors import AnalysisError, EvalError, ValueFault
from manglecp.mangle.facts import Fact
from manglecp.mangle.matching import Matcher
from manglecp.mangle.model import Facts, Relation
from manglecp.mangle.parser import parse_premise
from manglecp.mangle.printer import fact_text
from manglecp.mangle.syntax import Annotation, Atom, Clause, Key, Literal, TimeBound, Variable
from manglecp.mangle.values import Value, order_key

if TYPE_CHECKING:
    from manglecp.mangle.engine.evaluation import Evaluation
    from manglecp.mangle.engine.model import EvaluatedModel
    from manglecp.mangle.engine.views import FactTuple
    from manglecp.mangle.explain import Explainer
    from manglecp.mangle.explain.expiry import Expiry


class Result:
    """The least model of an evaluation. Explanations are computed on demand."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.program = evaluation.compiled.program
        self.now = evaluation.now
        self.statistics = evaluation.statistics
        self._evaluation = evaluation

    @cached_property
    def model(self) -> EvaluatedModel:
        from manglecp.mangle.engine.model import EvaluatedModel  # late: most results are never explained

        return EvaluatedModel(self._evaluation)

    @property
    def relations(self) -> Mapping[Key, Facts]:
        return self.model.relations

    def facts(self, predicate: str | None = None) -> list[str]:
        """Return all facts, given and derived, or only those of one ``predicate``, in canonical text, sorted."""
        return sorted(
            fact_text(name, args, interval)
            for (name, _), relation in self.relations.items()
            if predicate is None or name == predicate
            for args, interval in relation
        )

    def query(self, text: str) -> list[str]:
        """Return the facts that match an atom such as ``p(X, _)``, in canonical text, sorted."""
        literal = read_query(text, self.program.predicates)
        matcher = Matcher(literal, {}, self.now)
        try:
            query_key = matcher.key({})
            matching = [
                (args, interval)
                for args, interval in self.relations.get(literal.atom.key, Relation())
                if matcher.fact_key(args) == query_key and matcher.match({}, args, interval) is not None
            ]
        except ValueFault as fault:
            raise EvalError([Diagnostic("eval", str(fault), literal.span)]) from None
        return sorted(fact_text(literal.atom.predicate, args, interval) for args, interval in matching)

    def rows(self, key: Key) -> list[FactTuple]:
        """Return all facts of a predicate, in the order of their values; a temporal fact ends with its two instants."""
        number = self._evaluation.compiled.ids.get(key)
        return [] if number is None else _in_order(list(self._evaluation.views[number]))

    def find(self, key: Key, value: Value, column: int = 0) -> list[FactTuple]:
        """Return the facts of a predicate with this value in this column, in the form of :meth:`rows`."""
        evaluation = self._evaluation
        number = evaluation.compiled.ids.get(key)
        return [] if number is None else _in_order(evaluation.views[number].matching((column,), value))

    def select(self, first: Value, about: Iterable[Key], whole: Iterable[Key] = ()) -> dict[str, list[FactTuple]]:
        """Return facts by predicate name, in the form of :meth:`rows`, without predicates that have no facts.

        The facts of the predicates ``about`` are those with the first argument ``first``; those of the predicates
        ``whole`` are all facts. Raises KeyError for a predicate that the program does not have.
        """
        ids, views = self._evaluation.compiled.ids, self._evaluation.views
        selection: dict[str, list[FactTuple]] = {}
        for key in about:
            view = views[ids[key]]
            if (view.facts or view.base.facts) and (matches := view.matching(_FIRST, first)):
                selection[key[0]] = matches if len(matches) == 1 else _in_order(matches)
        for key in whole:
            view = views[ids[key]]
            if view.facts or view.base.facts:
                selection[key[0]] = _in_order(list(view))
        return selection

    def changed(self, keys: Iterable[Key]) -> tuple[Key, ...]:
        """Return the predicates of ``keys`` whose facts differ from the base."""
        evaluation = self._evaluation
        ids, layers, base_layers = evaluation.compiled.ids, evaluation.layers, evaluation.base.layers
        return tuple([key for key in keys if layers[ids[key]] != base_layers[ids[key]]])

    def rules_fired(self) -> int:
        """Return the number of rules that derive at least one fact."""
        count, uncounted = self.model.rules_fired()
        return count + self.explainer.count_fired(uncounted) if uncounted else count

    @cached_property
    def _expiry(self) -> Expiry:
        from manglecp.mangle.explain.expiry import Expiry  # late: that module imports this one

        return Expiry(self.model)

    def expiry(self, fact: str | Fact) -> int | None:
        """Return the instant (ns) until which a fact holds if no facts are added; None if time does not end it.

        A fact holds until its last derivation ends. A derivation ends when its first premise about now ends.
        """
        return self._expiry.of(fact)

    def expiring(self, key: Key) -> frozenset[Value] | None:
        """Return the first arguments of facts of a predicate that time can falsify; None if these can be any values.

        The result depends on the rules only, not on the facts.
        """
        return self._expiry.expiry_rules.expiring(key)

    @cached_property
    def explainer(self) -> Explainer:
        from manglecp.mangle.explain import Explainer  # late: most results are never explained

        return Explainer(self.model)


_FIRST: Final = (0,)


def _in_order(rows: list[FactTuple]) -> list[FactTuple]:
    return sorted(rows, key=_row_order) if len(rows) > 1 else rows


def _row_order(row: FactTuple) -> list[object]:
    return [order_key(value) for value in row]


def read_query(text: str, predicates: Mapping[Key, Predicate]) -> Literal:
    """Parse and check the atom of a query. A temporal atom without an annotation gets one that matches any time."""
    source = Source("query", text)
    literal = parse_premise(source)
    if not isinstance(literal, Literal) or literal.negated or literal.atom.predicate.startswith(":"):
        span = Span(source, 0, len(text))
        raise AnalysisError([Diagnostic("analysis", "a query is one atom of a predicate", span, fix="write p(X, _)")])
    if not literal.timed and predicates.get(literal.atom.key, Predicate("", 0)).temporal:
        any_time = TimeBound(Variable("_"), "_")
        literal = replace(literal, annotation=Annotation((any_time, any_time)))
    if predicates.get(literal.atom.key, Predicate("", 0)).deferred:
        message = f"{literal.atom.predicate} is deferred: its facts are not stored"
        raise AnalysisError([Diagnostic("analysis", message, literal.span, fix="query a rule that uses it")])
    head = Atom("?", ())  # no program can have this predicate
    check = ClauseCheck(Clause(head, None, (literal,)), {**predicates, head.key: Predicate(*head.key)})
    check.run()
    if check.diagnostics:
        raise AnalysisError([replace(diagnostic, clause=None) for diagnostic in check.diagnostics])
    return literal
