"""Which facts a client could say to get a tool.

The engine searches; here it is told where to look, so that an answer gives nothing away and can be read:

* Only predicates that clients may state, and only those that the selection reads without passing through policy.
* Only values that whoever asks knows or that the rules spell out: own facts, the intent, constants of rules. Values
  that stand only in the server's own facts are not tried. Where any value will do, one stands for all: null.
* Only so many tries, and not beyond the deadline. Every set that is named has been evaluated.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from manglecp.intent.redaction import Sight
from manglecp.mangle.errors import EvalError
from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.hypotheses import Assumed, Effort, Exhausted
from manglecp.mangle.explain.prover import Prover
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.explain.unlock import Unlock, Unlocked
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import Interval
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Equality, Literal, Premise, Term, Variable
from manglecp.mangle.types import ANY, conforms
from manglecp.mangle.values import Float, Name, Time, Value, order_key

if TYPE_CHECKING:
    from manglecp.intent.evaluation import Evaluation

__all__ = ["Unlocking", "Ways"]

MOST_TRIES: Final = 200
MOST_SETS: Final = 8
MOST_GUESSES: Final = 64
"""So many single facts are tried where rules cannot be followed backwards in time."""
MOST_VALUES: Final = 1_000
"""So many values of the client's own facts are tried."""
ANYTHING: Final = "\ufdd0any value"
"""Stands for any text. It begins with a code point that is no character, so that nobody means it."""
ANY_NAME: Final = Name("/any_value")
_STRICT: Final = frozenset({":lt", ":gt"})


@dataclass(frozen=True, slots=True)
class Ways:
    """Sets of facts in wire form, and whether there are no others as small."""

    sets: tuple[tuple[dict[str, Any], ...], ...]
    complete: bool


class Unlocking:
    """Questions about one evaluation."""

    def __init__(self, evaluation: Evaluation, sight: Sight, prover: Prover, deadline: float) -> None:
        self.evaluation = evaluation
        self.sight = sight
        self.prover = prover
        self.deadline = deadline
        self.rules = [rule for rule in evaluation.result.program.rules if not sight.hides(rule.head.key, rule.clause)]
        self.over = self._readable_from(("offered", 1))

    def ways(self, tool: str, named: bool) -> Ways:
        """What would bring the tool; ``named`` if something speaks for it already."""
        offered = Fact("offered", (tool,))
        if not named:
            found = self._search(Fact("named", (tool,)))
            good = [one for one in found[0] if self._holds(offered, one)]
            if good or not found[0]:  # what is not named is not offered either
                return self._told(good, found[1] and len(good) == len(found[0]))
        return self._told(*self._search(offered))

    def _search(self, goal: Fact) -> tuple[list[tuple[Fact, ...]], bool]:
        narrow = _Narrow(self, goal, self.over)
        search = _Search(self.prover, goal, narrow, self.deadline)
        found = search.run()
        return list(found.sets), found.complete and not narrow.refused

    def _holds(self, goal: Fact, added: Iterable[Fact]) -> bool:
        limits = self.prover.model.limits
        left = self.deadline - monotonic()
        try:
            model = self.prover.model.with_facts(added, replace(limits, seconds=max(left, 0.001)))
        except EvalError:
            return False
        return Finished(model).contains(goal)

    def _readable_from(self, goal: Key) -> frozenset[Key]:
        """What clients may state and the goal depends on, other than through what is hidden."""
        reads: dict[Key, set[Key]] = {}
        for rule in self.rules:
            keys = (p.atom.key for p in rule.clause.premises if isinstance(p, Literal))
            reads.setdefault(rule.head.key, set()).update(key for key in keys if not self.sight.hides(key))
        found, work = {goal}, [goal]
        while work:
            for key in reads.get(work.pop(), ()):
                if key not in found:
                    found.add(key)
                    work.append(key)
        readable = self.evaluation.domain.profile.readable
        return frozenset(key for key in found if key[0] in readable and key in self.prover.model.program.predicates)

    # --- telling ---------------------------------------------------------------------------------------------------

    def _told(self, sets: Iterable[Collection[Fact]], complete: bool) -> Ways:
        told: list[tuple[dict[str, Any], ...]] = []
        for facts in sets:
            written = tuple(self.sight.wire(fact) for fact in facts)
            if written != tuple(self.evaluation.domain.profile.write(fact) for fact in facts):
                complete = False  # there is something in it that is not to be told
                continue
            told.append(tuple({**fact, "args": [_general(arg) for arg in fact["args"]]} for fact in written))
        told = [one for one in _distinct(told) if not any(_covers(other, one) for other in told if other != one)]
        return Ways(tuple(told[:MOST_SETS]), complete and len(told) <= MOST_SETS)


def _general(value: Any) -> Any:
    return None if value in (ANYTHING, str(ANY_NAME)) else value


def _distinct(sets: list[tuple[dict[str, Any], ...]]) -> list[tuple[dict[str, Any], ...]]:
    found: list[tuple[dict[str, Any], ...]] = []
    for one in sets:
        if one not in found:
            found.append(one)
    return found


def _covers(general: tuple[dict[str, Any], ...], special: tuple[dict[str, Any], ...]) -> bool:
    """Does the first say the same as the second, with any value where that has one?"""
    return len(general) == len(special) and all(map(_fact_covers, general, special))


def _fact_covers(general: dict[str, Any], special: dict[str, Any]) -> bool:
    if general["pred"] != special["pred"] or general.get("t") != special.get("t"):
        return False
    return all(g is None or g == s for g, s in zip(general["args"], special["args"], strict=True))


class _Effort(Effort):
    """Spent when the time is up, too."""

    def __init__(self, steps: int, deadline: float) -> None:
        super().__init__(steps)
        self.deadline = deadline

    def spend(self, steps: int = 1) -> None:
        if monotonic() > self.deadline:
            raise Exhausted
        super().spend(steps)


class _Search(Unlock):
    """The engine's search, until the time is up; then guesses.

    The engine follows the rules backwards. Where a premise is a large relation of the server's, it gives up before it
    has found which of its values the client could mean. There are few facts that the client could mean, so they are
    simply tried: single ones, then pairs. That proves nothing about other ways.
    """

    candidates: _Narrow

    def __init__(self, prover: Prover, goal: Fact, candidates: _Narrow, deadline: float) -> None:
        super().__init__(prover, goal, candidates.keys, most_tries=MOST_TRIES)
        self.candidates = candidates
        self.deadline = deadline
        self.effort = _Effort(self.effort.steps, deadline)

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


class _Narrow(Candidates):
    """The facts that may be named: made of values that are nobody's secret."""

    def __init__(self, asking: Unlocking, goal: Fact, over: Collection[Key]) -> None:
        super().__init__(asking.prover.solver, goal, asking.prover.acceptance, over)
        self.rules = asking.rules
        self.session = asking.evaluation.session
        self.refused = False
        self._spelled: dict[tuple[Key, int], dict[Value, None]] = {}
        for rule in self.rules:
            self._read(rule)

    def _read(self, rule: Rule) -> None:
        """Which constants a rule asks for, and where."""
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
        """Facts of what the client said and the rules spell out, a few of each predicate; temporal ones are of now."""
        keys = sorted(key for key in self.keys if key in scope)
        found: list[Fact] = []
        for key in keys:
            at = (self.solver.now, self.solver.now) if self.solver.predicate(key).temporal else None
            columns = [self._guessed(key, position) for position in range(key[1])]
            fitting = (
                fact
                for args in itertools.islice(itertools.product(*columns), MOST_VALUES)
                if self.accepts(key, args) and not self.solver.contains(fact := Fact(key[0], args, at))
            )
            found += itertools.islice(fitting, max(MOST_GUESSES // len(keys), 1))
        return found

    def _guessed(self, key: Key, position: int) -> list[Value]:
        """The values of a column, those of the client's facts first."""
        said = (value for fact in self.session[:MOST_VALUES] for value in fact.args)
        return [*dict.fromkeys((*self._fitting(key, position, said), *self.column(key, position)))]

    def _spoken_of(self) -> Iterator[Interval]:
        yield from self._asked()
        yield from (fact.interval for fact in self.session if fact.interval is not None)

    def column(self, key: Key, position: int) -> tuple[Value, ...]:
        found = self._columns.get((key, position))
        if found is None:
            values = dict.fromkeys((*self._spelled.get((key, position), ()), *self._anything()))
            fitting = self._fitting(key, position, values)
            found = self._columns[key, position] = tuple(sorted(fitting, key=order_key))
        return found

    def _fitting(self, key: Key, position: int, values: Iterable[Value]) -> Iterator[Value]:
        """Those that the declaration takes there."""
        types = [row[position] for row in self.solver.predicate(key).rows] or [ANY]
        vocabulary = self._acceptance.vocabulary
        return (v for v in values if any(t == ANY or conforms(vocabulary.value(v), t) for t in types))

    def accepts(self, key: Key, args: tuple[Value, ...]) -> bool:
        if key in self.keys and not self._known.issuperset(args):
            self.refused = True
        return super().accepts(key, args)


def _passing(premise: Premise, term: Term) -> Iterator[Value]:
    """A constant of a test, or what passes the test where the constant itself does not."""
    if isinstance(term, Variable | Apply):
        return
    excludes = premise.negated if isinstance(premise, Equality) else premise.atom.predicate in _STRICT
    if excludes and type(term) is int:
        yield from (term - 1, term + 1)
    else:
        yield term


def _terms(premise: Premise) -> list[Term]:
    return [premise.left, premise.right] if isinstance(premise, Equality) else list(premise.atom.args)
