"""Whether the program would still be accepted with some facts added.

A declared predicate takes what its declaration says, whatever facts there are. The types of an undeclared one are those
of its facts, so a fact of a new kind can make a rule ill-typed that was not.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from manglecp.mangle.acceptance import Acceptance
from manglecp.mangle.checker import check_types
from manglecp.mangle.facts import Fact
from manglecp.mangle.packages import Key
from manglecp.mangle.program import GivenFact, Program
from manglecp.mangle.syntax import Atom, Clause
from manglecp.mangle.types import Type


def as_given(fact: Fact) -> GivenFact:
    """The fact as the program would have it."""
    atom = Atom(fact.key[0], fact.args)  # type: ignore[arg-type]  # values that have no literal are only printed
    return GivenFact(Clause(atom), fact.args)


class Typing:
    """The types of one program."""

    def __init__(self, program: Program, acceptance: Acceptance) -> None:
        self.program = program
        self._vocabulary = acceptance.vocabulary
        self._known: dict[frozenset[tuple[Key, tuple[Type, ...]]], bool] = {}

    def accepts(self, added: Iterable[Fact]) -> bool:
        """Is the program with these facts as well-typed as it was?"""
        undeclared = [fact for fact in added if self.program.predicates[fact.key].decl is None]
        kinds = frozenset((fact.key, self._kinds(fact)) for fact in undeclared) - self._observed
        if not kinds or not self._checked:
            return True
        if kinds not in self._known:
            facts = [*self.program.facts, *map(as_given, undeclared)]
            self._known[kinds] = not check_types(self.program.predicates, self.program.rules, facts)
        return self._known[kinds]

    def _kinds(self, fact: Fact) -> tuple[Type, ...]:
        return tuple(self._vocabulary.value(arg, exact=False) for arg in fact.args)

    @cached_property
    def _observed(self) -> frozenset[tuple[Key, tuple[Type, ...]]]:
        """What the checker has seen of undeclared predicates. Times are not known to it."""
        undeclared = [fact for fact in self.program.facts if self.program.predicates[fact.key].decl is None]
        known = [Fact(fact.key[0], fact.args) for fact in undeclared if fact.args is not None]
        return frozenset((fact.key, self._kinds(fact)) for fact in known)

    @cached_property
    def _checked(self) -> bool:
        """Was the program loaded with its types checked? Otherwise they mean nothing."""
        return not check_types(self.program.predicates, self.program.rules, self.program.facts)
