"""Why a tool that was asked about is not there: ``options["x-why_not"]``.

Two ideas:

* **Asking must not find out what exists.** Only tools that could serve this intent are spoken of. A name that nobody
  knows, a tool of another intent and a tool that policy keeps from whoever asks get the same answer.
* **What blocks is told in predicates.** For each rule that could speak for the tool: which of its premises fails on the
  way that leads furthest, and below it the same for what that premise is derived from. No rule text, no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeGuard

from manglecp.intent.exclusions import Exclusions
from manglecp.intent.redaction import Sight
from manglecp.intent.settled import changing
from manglecp.intent.unlocking import Unlocking, Ways
from manglecp.mangle import Key, Row, rows_with
from manglecp.mangle.explain import Prover, Shape, furthest, satisfying
from manglecp.mangle.syntax import Apply, Equality, Literal, Premise, Variable
from manglecp.wire.messages import WhyNot

if TYPE_CHECKING:
    from manglecp.intent.evaluation import Evaluation

__all__ = ["MOST_NAMES", "WhyNots"]

MOST_NAMES: Final = 16
"""So many tools may be asked about at once. A request that names more is refused."""
MOST_REASONS: Final = 16
MOST_ROWS: Final = 2_000
"""So many rows are followed to see how far a rule gets."""
DEEPEST: Final = 4
"""So many derivations below the tool's own rules are looked into."""

_SPEAK_FOR: Final[tuple[Key, ...]] = (("mandatory", 1), ("relevant", 2))
_INTENT: Final[Key] = ("intent", 1)


class WhyNots:
    """Questions about the tools that one answer does not return."""

    def __init__(self, evaluation: Evaluation, sight: Sight, exclusions: Exclusions, deadline: float) -> None:
        self.evaluation = evaluation
        self.sight = sight
        self.exclusions = exclusions
        self.lookup = exclusions.lookup
        self.deadline = deadline
        self.intent = evaluation.request.payload.intent.name
        self.prover = Prover(evaluation.result.model)
        self.solver = self.prover.solver
        self._applying: dict[Key, bool] = {}

    def of(self, names: Iterable[str]) -> tuple[WhyNot, ...]:
        """An answer for each name, in the order of the names, each once."""
        return tuple(map(self._one, dict.fromkeys(names)))

    def _one(self, tool: str) -> WhyNot:
        if not self._could_serve(tool):
            return WhyNot(tool=tool, known=False)
        if tool in self.exclusions.returned:
            return WhyNot(tool=tool, known=True, would_unlock=((),))  # nothing has to be added
        excluded = self.exclusions.of(tool)
        if tool in self.exclusions.selected:
            return WhyNot(tool=tool, known=True, blocked_by=tuple(reason for _, reason in excluded))
        if monotonic() > self.deadline:
            return WhyNot(tool=tool, known=True, blocked_by=("there was no time left to look",), complete=False)
        reasons = [f"{phase}: {reason}" for phase, reason in excluded]
        if not reasons:  # nothing speaks for it
            reasons = [*self._stops(tool), *(f"exclusion: {one}" for one in self.exclusions.policy_reasons(tool))]
        named = bool(self.lookup.rows("named", 1, tool))
        ways: Ways = self._unlocking.ways(tool, named)
        return WhyNot(
            tool=tool,
            known=True,
            blocked_by=tuple(dict.fromkeys(reasons))[:MOST_REASONS],
            would_unlock=ways.sets,
            complete=ways.complete,
        )

    @cached_property
    def _unlocking(self) -> Unlocking:
        return Unlocking(self.evaluation, self.sight, self.prover, self.deadline)

    # --- could it serve the intent? --------------------------------------------------------------------------------

    def _could_serve(self, tool: str) -> bool:
        """Could something speak for it under this intent, or does something that could need it?"""
        seen: set[str] = set()
        work = [tool]
        if self.exclusions.silent(tool):
            return False
        while work:
            one = work.pop()
            if one in seen or self.exclusions.silent(one):
                continue
            seen.add(one)
            if self.lookup.rows("named", 1, one) or next(self._speaking(one), None) is not None:
                return True
            work += self._needing(one)
        return False

    def _speaking(self, tool: str) -> Iterator[tuple[Shape, Row]]:
        """The rules that could speak for the tool under this intent, and what is known when they do."""
        for key in _SPEAK_FOR:
            for shape in self._shapes(key):
                if not self._applies(shape):
                    continue
                first = shape.rule.head.args[0]
                start = {} if isinstance(first, Apply) else shape.fix((0,), (tool,))
                if start is None or (isinstance(first, Variable | Apply) and not self._is_tool(tool, shape, start)):
                    continue
                yield shape, start

    def _shapes(self, key: Key) -> list[Shape]:
        """The rules for a predicate that may be spoken of, by what they say: their order in files means nothing."""
        shapes = self.prover.instances.shapes.get(key, ())
        return sorted(
            (shape for shape in shapes if not self.sight.hides(key, shape.rule.clause)),
            key=lambda shape: shape.order_text,
        )

    def _is_tool(self, tool: str, shape: Shape, start: Row) -> bool:
        """Does a rule for many tools mean this one? What no request can change has to agree."""
        if not self._is_defined(tool):
            return False
        for premise in shape.rule.premises:
            if self._is_look_up(premise) and premise.atom.key not in self._changing:
                about = any(isinstance(arg, Variable) and arg.name in start for arg in premise.atom.args)
                if about and not satisfying(self.solver, premise, start):
                    return False
        return True

    def _is_defined(self, tool: str) -> bool:
        if self.lookup.rows("macro", 2, tool):
            return True
        heads = (shape.rule.head.args[0] for shape in self.prover.instances.shapes.get(("macro", 2), ()))
        return tool in [head for head in heads if not isinstance(head, Variable | Apply)]

    @cached_property
    def _changing(self) -> set[Key]:
        """What a request can add to."""
        return changing(self.evaluation.result.program, self.evaluation.domain.profile.readable)

    def _applies(self, shape: Shape) -> bool:
        """Is the rule not for another intent, itself or through what it rests on?"""
        for premise in shape.rule.clause.premises:
            if not self._is_look_up(premise):
                continue
            if premise.atom.key == _INTENT:
                asked = self._asked_intent(shape, premise)
                if asked is not None and asked != self.intent:
                    return False
            elif not self._can_hold(premise.atom.key):
                return False
        return True

    def _asked_intent(self, shape: Shape, premise: Literal) -> object:
        term = premise.atom.args[0]
        if not isinstance(term, Variable):
            return None if isinstance(term, Apply) else term
        for other in shape.rule.clause.premises:
            if isinstance(other, Equality) and not other.negated and term in (other.left, other.right):
                value = other.right if other.left == term else other.left
                if not isinstance(value, Variable | Apply):
                    return value
        return None

    def _can_hold(self, key: Key) -> bool:
        """Is there a fact of it, or could a client state one, or could a rule for this intent derive one?"""
        known = self._applying.get(key)
        if known is None:
            self._applying[key] = True  # in a recursion nothing speaks against it
            shapes = self.prover.instances.shapes.get(key, ())
            known = not shapes or bool(self.solver.index(key, ()).get((), ())) or any(map(self._applies, shapes))
            self._applying[key] = known
        return known

    # --- where do its rules stop? ----------------------------------------------------------------------------------

    def _stops(self, tool: str) -> list[str]:
        found: list[str] = []
        for shape, start in self._speaking(tool):
            found += self._stop(shape, start, {shape.rule.head.key}, 0)
        if not found and self._needing(tool):
            return ["nothing that needs it is offered"]
        return found

    def _needing(self, tool: str) -> list[str]:
        """The tools that need it."""
        return sorted(str(row[0]) for row in rows_with(self.evaluation.result, ("requires", 2), tool, 1))

    def _stop(self, shape: Shape, start: Row, seen: set[Key], depth: int) -> Iterator[str]:
        """Where one rule stops, and why there is nothing for the premise that stops it."""
        place, row = furthest(self.solver, shape, start, MOST_ROWS)
        if place == len(shape.rule.premises):
            yield f"{self._name(shape.rule.head.predicate)} holds, but not as it is needed"
            return
        premise = shape.as_written(place)
        yield self._words(shape, premise)
        if not self._is_look_up(premise) or self.sight.hides(premise.atom.key) or depth == DEEPEST:
            return
        key = premise.atom.key
        if key in seen:
            return
        for below in self._shapes(key):
            if not self._applies(below):
                continue
            known = [i for i in below.fixable if _value(premise, i, row) is not None]
            begin = below.fix(known, [_value(premise, i, row) for i in known])
            if begin is not None:
                yield from self._stop(below, begin, seen | {key}, depth + 1)

    def _is_look_up(self, premise: Premise) -> TypeGuard[Literal]:
        return isinstance(premise, Literal) and not premise.negated and not premise.atom.predicate.startswith(":")

    def _words(self, shape: Shape, premise: Premise) -> str:
        head = self._name(shape.rule.head.predicate)
        if isinstance(premise, Equality) or premise.atom.predicate.startswith(":"):
            return f"{head} asks for other values"
        key = premise.atom.key
        if self.sight.hides(key):
            return f"{head} needs something that is not shown"
        name = self._name(key[0])
        if premise.negated:
            return f"{head} is held back by {name}"
        there = bool(self.solver.index(key, ()).get((), ()))
        return f"{head} needs {name}, and {'no such fact fits' if there else 'there is no such fact'}"

    def _name(self, predicate: str) -> str:
        return self.sight.text(predicate)


def _value(premise: Literal, position: int, row: Row) -> object:
    """What is known of an argument."""
    term = premise.atom.args[position]
    if isinstance(term, Variable):
        return row.get(term.name)
    return None if isinstance(term, Apply) else term
