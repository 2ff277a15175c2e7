"""Unlocking with restricted values, for callers that may assert only some facts.

* Values are those of the caller's facts, the intent and constants of rules. Where any value will do, a wildcard is
used.
* Values of the server's own facts are used only for callers that may read them.
* Free values are sampled, so failure of the samples rules nothing out.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Final

from manglecp.mangle.errors import EvalError, ValueFault
from manglecp.mangle.explain.candidates import Assumed, Candidates, Effort, Exhausted
from manglecp.mangle.explain.instances import row_key
from manglecp.mangle.explain.proof import Prover
from manglecp.mangle.explain.shape import Shape
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.explain.unlock import Unlock, Unlocked
from manglecp.mangle.facts import Fact, Interval
from manglecp.mangle.matching import Row
from manglecp.mangle.model import EvaluatedModel
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Equality, Key, Literal, Premise, Term, Variable
from manglecp.mangle.types import ANY, conforms
from manglecp.mangle.values import Float, Name, Time, Value, order_key

MOST_TRIES: Final = 200
MOST_GUESSES: Final = 64  # limit of single facts tried without backward reasoning
MOST_VALUES: Final = 1_000  # limit of values from the caller's facts
MOST_ROWS: Final = 20  # limit of rows per relation of the server, if its values may be disclosed
LARGEST: Final = 100_000  # values of larger relations are not sampled
ANYTHING: Final = "\ufdd0any value"  # wildcard for any text. Begins with a noncharacter, so that no program uses it
ANY_NAME: Final = Name("/any_value")
_ANY: Final = (ANYTHING, ANY_NAME)
_STRICT: Final = frozenset({":lt", ":gt"})


class Assertable(Candidates):
    """Candidates made of values that may be disclosed."""

    def __init__(
        self, prover: Prover, rules: Sequence[Rule], session: Sequence[Fact], goal: Fact, over: Collection[Key]
    ) -> None:
        super().__init__(prover.solver, goal, prover.acceptance, over)
        self.rules = rules
        self.session = session
        self.refused = False
        self._free: set[tuple[Key, int]] = set()  # free positions, whose values were sampled
        self._guessed: set[tuple[Key, int]] = set()  # positions at which other values could have succeeded
        self._spelled: dict[tuple[Key, int], dict[Value, None]] = {}
        for rule in self.rules:
            self._read(rule)

    def _read(self, rule: Rule) -> None:
        tested: dict[str, list[Value]] = {}
        literals: list[Literal] = []
        for premise in rule.premises:
            if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
                literals.append(premise)
            else:
                terms = _terms(premise)
                constants = [value for term in terms for value in _passing(premise, term)]
                for term in terms:
                    if isinstance(term, Variable):
                        tested.setdefault(term.name, []).extend(constants)
        for literal in literals:
            for position, term in enumerate(literal.atom.args):
                values = tested.get(term.name, ()) if isinstance(term, Variable) else self._of_term(term)
                self._spelled.setdefault((literal.atom.key, position), {}).update(dict.fromkeys(values))

    def _values(self) -> Iterator[Value]:
        yield from self.goal.args
        for fact in self.session[:MOST_VALUES]:
            yield from fact.args
        for rule in self.rules:
            for term in (*rule.head.args, *(term for premise in rule.premises for term in _terms(premise))):
                yield from self._of_term(term)
        for values in self._spelled.values():
            yield from values
        yield from self._anything()

    def _anything(self) -> tuple[Value, ...]:
        return ANYTHING, ANY_NAME, 0, Float(0.0), Time(self.solver.now)

    def guesses(self, scope: Collection[Key]) -> list[Fact]:
        """Return some facts per predicate from the caller's values and the rules' constants; temporal ones hold now."""
        keys = sorted(key for key in self.keys if key in scope)
        found: list[Fact] = []
        for key in keys:
            at = (self.solver.now, self.solver.now) if self.solver.predicate(key).temporal else None
            columns = [self._most_likely(key, position) for position in range(key[1])]
            fitting = (
                fact
                for args in itertools.islice(itertools.product(*columns), MOST_VALUES)
                if self.accepts(key, args) and not self.solver.contains(fact := Fact(key[0], args, at))
            )
            found += itertools.islice(fitting, max(MOST_GUESSES // len(keys), 1))
        return found

    def _most_likely(self, key: Key, position: int) -> list[Value]:
        said = (value for fact in self.session[:MOST_VALUES] for value in fact.args)
        return [*dict.fromkeys((*self._fitting(key, position, said), *self.column(key, position)))]

    def _spoken_of(self) -> Iterator[Interval]:
        yield from self._asked()
        yield from (fact.interval for fact in self.session if fact.interval is not None)

    def rules_out(self, sets: Collection[Collection[Fact]], failed: Iterable[Collection[Fact]]) -> bool:
        """Return whether no other set exists, although free values were only sampled: wildcards or successes cover the
        rest."""
        if any((fact.key, i) in self._free for one in failed for fact in one for i in range(fact.key[1])):
            return False
        facts = [fact for one in sets for fact in one]
        return all(
            bool(values := [fact.args[position] for fact in facts if fact.key == key])
            and all(v in _ANY for v in values)
            for key, position in self._guessed
        )

    def column(self, key: Key, position: int, *, alike: bool = False) -> tuple[Value, ...]:
        self._free.add((key, position))
        if not alike:
            self._guessed.add((key, position))
        found = self._columns.get((key, position))
        if found is None:
            values = dict.fromkeys((*self._spelled.get((key, position), ()), *self._anything()))
            fitting = self._fitting(key, position, values)
            found = self._columns[key, position] = tuple(sorted(fitting, key=order_key))
        return found

    def _fitting(self, key: Key, position: int, values: Iterable[Value]) -> Iterator[Value]:
        types = [row[position] for row in self.solver.predicate(key).rows] or [ANY]
        vocabulary = self._acceptance.vocabulary
        return (v for v in values if any(t == ANY or conforms(vocabulary.value(v), t) for t in types))

    def accepts(self, key: Key, args: tuple[Value, ...]) -> bool:
        if key in self.keys and not self._known.issuperset(args):
            self.refused = True
        return super().accepts(key, args)


class Readable(Assertable):
    """Candidates with values of the server's facts: joined from other premises, and samples where free."""

    most_rows = MOST_ROWS

    def __init__(
        self, prover: Prover, rules: Sequence[Rule], session: Sequence[Fact], goal: Fact, over: Collection[Key]
    ) -> None:
        super().__init__(prover, rules, session, goal, over)
        self.preferred = frozenset(value for fact in self.session[:MOST_VALUES] for value in fact.args)

    def accepts(self, key: Key, args: tuple[Value, ...]) -> bool:
        return key in self.keys and self._acceptance.accepts(key, args)

    def _read(self, rule: Rule) -> None:
        super()._read(rule)
        places: dict[str, list[tuple[Key, int]]] = {}
        tested: dict[str, set[str]] = {}
        for premise in rule.premises:
            if isinstance(premise, Literal) and not premise.atom.predicate.startswith(":"):
                for position, term in enumerate(premise.atom.args):
                    if isinstance(term, Variable) and not term.anonymous:
                        places.setdefault(term.name, []).append((premise.atom.key, position))
            else:
                names = {term.name for term in _terms(premise) if isinstance(term, Variable)}
                for name in names:
                    tested.setdefault(name, set()).update(names)
        for name, where in places.items():
            for place in where:
                if place[0] in self.keys:
                    others = [one for other in sorted({name, *tested.get(name, ())}) for one in places.get(other, ())]
                    values = (v for one in dict.fromkeys(others) if one != place for v in self._of_base(*one))
                    self._spelled.setdefault(place, {}).update(dict.fromkeys(values))

    def _of_base(self, key: Key, position: int) -> Iterator[Value]:
        """Return some values of a column; of numbers also neighbours, which may be limits."""
        rows = self.solver.index(key, ()).get((), ())
        if len(rows) > LARGEST:
            return
        for value in heapq.nsmallest(MOST_ROWS, {args[position] for args, _ in rows}, key=order_key):
            yield value
            if type(value) is int:
                yield from (value - 1, value + 1)


def _passing(premise: Premise, term: Term) -> Iterator[Value]:
    if isinstance(term, Variable | Apply):
        return
    excludes = premise.negated if isinstance(premise, Equality) else premise.atom.predicate in _STRICT
    if excludes and type(term) is int:
        yield from (term - 1, term + 1)
    else:
        yield term


def _terms(premise: Premise) -> list[Term]:
    return [premise.left, premise.right] if isinstance(premise, Equality) else list(premise.atom.args)


class _Effort(Effort):
    def __init__(self, steps: int, deadline: float) -> None:
        super().__init__(steps)
        self.deadline = deadline

    def spend(self, steps: int = 1) -> None:
        if monotonic() > self.deadline:
            raise Exhausted
        super().spend(steps)


class _Search(Unlock):
    """Abduction until the deadline, then guesses.

    Where a premise reads a large relation of the server, abduction gives up before it finds the values that the caller
    could mean. There are few candidates, so single facts and pairs are tried. That does not rule out other sets.
    """

    candidates: Assertable

    def __init__(self, prover: Prover, goal: Fact, candidates: Assertable, deadline: float) -> None:
        super().__init__(prover, goal, candidates.keys, most_tries=MOST_TRIES)
        self.candidates = candidates
        self.deadline = deadline
        self.effort = _Effort(self.effort.steps, deadline)

    @property
    def failed(self) -> list[Assumed]:
        return [one for one, does in self._tried.items() if not does]

    def run(self) -> Unlocked:
        told = super().run()
        if told.sets or not self.exhausted:
            return told
        found: set[Assumed] = set()
        with suppress(Exhausted):
            self._guess(found)
        return Unlocked(self._presented(found), complete=False)

    def _guess(self, found: set[Assumed]) -> None:
        facts = self.candidates.guesses(self.scope)
        found.update(one for fact in facts if self._unlocks(one := frozenset({fact})))
        if found:
            return
        pairs = itertools.combinations(facts, 2)  # two facts of one predicate are the less likely
        for pair in sorted(pairs, key=lambda pair: pair[0].predicate == pair[1].predicate):
            if self._unlocks(one := frozenset(pair)):
                found.add(one)

    def _unlocks(self, added: Assumed) -> bool:
        if monotonic() > self.deadline:
            raise Exhausted
        return super()._unlocks(added)


def furthest(solver: Finished, shape: Shape, start: Row, most_rows: int, enough: int | None = None) -> tuple[int, Row]:
    """Return how many premises can be satisfied, and the least row that satisfies them.

    Depth first, in the order of values, over at most ``most`` rows; stops at ``enough`` premises, by default all.
    """
    premises = shape.rule.premises
    enough = len(premises) if enough is None else enough
    deepest, best = 0, start
    stack: list[Iterator[Row]] = [iter([start])]
    for _ in range(most_rows):
        if not stack:
            break
        row = next(stack[-1], None)
        if row is None:
            stack.pop()
            continue
        depth = len(stack) - 1
        if depth > deepest:
            deepest, best = depth, row
        if deepest >= enough:
            break
        stack.append(iter(sorted(satisfying(solver, premises[depth], row), key=row_key)))
    return deepest, best


def satisfying(solver: Finished, premise: Premise, row: Row) -> list[Row]:
    try:
        return list(solver.solve(premise, row))
    except (ValueFault, EvalError):
        return []


class Probe:
    """Rules of one finished model, followed from their heads, and abduction.

    The deadline of the result's other explanations does not apply; callers pass their own.
    """

    def __init__(self, model: EvaluatedModel) -> None:
        self._prover = Prover(model)

    def shapes(self, key: Key) -> Sequence[Shape]:
        return self._prover.instances.shapes.get(key, ())

    def has_facts(self, key: Key) -> bool:
        return bool(self._prover.solver.index(key, ()).get((), ()))

    def furthest(self, shape: Shape, start: Row, most_rows: int) -> tuple[int, Row]:
        """Return how many premises of a rule can be satisfied, and the least row that satisfies them."""
        return furthest(self._prover.solver, shape, start, most_rows)

    def satisfies(self, premise: Premise, row: Row) -> bool:
        return bool(satisfying(self._prover.solver, premise, row))

    def holds_with(self, goal: Fact, added: Iterable[Fact], deadline: float) -> bool:
        model = self._prover.model
        left = max(deadline - monotonic(), 0.001)
        try:
            return Finished(model.with_facts(added, replace(model.limits, seconds=left))).contains(goal)
        except EvalError:
            return False

    def unlock(
        self,
        goal: Fact,
        rules: Sequence[Rule],
        session: Sequence[Fact],
        over: Collection[Key],
        deadline: float,
        *,
        readable: bool = False,
    ) -> Unlocked:
        """Search the smallest sets of facts of the predicates ``over`` that make ``goal`` hold.

        Only values of ``session`` and ``rules`` are used; with ``readable`` also those of all facts, if others do not
        help.
        :data:`ANYTHING` and :data:`ANY_NAME` are wildcards.
        """
        about = self._prover, rules, session, goal, over
        known = Assertable(*about)
        search = _Search(self._prover, goal, known, deadline)
        found = search.run()
        complete = found.complete and not known.refused and known.rules_out(found.sets, search.failed)
        if not (found.sets or complete) and readable:
            found = _Search(self._prover, goal, Readable(*about), deadline).run()
        return Unlocked(found.sets, complete)
