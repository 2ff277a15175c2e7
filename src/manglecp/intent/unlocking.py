"""Which facts a client could say to get a tool.

The engine searches; here it is told where to look, so that an answer gives nothing away and can be read:

* Only predicates that clients may state, and only those that the selection reads without passing through policy.
* Only values that whoever asks knows or that the rules spell out: own facts, the intent, constants of rules. Values
  that stand only in the server's own facts are not tried. Where any value will do, one stands for all: null.
* Only so many tries, and not beyond the deadline. Every set that is named has been evaluated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from manglecp.intent.redaction import Sight
from manglecp.mangle.errors import EvalError
from manglecp.mangle.explain.candidates import Candidates
from manglecp.mangle.explain.hypotheses import Assumed, Effort, Exhausted
from manglecp.mangle.explain.prover import Prover
from manglecp.mangle.explain.solver import Finished
from manglecp.mangle.explain.unlock import Unlock
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
        search = _Search(self.prover, goal, self.over, self.deadline)
        narrow = search.candidates = _Narrow(self, goal, self.over)
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
    """The engine's search, until the time is up."""

    def __init__(self, prover: Prover, goal: Fact, over: Collection[Key], deadline: float) -> None:
        super().__init__(prover, goal, over, most_tries=MOST_TRIES)
        self.deadline = deadline
        self.effort = _Effort(self.effort.steps, deadline)

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

    def _spoken_of(self) -> Iterator[Interval]:
        yield from self._asked()
        yield from (fact.interval for fact in self.session if fact.interval is not None)

    def column(self, key: Key, position: int) -> tuple[Value, ...]:
        found = self._columns.get((key, position))
        if found is None:
            types = [row[position] for row in self.solver.predicate(key).rows] or [ANY]
            values = dict.fromkeys((*self._spelled.get((key, position), ()), *self._anything()))
            vocabulary = self._acceptance.vocabulary
            fitting = (v for v in values if any(t == ANY or conforms(vocabulary.value(v), t) for t in types))
            found = self._columns[key, position] = tuple(sorted(fitting, key=order_key))
        return found

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
