"""How the values of merged predicates came about.

A merged relation forgets: a value gives way to a better one, and what was derived from it stays. So a fact may have no
instance left in the finished model. Then the component is evaluated once more and everything that ever stood in it is
logged when it first appears. What a log entry rests on was logged before it, so proofs read off the log are
well-founded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from manglecp.mangle.declarations import Merge
from manglecp.mangle.explain.instances import Instance, Instances
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Fact
from manglecp.mangle.matching import Args, Matcher, Row, Timed
from manglecp.mangle.model import Index, Relation, program_facts
from manglecp.mangle.naive import NaiveEvaluation, Solving
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Literal, Premise


@dataclass(frozen=True, slots=True)
class Merged:
    """A value that was merged from these facts."""

    facts: tuple[Fact, ...]


class Replay(Finished):
    """One component evaluated again, over the finished model below it."""

    def __init__(self, below: Finished, component: Component) -> None:
        super().__init__(below.model)
        self.answers = below.answers.copy()
        self.inside = frozenset(key for key in component.predicates if not self.predicate(key).deferred)
        self.log: dict[Fact, Instance | Merged] = {}
        self._given: set[Fact] = set()
        self._instances = Instances(self)
        self._shapes = {id(s.rule): s for shapes in self._instances.shapes.values() for s in shapes}
        self._merging: Key | None = None
        for fact in program_facts(self.program, self.now):
            self._give_again(fact)
        for key in self.inside:
            for args, interval in self.model.derived(key):
                if self.model.origin(Fact(key[0], args, interval)) is not None:
                    self._give_again(Fact(key[0], args, interval))
        self.component(component)

    def _give_again(self, fact: Fact) -> None:
        if fact.key in self.inside:
            self._given.add(fact)
            self.relation(fact.key).add(*fact.timed)

    def relation(self, key: Key) -> Relation:
        return self.relations.setdefault(key, Relation()) if key in self.inside else super().relation(key)

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index:
        if key not in self.inside:
            return super().index(key, positions, raw=raw)
        index: dict[Args, list[Timed]] = {}
        for fact in self.relation(key):
            index.setdefault(tuple(fact[0][i] for i in positions), []).append(fact)
        return index

    def look_up(self, premise: Literal, row: Row) -> tuple[Matcher, Sequence[Timed]]:
        if premise.atom.key not in self.inside:
            return super().look_up(premise, row)
        matcher = Matcher(premise, row, self.now)
        wanted = matcher.key(row)
        return matcher, [fact for fact in self.relation(premise.atom.key) if matcher.fact_key(fact[0]) == wanted]

    def _solve(self, premise: Premise, rows: list[Row]) -> Solving:
        changes = isinstance(premise, Literal) and premise.atom.key in self.inside
        return (yield from (NaiveEvaluation if changes else Finished)._solve(self, premise, rows))

    def _is_plain_look_up(self, premise: Premise) -> bool:
        return super()._is_plain_look_up(premise) and premise.atom.key not in self.inside  # type: ignore[union-attr]

    def _apply(self, rule: Rule) -> list[Timed]:
        shape = self._shapes[id(rule)]
        found = self._instances.heads(shape, {})
        for fact, rows in found.items():
            ground = Fact(rule.head.predicate, *fact)
            if ground not in self.log and ground not in self._given:
                instances = (self._instances.instance(shape, derived, {}) for derived in rows)
                self.log[ground] = min(instances, key=lambda instance: instance.order_key)
        return list(found)

    def _merge_into(self, key: Key, new: list[Args], *, afresh: bool = False) -> bool:
        self._merging = key
        return super()._merge_into(key, new, afresh=afresh)

    def _merged(self, group: list[Args], args: Args, merge: Merge) -> list[Args]:
        result = super()._merged(group, args, merge)
        assert self._merging is not None
        lost = tuple(Fact(self._merging[0], old) for old in group if old not in result)
        for value in result:
            made = Fact(self._merging[0], value)
            if value not in group and value != args and made not in self._given:
                self.log.setdefault(made, Merged((Fact(self._merging[0], args), *lost)))
        return result
