"""Which facts a client could say to get a tool.

The engine searches; here it is told where to look, so that an answer gives nothing away and can be read:

* Only predicates that clients may state, and only those that the selection reads without passing through policy.
* Only values that whoever asks knows, or may (:mod:`.sayable`).
* Only so many tries, and not beyond the deadline. Every set that is named has been evaluated.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from manglecp.intent.redaction import Sight
from manglecp.intent.sayable import ANY_NAME, ANYTHING, Readable, Sayable
from manglecp.mangle import EvalError, Fact, Key
from manglecp.mangle.explain import Assumed, Effort, Exhausted, Finished, Prover, Unlock, Unlocked
from manglecp.mangle.syntax import Literal

if TYPE_CHECKING:
    from manglecp.intent.evaluation import Evaluation

__all__ = ["Unlocking", "Ways"]

MOST_TRIES: Final = 200
MOST_SETS: Final = 8
_LOCAL: Final = "local"


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
        about = self.prover, self.rules, self.evaluation.session, goal, self.over
        known = Sayable(*about)
        search = _Search(self.prover, goal, known, self.deadline)
        found = search.run()
        complete = found.complete and not known.refused and known.rules_out(found.sets, search.failed)
        if not (found.sets or complete) and self._may_read_all():
            found = _Search(self.prover, goal, Readable(*about), self.deadline).run()
        return list(found.sets), complete

    def _may_read_all(self) -> bool:
        """Does whoever asks sit at the server, with its files?"""
        return self.evaluation.identity.trust == _LOCAL and self.sight.explains_policy

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

    candidates: Sayable

    def __init__(self, prover: Prover, goal: Fact, candidates: Sayable, deadline: float) -> None:
        super().__init__(prover, goal, candidates.keys, most_tries=MOST_TRIES)
        self.candidates = candidates
        self.deadline = deadline
        self.effort = _Effort(self.effort.steps, deadline)

    @property
    def failed(self) -> list[Assumed]:
        """The sets that were tried and did not do."""
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
