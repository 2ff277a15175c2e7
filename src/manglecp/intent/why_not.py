"""Why a tool is not in the response: ``options["x-why_not"]``.

Only tools that could serve the intent are explained. An unknown name, a tool of another intent and a tool that policy
hides from the caller get the same answer, so that the option does not disclose which tools exist. For each rule that
could select the tool, the first failing premise is named, recursively, without rule texts and values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

from manglecp.intent.composition import Composer, expired
from manglecp.intent.definition import AmbiguousFlaw
from manglecp.intent.redaction import Visibility
from manglecp.intent.value_lint import changeable_predicates
from manglecp.mangle import Fact, Key, Row
from manglecp.mangle.explain import ANY_NAME, ANYTHING, Probe, Shape, Unlocked
from manglecp.mangle.syntax import Apply, Equality, Literal, Premise, Variable
from manglecp.wire.messages import WhyNot

if TYPE_CHECKING:
    from manglecp.intent.evaluation import IntentEvaluation, Lookup


OUTPUT: Final = "output"  # the phase that leaves out selected tools


class Exclusions:
    """Reasons of one evaluation whose response has the tools ``returned``."""

    def __init__(self, evaluation: IntentEvaluation, visibility: Visibility, returned: Collection[str]) -> None:
        self.evaluation = evaluation
        self.lookup: Lookup = evaluation.lookup
        self.visibility = visibility
        self.returned = returned
        self.selected = {one.tool: one.score for one in evaluation.selected}
        self.disclosed_from = evaluation.domain.pack.settings.disclosure.minimal
        constraints = evaluation.request.payload.constraints
        self.narrow = (constraints.max_tools_returned, constraints.max_tokens_budget) != (None, None)

    def all(self) -> list[tuple[str, str, str]]:
        tools = {str(row[0]) for row in self.lookup.all("excluded", 3)} | self.selected.keys()
        return [(tool, *why) for tool in sorted(tools) for why in self.of(tool)]

    def of(self, tool: str) -> list[tuple[str, str]]:
        """Return phases and reasons, sorted; empty if the tool is returned, unknown or hidden."""
        if self.is_hidden(tool) or tool in self.returned:
            return []
        if tool in self.selected:
            return [(OUTPUT, self._left_out(tool))]
        found: set[tuple[str, str]] = set()
        for _, phase, reason in self.lookup.rows("excluded", 3, tool):
            if phase == "exclusion":
                for _, kind, why in self.lookup.rows("barred_by", 3, tool):
                    absent = kind == "capability"
                    found.add(("exclusion", "an action that it needs does not exist" if absent else str(why)))
            else:
                found.add((str(phase), self._about_others(tool, str(reason))))
        return [(phase, self.visibility.text(reason)) for phase, reason in sorted(found)]

    def is_hidden(self, tool: str) -> bool:
        """Return whether policy excludes the tool and the caller may not see policy."""
        return not self.visibility.explains_policy and bool(self.policy_reasons(tool))

    def policy_reasons(self, tool: str) -> list[str]:
        rows = self.lookup.rows
        found = {str(reason) for _, reason in rows("prohibited", 2, tool)}
        if self.lookup.all("permitted_only", 0) and not rows("permitted", 1, tool):
            found.add("not permitted")
        for _, action in rows("may_run", 2, tool):
            found |= {str(reason) for _, reason in rows("effect_denied", 2, action)}
        return [self.visibility.text(reason) for reason in sorted(found)]

    def _about_others(self, tool: str, reason: str) -> str:
        needed = (str(row[1]) for row in self.lookup.rows("requires", 2, tool))
        if any(name in reason and self.is_hidden(name) for name in needed):
            return "needs a tool that is not available"
        return reason

    def _left_out(self, tool: str) -> str:
        if self.selected[tool] < self.disclosed_from:
            return "its score is below what is disclosed"
        if expired(self.evaluation, tool):
            return "it is no longer valid"
        flaw = Composer(self.evaluation).all([tool])[1].get(tool)
        if isinstance(flaw, AmbiguousFlaw):
            return self.visibility.text(flaw.message)
        if self.narrow:
            return "there is no room for it within max_tools_returned and max_tokens_budget"
        return "it could not be composed"


MAX_SETS: Final = 8
Sets: TypeAlias = tuple[tuple[dict[str, Any], ...], ...]  # sets of facts in wire form


class UnlockSearch:
    """Searches facts that a client could state to get a tool. Every set that is returned was evaluated.

    The search is restricted to predicates that clients may state and the selection reads without policy, and to values
    that the caller may know (:class:`manglecp.mangle.explain.candidates.Assertable`).
    """

    def __init__(self, evaluation: IntentEvaluation, visibility: Visibility, probe: Probe, deadline: float) -> None:
        self.evaluation = evaluation
        self.visibility = visibility
        self.probe = probe
        self.deadline = deadline
        self.rules = [
            rule for rule in evaluation.result.program.rules if not visibility.hides(rule.head.key, rule.clause)
        ]
        self.over = self._readable_from(("offered", 1))

    def ways(self, tool: str, named: bool) -> tuple[Sets, bool]:
        """Return sets of facts that unlock the tool, and whether there are no others of that size.

        ``named`` if a rule already selects the tool.
        """
        offered = Fact("offered", (tool,))
        if not named:
            found = self._search(Fact("named", (tool,)))
            good = [one for one in found.sets if self.probe.holds_with(offered, one, self.deadline)]
            if good or not found.sets:  # what is not named is not offered either
                return self._to_wire(good, found.complete and len(good) == len(found.sets))
        found = self._search(offered)
        return self._to_wire(found.sets, found.complete)

    def _search(self, goal: Fact) -> Unlocked:
        # A local caller has access to the server's files.
        readable = self.evaluation.identity.trust == "local" and self.visibility.explains_policy
        session = self.evaluation.session
        return self.probe.unlock(goal, self.rules, session, self.over, self.deadline, readable=readable)

    def _readable_from(self, goal: Key) -> frozenset[Key]:
        """Return the predicates that clients may state and the goal reads, other than through hidden rules."""
        found, work = {goal}, [goal]
        while work:
            head = work.pop()
            for rule in self.rules:
                if rule.head.key == head:
                    keys = {p.atom.key for p in rule.clause.premises if isinstance(p, Literal)} - found
                    new = [key for key in keys if not self.visibility.hides(key)]
                    found.update(new)
                    work += new
        readable = self.evaluation.domain.profile.readable
        return frozenset(key for key in found if key[0] in readable) & self.evaluation.result.program.predicates.keys()

    def _to_wire(self, sets: Iterable[Collection[Fact]], complete: bool) -> tuple[Sets, bool]:
        wildcards = (ANYTHING, str(ANY_NAME))
        encoded: list[tuple[dict[str, Any], ...]] = []
        for facts in sets:
            written = tuple(self.visibility.wire(fact) for fact in facts)
            if written != tuple(self.evaluation.domain.profile.write(fact) for fact in facts):
                complete = False  # it has redacted values
                continue
            encoded.append(
                tuple({**fact, "args": [None if arg in wildcards else arg for arg in fact["args"]]} for fact in written)
            )
        encoded = [
            one
            for i, one in enumerate(encoded)
            if one not in encoded[:i] and not any(_covers(other, one) for other in encoded if other != one)
        ]
        return tuple(encoded[:MAX_SETS]), complete and len(encoded) <= MAX_SETS


def _covers(general: tuple[dict[str, Any], ...], special: tuple[dict[str, Any], ...]) -> bool:
    return len(general) == len(special) and all(map(_fact_covers, general, special))


def _fact_covers(general: dict[str, Any], special: dict[str, Any]) -> bool:
    if general["pred"] != special["pred"] or general.get("t") != special.get("t"):
        return False
    return all(g is None or g == s for g, s in zip(general["args"], special["args"], strict=True))


MAX_REASONS: Final = 16
MAX_ROWS: Final = 2_000  # limit of rows in the search for the furthest premise
MAX_DEPTH: Final = 4  # limit of nested derivations

_SELECTING: Final[tuple[Key, ...]] = (("mandatory", 1), ("relevant", 2))
_INTENT: Final[Key] = ("intent", 1)


class WhyNots:
    def __init__(
        self, evaluation: IntentEvaluation, visibility: Visibility, exclusions: Exclusions, deadline: float
    ) -> None:
        self.evaluation = evaluation
        self.visibility = visibility
        self.exclusions = exclusions
        self.lookup = exclusions.lookup
        self.deadline = deadline
        self.intent = evaluation.request.payload.intent.name
        self.probe = evaluation.result.probe()
        self._applying: dict[Key, bool] = {}

    def of(self, names: Iterable[str]) -> tuple[WhyNot, ...]:
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
        if not reasons:  # no rule selects it
            reasons = [*self._stops(tool), *(f"exclusion: {one}" for one in self.exclusions.policy_reasons(tool))]
        named = bool(self.lookup.rows("named", 1, tool))
        sets, complete = self._unlock_search.ways(tool, named)
        return WhyNot(
            tool=tool,
            known=True,
            blocked_by=tuple(dict.fromkeys(reasons))[:MAX_REASONS],
            would_unlock=sets,
            complete=complete,
        )

    @cached_property
    def _unlock_search(self) -> UnlockSearch:
        return UnlockSearch(self.evaluation, self.visibility, self.probe, self.deadline)

    def _could_serve(self, tool: str) -> bool:
        """Return whether a rule could select the tool, or a dependent of it, under this intent."""
        seen: set[str] = set()
        work = [tool]
        if self.exclusions.is_hidden(tool):
            return False
        while work:
            one = work.pop()
            if one in seen or self.exclusions.is_hidden(one):
                continue
            seen.add(one)
            if self.lookup.rows("named", 1, one) or next(self._selecting_rules(one), None) is not None:
                return True
            work += self._needing(one)
        return False

    def _selecting_rules(self, tool: str) -> Iterator[tuple[Shape, Row]]:
        for key in _SELECTING:
            for shape in self._shapes(key):
                if not self._applies(shape):
                    continue
                first = shape.rule.head.args[0]
                start = {} if isinstance(first, Apply) else shape.fix((0,), (tool,))
                if start is None or (isinstance(first, Variable | Apply) and not self._is_tool(tool, shape, start)):
                    continue
                yield shape, start

    def _shapes(self, key: Key) -> list[Shape]:
        """Return the visible rules of a predicate in an order independent of files."""
        shapes = self.probe.shapes(key)
        return sorted(
            (shape for shape in shapes if not self.visibility.hides(key, shape.rule.clause)),
            key=lambda shape: shape.sort_key,
        )

    def _is_tool(self, tool: str, shape: Shape, start: Row) -> bool:
        """Return whether a rule with a variable tool can apply to this one: static premises have to hold."""
        if not self._is_defined(tool):
            return False
        for premise in shape.rule.premises:
            if self._is_look_up(premise) and premise.atom.key not in self._changing:
                about = any(isinstance(arg, Variable) and arg.name in start for arg in premise.atom.args)
                if about and not self.probe.satisfies(premise, start):
                    return False
        return True

    def _is_defined(self, tool: str) -> bool:
        if self.lookup.rows("macro", 2, tool):
            return True
        heads = (shape.rule.head.args[0] for shape in self.probe.shapes(("macro", 2)))
        return tool in [head for head in heads if not isinstance(head, Variable | Apply)]

    @cached_property
    def _changing(self) -> set[Key]:
        return changeable_predicates(self.evaluation.result.program, self.evaluation.domain.profile.readable)

    def _applies(self, shape: Shape) -> bool:
        """Return whether the rule can apply to this intent, also through the predicates it reads."""
        for premise in shape.rule.clause.premises:
            if not self._is_look_up(premise):
                continue
            if premise.atom.key == _INTENT:
                required = self._required_intent(shape, premise)
                if required is not None and required != self.intent:
                    return False
            elif not self._can_hold(premise.atom.key):
                return False
        return True

    def _required_intent(self, shape: Shape, premise: Literal) -> object:
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
        """Return whether a fact exists, a client could state one, or a rule for this intent could derive one."""
        known = self._applying.get(key)
        if known is None:
            self._applying[key] = True  # assumed within a recursion
            shapes = self.probe.shapes(key)
            known = not shapes or self.probe.has_facts(key) or any(map(self._applies, shapes))
            self._applying[key] = known
        return known

    def _stops(self, tool: str) -> list[str]:
        found: list[str] = []
        for shape, start in self._selecting_rules(tool):
            found += self._stop(shape, start, {shape.rule.head.key}, 0)
        if not found and self._needing(tool):
            return ["nothing that needs it is offered"]
        return found

    def _needing(self, tool: str) -> list[str]:
        return sorted(str(row[0]) for row in self.evaluation.result.find(("requires", 2), tool, 1))

    def _stop(self, shape: Shape, start: Row, seen: set[Key], depth: int) -> Iterator[str]:
        place, row = self.probe.furthest(shape, start, MAX_ROWS)
        if place == len(shape.rule.premises):
            yield f"{self.visibility.text(shape.rule.head.predicate)} holds, but not as it is needed"
            return
        premise = shape.as_written(place)
        yield self._describe(shape, premise)
        if not self._is_look_up(premise) or self.visibility.hides(premise.atom.key) or depth == MAX_DEPTH:
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

    def _describe(self, shape: Shape, premise: Premise) -> str:
        head = self.visibility.text(shape.rule.head.predicate)
        if isinstance(premise, Equality) or premise.atom.predicate.startswith(":"):
            return f"{head} asks for other values"
        key = premise.atom.key
        if self.visibility.hides(key):
            return f"{head} needs something that is not shown"
        name = self.visibility.text(key[0])
        if premise.negated:
            return f"{head} is held back by {name}"
        has_facts = self.probe.has_facts(key)
        return f"{head} needs {name}, and {'no such fact fits' if has_facts else 'there is no such fact'}"


def _value(premise: Literal, position: int, row: Row) -> object:
    term = premise.atom.args[position]
    if isinstance(term, Variable):
        return row.get(term.name)
    return None if isinstance(term, Apply) else term
