"""Search for the best proof of a fact, or a good one where that is too expensive."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from manglecp.mangle.declarations import Merge
from manglecp.mangle.explain.instances import Absence, Instance, Instances, Option, Support, cheapest
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.facts import Args, Fact, Timed
from manglecp.mangle.matching import Matcher, Row
from manglecp.mangle.model import Facts, Index, Relation, program_facts
from manglecp.mangle.naive import NaiveEvaluation, Solving
from manglecp.mangle.program import Rule
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Apply, Key, Literal, Premise


# A merge discards values whose consequences stay, so a fact may have no instance in the finished model. Then the
# component is replayed, and every fact is logged when it first appears. Log entries depend on earlier ones only, so
# proofs from the log are well-founded.
@dataclass(frozen=True, slots=True)
class Merged:
    """A value merged from these facts."""

    facts: tuple[Fact, ...]


class Replay(Finished):
    """A component evaluated again over the finished model below it, with a log of how each fact first appeared."""

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

    def look_up(self, premise: Literal, row: Row) -> tuple[Matcher, Facts]:
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


# The best proof has the fewest leaves, then the least height, then the least text. Facts are expanded into instances
# from the goal; then costs are settled per component, bottom-up, by Knuth's generalisation of Dijkstra's algorithm. An
# instance costs more than each premise, so proofs are well-founded under recursion. Leaves count as often as they are
# used; counting each once would be NP-hard.
Chosen: TypeAlias = tuple[Fact, ...] | Absence

WIDEST: Final = 50_000  # limit of instances for the best proof


@dataclass(frozen=True, slots=True)
class Choice:
    leaves: int
    height: int
    instance: Instance | None = None  # none for a leaf, and for a value merged from ``chosen``
    chosen: tuple[Chosen, ...] = ()  # the facts of each ground

    @property
    def premises(self) -> Iterator[Fact]:
        return (fact for chosen in self.chosen if not isinstance(chosen, Absence) for fact in chosen)


LEAF: Final = Choice(1, 0)


class TooWide(Exception):
    pass


@dataclass(slots=True)
class _Waiting:
    fact: Fact
    instance: Instance
    chosen: list[Chosen | None]
    missing: int = 0


@dataclass
class Search:
    """Finds and memoises proofs."""

    solver: Finished
    instances: Instances
    using: Collection[Fact] | None = None  # the given facts that may be leaves; None for all
    best: dict[Fact, Choice] = field(default_factory=dict)
    expanded: dict[Fact, list[Instance]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._settled: set[Fact] = set()
        self._texts: dict[Fact, str] = {}
        self._replays: dict[int, Replay] = {}
        self._number = itertools.count()  # two heap entries must never compare further
        self._component: dict[Key, int] = {}
        for number, component in enumerate(self.solver.program.components):
            self._component.update(dict.fromkeys(component.predicates, number))

    def component(self, key: Key) -> int:
        """Return the index in evaluation order; -1 without rules."""
        return self._component.get(key, -1)

    def text(self, fact: Fact) -> str:
        text = self._texts.get(fact)
        if text is None:
            text = self._texts[fact] = fact.text
        return text

    def prove(self, goals: Iterable[Fact], widest: int | None = WIDEST) -> None:
        """Settle the goals and their dependencies. A fact without an entry in ``best`` cannot be proved."""
        by_component: dict[int, list[Fact]] = {}
        for fact in self._expand(goals, widest):
            by_component.setdefault(self.component(fact.key), []).append(fact)
        for number in sorted(by_component):
            self._settle(number, by_component[number])
            self._recall(number, [fact for fact in by_component[number] if fact not in self.best])

    def leaf(self, fact: Fact) -> bool:
        """Return whether the fact is given and needs no proof, even if it has one."""
        if fact in self.best:
            return self.best[fact] is LEAF
        if self.solver.given(fact) and (self.using is None or fact in self.using):
            self.best[fact] = LEAF
            return True
        return False

    def expand(self, fact: Fact) -> list[Instance]:
        found = self.expanded.get(fact)
        if found is None:
            found = self.expanded[fact] = list(self.instances.of(fact))
        return found

    def _expand(self, goals: Iterable[Fact], widest: int | None) -> list[Fact]:
        stack = list(goals)
        seen: set[Fact] = set()
        count = 0
        while stack:
            fact = stack.pop()
            if fact in seen or fact in self._settled or self.leaf(fact):
                continue
            seen.add(fact)
            instances = self.expand(fact)
            count += len(instances)
            if widest is not None and count > widest:
                raise TooWide
            for instance in instances:
                for ground in instance.grounds:
                    if isinstance(ground, Support):
                        stack += [other for option in ground.options for other in option.facts if other not in seen]
        return list(seen)

    def _settle(self, number: int, facts: list[Fact]) -> None:
        waiting: dict[Fact, list[tuple[_Waiting, int]]] = {}
        queue: list[tuple[Any, ...]] = []
        for fact in facts:
            for instance in self.expanded[fact]:
                self._begin(number, _Waiting(fact, instance, [None] * len(instance.grounds)), waiting, queue)
        for fact in waiting:
            if fact in self.best:
                self._push(queue, fact, self.best[fact])
        done: set[Fact] = set()
        while queue:
            *_, fact, choice = heapq.heappop(queue)
            if fact in done:
                continue
            done.add(fact)
            self.best.setdefault(fact, choice)
            for one, place in waiting.get(fact, ()):
                if one.chosen[place] is None:
                    one.chosen[place] = (fact,)
                    one.missing -= 1
                    if one.missing == 0:
                        self._finish(one, queue)
        self._settled.update(facts)

    def _begin(
        self,
        number: int,
        one: _Waiting,
        waiting: dict[Fact, list[tuple[_Waiting, int]]],
        queue: list[tuple[Any, ...]],
    ) -> None:
        inside: list[tuple[Fact, int]] = []
        for place, ground in enumerate(one.instance.grounds):
            if isinstance(ground, Absence):
                one.chosen[place] = ground
            elif self.component(ground.literal.atom.key) == number:
                inside += [(option.facts[0], place) for option in ground.options]
                one.missing += 1
            else:
                chosen = self.cheapest(ground.options)
                if chosen is None:
                    return
                one.chosen[place] = chosen
        for fact, place in inside:
            waiting.setdefault(fact, []).append((one, place))
        if not inside:
            self._finish(one, queue)

    def cheapest(self, options: Iterable[Option]) -> tuple[Fact, ...] | None:
        ranked = [self._ranked(facts) for option in options if (facts := self._cheapest(option))]
        return min(ranked)[-1] if ranked else None

    def _ranked(self, facts: tuple[Fact, ...]) -> tuple[Any, ...]:
        leaves, height = self.cost([facts])
        return leaves, height, [self.text(fact) for fact in facts], facts

    def _cheapest(self, option: Option) -> tuple[Fact, ...] | None:
        proved = [fact for fact in option.facts if fact in self.best]
        if not proved:
            return None
        if option.asked.whole is None:
            return (min(proved, key=self._fact_order),)
        pieces = [(fact.interval, fact) for fact in proved if fact.interval is not None]
        return tuple(cheapest(option.asked.whole, pieces, self._fact_order))

    def _fact_order(self, fact: Fact) -> tuple[int, int, str]:
        choice = self.best[fact]
        return choice.leaves, choice.height, self.text(fact)

    def cost(self, chosen: Iterable[Chosen | None]) -> tuple[int, int]:
        """Return leaves and height; a fact that a rule uses twice counts once."""
        facts = {fact for one in chosen if isinstance(one, tuple) for fact in one}
        choices = [self.best[fact] for fact in facts]
        return sum(c.leaves for c in choices), max((c.height for c in choices), default=0)

    def _finish(self, one: _Waiting, queue: list[tuple[Any, ...]]) -> None:
        leaves, height = self.cost(one.chosen)
        chosen = tuple(c for c in one.chosen if c is not None)
        self._push(queue, one.fact, Choice(leaves, height + 1, one.instance, chosen))

    def _recall(self, number: int, facts: list[Fact]) -> None:
        keys = () if number < 0 else self.solver.program.components[number].predicates
        if not facts or not any(self.solver.predicate(key).merge is not None for key in keys):
            return
        replay = self._replays.get(number)
        if replay is None:
            replay = self._replays[number] = Replay(self.solver, self.solver.program.components[number])
        needed, below = self._needed(replay, number, facts)
        self.prove(below)
        for fact, entry in replay.log.items():
            if fact not in needed or fact in self.best:
                continue
            if isinstance(entry, Merged):
                chosen: list[Chosen | None] = [entry.facts]
            else:
                chosen = [g if isinstance(g, Absence) else self.cheapest(g.options) for g in entry.grounds]
            if None not in chosen:
                leaves, height = self.cost(chosen)
                instance = entry if isinstance(entry, Instance) else None
                self.best[fact] = Choice(leaves, height + 1, instance, tuple(c for c in chosen if c is not None))

    def _needed(self, replay: Replay, number: int, facts: list[Fact]) -> tuple[set[Fact], list[Fact]]:
        """Return the dependencies of some log entries: inside the component, and below it."""
        needed: set[Fact] = set()
        below: list[Fact] = []
        stack = list(facts)
        while stack:
            fact = stack.pop()
            if self.component(fact.key) != number:
                below.append(fact)
                continue
            entry = replay.log.get(fact)
            if fact in needed or self.leaf(fact) or entry is None:
                continue
            needed.add(fact)
            if isinstance(entry, Merged):
                stack += entry.facts
            else:
                supports = [ground for ground in entry.grounds if isinstance(ground, Support)]
                stack += [other for support in supports for option in support.options for other in option.facts]
        return needed, below

    def _push(self, queue: list[tuple[Any, ...]], fact: Fact, choice: Choice) -> None:
        order = () if choice.instance is None else choice.instance.order_key
        heapq.heappush(queue, (choice.leaves, choice.height, self.text(fact), order, next(self._number), fact, choice))


# Rounds are a well-founded rank: a fact of round n has an instance with premises of earlier rounds. Computing them
# costs as much as evaluating the component, and is done only where expanding all instances would cost far more.
class Rounds(Finished):
    """A component evaluated again, counting semi-naive rounds. It has no deferred and no merged predicates."""

    def __init__(self, below: Finished, component: Component) -> None:
        super().__init__(below.model)
        self.answers = below.answers
        self.rank: dict[Fact, int] = {}
        self._inside = frozenset(component.predicates)
        self._grown: dict[tuple[Key, tuple[int, ...]], dict[Args, list[Timed]]] = {}
        self._instances = Instances(self)
        self._shapes = [shape for key in component.predicates for shape in self._instances.shapes.get(key, ())]
        self._run()

    def _build(self, key: Key, positions: tuple[int, ...], raw: bool) -> Index:
        if key not in self._inside:
            return super()._build(key, positions, raw)
        if (key, positions) not in self._grown:
            self._grown[key, positions] = {}
            for fact in self.rank:
                if fact.key == key:
                    self._enter(fact, positions)
        return self._grown[key, positions]

    def _enter(self, fact: Fact, positions: tuple[int, ...]) -> None:
        index = self._grown[fact.key, positions]
        index.setdefault(tuple([fact.args[i] for i in positions]), []).append(fact.timed)

    def _run(self) -> None:
        given = {
            Fact(key[0], *fact)
            for key in self._inside
            for fact in self.model.derived(key)
            if self.model.origin(Fact(key[0], *fact)) is not None
        }
        number = 0
        news = given
        while news or number == 0:
            for fact in news:
                self.rank[fact] = number
                for key, positions in self._grown:
                    if key == fact.key:
                        self._enter(fact, positions)
            number += 1
            found = self._first() if number == 1 else self._following(news)
            news = {fact for fact in found if fact not in self.rank}

    def _first(self) -> Iterator[Fact]:
        for shape in self._shapes:
            for fact in self._instances.heads(shape, {}):
                yield Fact(shape.rule.head.predicate, *fact)

    def _following(self, news: set[Fact]) -> Iterator[Fact]:
        """Derive from the delta of one round. Other premises see the whole delta, so two new facts can join."""
        by_key: dict[Key, list[Fact]] = {}
        for fact in news:
            by_key.setdefault(fact.key, []).append(fact)
        for shape in self._shapes:
            if shape.rule.clause.aggregates:
                continue  # it reads only what was finished before
            places = [i for i, p in enumerate(shape.rule.premises) if isinstance(p, Literal) and p.atom.key in by_key]
            if not places:
                continue
            if not all(self._may_lead(shape, place) for place in places):
                for head in self._instances.heads(shape, {}):
                    yield Fact(shape.rule.head.predicate, *head)
                continue
            for place in places:
                yield from self._from(shape, place, by_key)

    def _from(self, shape: Shape, place: int, by_key: dict[Key, list[Fact]]) -> Iterator[Fact]:
        premise = shape.rule.premises[place]
        assert isinstance(premise, Literal)
        matcher = Matcher(premise, {}, self.now)
        wanted = matcher.key({})
        for fact in by_key[premise.atom.key]:
            row = matcher.match({}, *fact.timed) if matcher.fact_key(fact.args) == wanted else None
            if row is not None:
                for head in self._instances.heads(shape, row, place):
                    yield Fact(shape.rule.head.predicate, *head)

    def _may_lead(self, shape: Shape, place: int) -> bool:
        """Return whether this premise may run first: not if the order determines which ends of intervals are known."""
        literals = [premise for premise in shape.rule.premises if isinstance(premise, Literal)]
        lead = shape.rule.premises[place]
        assert isinstance(lead, Literal)
        return not any(p.timed for p in literals) and not any(isinstance(arg, Apply) for arg in lead.atom.args)


# From the goal down, each fact takes the instance whose premises appeared earliest. In a recursive component only
# premises of earlier rounds are permitted, so the proof is well-founded.
class Quick:
    def __init__(self, search: Search) -> None:
        self.search = search
        self.solver = search.solver
        self._rounds: dict[int, Rounds | None] = {}

    def prove(self, goals: list[Fact]) -> None:
        steps: dict[Fact, tuple[Instance, tuple[Chosen, ...]]] = {}
        stack = list(goals)
        while stack:
            fact = stack.pop()
            if fact in steps or fact in self.search.best or self.search.leaf(fact):
                continue
            if self._searched(fact):
                self.search.prove([fact], widest=None)
                continue
            *_, instance, chosen = min(self._ways(fact))
            steps[fact] = instance, chosen
            stack += [other for one in chosen if not isinstance(one, Absence) for other in one]
        self._enter(steps)

    def _enter(self, steps: dict[Fact, tuple[Instance, tuple[Chosen, ...]]]) -> None:
        best = self.search.best
        work = list(steps)
        while work:
            fact = work[-1]
            if fact in best:
                work.pop()
                continue
            instance, chosen = steps[fact]
            missing = [f for one in chosen if not isinstance(one, Absence) for f in one if f not in best]
            if missing:
                work += missing
                continue
            leaves, height = self.search.cost(chosen)
            best[fact] = Choice(leaves, height + 1, instance, chosen)

    def _searched(self, fact: Fact) -> bool:
        """Return whether the component has no rounds: merged or partly deferred."""
        keys = self.solver.program.components[self.search.component(fact.key)].predicates
        return any(self.solver.predicate(key).merge is not None or self.solver.predicate(key).deferred for key in keys)

    def rounds(self, number: int) -> Rounds | None:
        """Return None if the component is not recursive."""
        if number not in self._rounds:
            component = self.solver.program.components[number]
            self._rounds[number] = Rounds(self.solver, component) if component.recursive else None
        return self._rounds[number]

    def _ways(self, fact: Fact) -> list[tuple[Any, ...]]:
        number = self.search.component(fact.key)
        rounds = self.rounds(number)
        rank = {} if rounds is None else rounds.rank
        ways = []
        for place, instance in enumerate(self.search.expand(fact)):
            chosen: list[Chosen] = []
            latest = 0
            for ground in instance.grounds:
                if isinstance(ground, Absence):
                    chosen.append(ground)
                    continue
                inside = self.search.component(ground.literal.atom.key) == number
                facts = self._earlier(ground, rank, rank[fact]) if inside else self._any(ground)
                if not facts:
                    break
                if inside:
                    latest = max(latest, rank[facts[0]])
                chosen.append(facts)
            else:
                ways.append((latest, len(chosen), instance.order_key, place, instance, tuple(chosen)))
        return ways

    def _earlier(self, support: Support, rank: dict[Fact, int], before: int) -> tuple[Fact, ...]:
        facts = [option.facts[0] for option in support.options if rank[option.facts[0]] < before]
        return (min(facts, key=lambda fact: (rank[fact], self.search.text(fact))),) if facts else ()

    def _any(self, support: Support) -> tuple[Fact, ...]:
        return min(map(self._option, support.options), key=lambda facts: [self._order(fact) for fact in facts])

    def _option(self, option: Option) -> tuple[Fact, ...]:
        if option.asked.whole is None:
            return (min(option.facts, key=self._order),)
        pieces = [(fact.interval, fact) for fact in option.facts if fact.interval is not None]
        return tuple(cheapest(option.asked.whole, pieces, self._order))

    def _order(self, fact: Fact) -> tuple[int, str]:
        return 1 if self.search.leaf(fact) else 2, self.search.text(fact)
