"""What depends on what, and where more facts can mean fewer conclusions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from manglecp.mangle.packages import Key
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.syntax import Literal, Variable


class Dependence:
    """The dependencies between the predicates of a program, as closures."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._reads: dict[Key, set[Key]] = {}
        self._upsets: dict[Key, set[Key]] = {}
        for rule in program.rules:
            for premise in rule.premises:
                if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
                    self._edge(rule.head.key, premise.atom.key, _upsets(rule, premise))
        for predicate in program.predicates.values():
            if predicate.merge is not None:
                self._edge(predicate.key, predicate.merge.predicate, upsets=True)
                self._edge(predicate.key, predicate.key, upsets=True)

    def _edge(self, head: Key, body: Key, upsets: bool) -> None:
        self._reads.setdefault(head, set()).add(body)
        if upsets:
            self._upsets.setdefault(head, set()).add(body)

    def needs(self, keys: Iterable[Key]) -> set[Key]:
        """The predicates and all they are derived from."""
        return _closure(keys, self._reads)

    @cached_property
    def _readers(self) -> dict[Key, set[Key]]:
        readers: dict[Key, set[Key]] = {}
        for head, bodies in self._reads.items():
            for body in bodies:
                readers.setdefault(body, set()).add(head)
        return readers

    def affects(self, keys: Iterable[Key]) -> set[Key]:
        """The predicates and all that is derived from them."""
        return _closure(keys, self._readers)

    def upsetters(self, key: Key) -> set[Key]:
        """The predicates whose new facts could take facts of ``key`` away."""
        found: set[Key] = set()
        for head in self.needs([key]):
            found |= self.needs(self._upsets.get(head, ()))
        return found


def _upsets(rule: Rule, premise: Literal) -> bool:
    """Can more facts for this premise make the rule hold less often?

    By negation, by a change of what is aggregated, and by intervals that grow where a variable takes their ends.
    """
    return premise.negated or rule.clause.aggregates or any(_ends(premise))


def _ends(premise: Literal) -> Iterator[Variable]:
    for bound in () if premise.annotation is None else premise.annotation.bounds:
        if isinstance(bound.value, Variable) and not bound.value.anonymous:
            yield bound.value


def _closure(start: Iterable[Key], edges: dict[Key, set[Key]]) -> set[Key]:
    found = set(start)
    stack = list(found)
    while stack:
        for key in edges.get(stack.pop(), ()):
            if key not in found:
                found.add(key)
                stack.append(key)
    return found
