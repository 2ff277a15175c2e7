"""Why a tool is not in the response: ``options["x-why_not"]``.

Only tools that could serve the intent are explained. An unknown name, a tool of another intent and a tool that policy
hides from the caller get the same answer, so that the option does not disclose which tools exist. Exception: if policy
has public reasons for the exclusion of a tool, these are the answer. For each rule that could select the tool, the
first failing premise is named, recursively, without rule texts and values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeGuard

from manglecp.intent.composition import SELECTION, Composer, declared_end
from manglecp.intent.definition import AmbiguousFlaw
from manglecp.intent.redaction import Visibility
from manglecp.intent.value_lint import changeable_predicates
from manglecp.mangle import Fact, Key, Row, closure
from manglecp.mangle.explain import ANY_NAME, ANYTHING, DeadlineExceeded, Explainer, Shape, UnlockResult
from manglecp.mangle.syntax import Apply, Equality, Literal, Premise, Variable
from manglecp.wire.messages import WhyNot

if TYPE_CHECKING:
    from manglecp.intent.evaluation import IntentEvaluation


OUTPUT: Final = "output"  # the phase that leaves out selected tools


class Exclusions:
    """Why tools are not in the response to one evaluation; ``returned`` are the tools in the response."""

    def __init__(self, evaluation: IntentEvaluation, visibility: Visibility, returned: Collection[str]) -> None:
        self.evaluation = evaluation
        self.result = evaluation.result
        self.visibility = visibility
        self.returned = returned
        self.scores = {selected.tool: selected.score for selected in evaluation.selected}
        self.min_score = evaluation.domain.pack.settings.disclosure.minimal
        constraints = evaluation.request.payload.constraints
        self.is_limited = (constraints.max_tools_returned, constraints.max_tokens_budget) != (None, None)

    def all(self) -> list[tuple[str, str, str]]:
        """Return tool, phase and reason for each candidate that is not returned; if hidden, only public reasons."""
        tools = {str(row[0]) for row in self.result.rows(("excluded", 3))} | self.scores.keys()
        return [(tool, *why) for tool in sorted(tools) for why in self.of(tool)]

    def of(self, tool: str) -> list[tuple[str, str]]:
        """Return phases and reasons, sorted: public reasons of a hidden tool, none of a returned or unknown tool."""
        if self.is_hidden(tool):
            is_named = bool(self.result.find(("kernel.named", 1), tool))  # a candidate, or a dependency of one
            reasons = sorted(str(text) for _, text in self.result.find(("public_reason", 2), tool))
            return [("exclusion", self.visibility.text(text)) for text in reasons if is_named]
        if tool in self.returned:
            return []
        if tool in self.scores:
            return [(OUTPUT, self._omission_reason(tool))]
        found: set[tuple[str, str]] = set()
        for _, phase, reason in self.result.find(("excluded", 3), tool):
            if phase == "exclusion":
                for _, kind, bar in self.result.find(("kernel.barred_by", 3), tool):
                    is_absent = kind == "capability"  # ``bar`` names the missing action, which is not disclosed
                    found.add(("exclusion", "an action that it needs does not exist" if is_absent else str(bar)))
            else:
                found.add((str(phase), self._without_hidden_tools(tool, str(reason))))
        return [(phase, self.visibility.text(reason)) for phase, reason in sorted(found)]

    def is_hidden(self, tool: str) -> bool:
        """Return whether policy excludes the tool and the caller may not see policy."""
        return not self.visibility.explains_policy and bool(self.policy_reasons(tool))

    def policy_reasons(self, tool: str) -> list[str]:
        """Return why policy excludes the tool, even if it was no candidate; empty if policy permits it."""
        find = self.result.find
        reasons = {str(reason) for _, reason in find(("prohibited", 2), tool)}
        if self.result.rows(("permitted_only", 0)) and not find(("permitted", 1), tool):
            reasons.add("not permitted")
        for _, action in find(("kernel.may_run", 2), tool):
            reasons |= {str(reason) for _, reason in find(("effect_denied", 2), action)}
        return [self.visibility.text(reason) for reason in sorted(reasons)]

    def _without_hidden_tools(self, tool: str, reason: str) -> str:
        dependencies = (str(row[1]) for row in self.result.find(("requires", 2), tool))
        if any(name in reason and self.is_hidden(name) for name in dependencies):
            return "needs a tool that is not available"
        return reason

    def _omission_reason(self, tool: str) -> str:
        """Return why a selected tool is not in the response."""
        if self.scores[tool] < self.min_score:
            return "its score is below what is disclosed"
        end = declared_end(self.result.select(tool, SELECTION), self.evaluation.now)
        if end is not None and end < self.evaluation.now:
            return "it is no longer valid"
        flaw = Composer(self.evaluation.domain, self.result).compose_all([tool])[1].get(tool)
        if isinstance(flaw, AmbiguousFlaw):
            return self.visibility.text(flaw.message)
        if self.is_limited:
            return "there is no room for it within max_tools_returned and max_tokens_budget"
        return "it could not be composed"


MAX_SETS: Final = 8  # sets of facts that unlock one tool
FactSet: TypeAlias = tuple[dict[str, Any], ...]  # facts in wire form; a null argument stands for any value


class UnlockingSets(NamedTuple):
    sets: tuple[FactSet, ...]
    complete: bool  # whether no other set of facts would unlock the tool


class UnlockSearch:
    """Searches sets of facts that a client could state to get a tool. Every set that is returned was evaluated.

    The search is restricted to predicates that clients may state and visible rules of the selection read, and to values
    that the caller may know (:class:`manglecp.mangle.explain.candidates.CallerCandidates`).
    """

    def __init__(self, evaluation: IntentEvaluation, visibility: Visibility) -> None:
        self.evaluation = evaluation
        self.visibility = visibility
        self.explainer = evaluation.result.explainer
        rules = evaluation.result.program.rules
        self.rules = [rule for rule in rules if not visibility.hides(rule.head.key, rule.clause)]
        self.assertable = self._assertable_for(("offered", 1))

    def find(self, tool: str, is_named: bool) -> UnlockingSets:
        """Return sets of facts that unlock the tool; ``is_named``: the tool is a candidate or a dependency already."""
        goal = Fact("offered", (tool,))
        if not is_named:
            # Every offered tool is named, and this search is faster than that for ``offered``.
            naming_result = self._search(Fact("kernel.named", (tool,)))
            unlocking = [facts for facts in naming_result.sets if self.explainer.holds_with(goal, facts)]
            if unlocking or not naming_result.sets:  # a tool that cannot be named cannot be offered
                return self._to_wire(unlocking, naming_result.complete and len(unlocking) == len(naming_result.sets))
        unlock_result = self._search(goal)
        return self._to_wire(unlock_result.sets, unlock_result.complete)

    def _search(self, goal: Fact) -> UnlockResult:
        # A local caller can read the server's files, so the search may use every value of the rules and facts.
        readable = self.evaluation.identity.trust == "local" and self.visibility.explains_policy
        session = self.evaluation.session
        return self.explainer.unlock(goal, self.rules, session, self.assertable, readable=readable)

    def _assertable_for(self, goal: Key) -> frozenset[Key]:
        """Return the predicates that clients may state and the goal reads, other than through hidden rules."""
        reads: dict[Key, set[Key]] = {}
        for rule in self.rules:
            visible = {key for key in rule.clause.reads if not self.visibility.hides(key)}
            reads.setdefault(rule.head.key, set()).update(visible)
        read_keys, names = closure([goal], reads), self.evaluation.domain.profile.assertable
        return frozenset(key for key in read_keys if key[0] in names) & self.evaluation.result.program.predicates.keys()

    def _to_wire(self, sets: Iterable[Collection[Fact]], complete: bool) -> UnlockingSets:
        """Encode at most MAX_SETS sets, without redacted sets and special cases of another set."""
        wildcards = (ANYTHING, str(ANY_NAME))
        encoded: list[FactSet] = []
        for facts in sets:
            redacted_facts = tuple(self.visibility.wire(fact) for fact in facts)
            if redacted_facts != tuple(self.evaluation.domain.profile.write(fact) for fact in facts):
                complete = False  # a fact with a redacted value unlocks nothing
                continue
            wire_args = ([None if arg in wildcards else arg for arg in fact["args"]] for fact in redacted_facts)
            encoded.append(tuple({**fact, "args": args} for fact, args in zip(redacted_facts, wire_args, strict=True)))
        encoded = [
            facts
            for index, facts in enumerate(encoded)
            if facts not in encoded[:index] and not any(_covers(other, facts) for other in encoded if other != facts)
        ]
        return UnlockingSets(tuple(encoded[:MAX_SETS]), complete and len(encoded) <= MAX_SETS)


def _covers(general: FactSet, special: FactSet) -> bool:
    return len(general) == len(special) and all(map(_fact_covers, general, special))


def _fact_covers(general: dict[str, Any], special: dict[str, Any]) -> bool:
    if general["pred"] != special["pred"] or general.get("t") != special.get("t"):
        return False
    pairs = zip(general["args"], special["args"], strict=True)
    return all(pattern is None or pattern == value for pattern, value in pairs)


MAX_REASONS: Final = 16
MAX_ROWS: Final = 2_000  # rows that one search for the first failing premise reads
MAX_DEPTH: Final = 4  # levels of nested rules whose failing premises are named
_SELECTING: Final[tuple[Key, ...]] = (("mandatory", 1), ("relevant", 2))
_INTENT: Final[Key] = ("intent", 1)


class WhyNots:
    """Explains missing tools. A ``Shape`` is a rule with what its head can bind; a ``Row`` binds variables."""

    def __init__(
        self, evaluation: IntentEvaluation, visibility: Visibility, exclusions: Exclusions, deadline: float
    ) -> None:
        self.evaluation = evaluation
        self.visibility = visibility
        self.exclusions = exclusions
        self.result = evaluation.result
        self.deadline = deadline
        self.intent = evaluation.request.payload.intent.name
        self.explainer: Explainer = evaluation.result.explainer
        self._possible: dict[Key, bool] = {}  # memoised results of _can_hold

    def of(self, names: Iterable[str]) -> tuple[WhyNot, ...]:
        self.explainer.set_deadline(None)  # no deadline: whether a tool is known must not depend on the load
        known = {tool: self._could_serve(tool) or bool(self.exclusions.of(tool)) for tool in dict.fromkeys(names)}
        self.explainer.set_deadline(self.deadline)
        return tuple(self._explain(tool) if known[tool] else WhyNot(tool=tool, known=False) for tool in known)

    def _explain(self, tool: str) -> WhyNot:
        if tool in self.exclusions.returned:
            return WhyNot(tool=tool, known=True, would_unlock=((),))  # the empty set of facts unlocks the tool
        excluded = self.exclusions.of(tool)
        if tool in self.exclusions.scores or self.exclusions.is_hidden(tool):
            return WhyNot(tool=tool, known=True, blocked_by=tuple(reason for _, reason in excluded))
        try:
            if monotonic() > self.deadline:
                raise DeadlineExceeded(0, 0, "seconds")
            return self._search(tool, excluded)
        except DeadlineExceeded:
            return WhyNot(tool=tool, known=True, blocked_by=("there was no time left to look",), complete=False)

    def _search(self, tool: str, excluded: list[tuple[str, str]]) -> WhyNot:
        reasons = [f"{phase}: {reason}" for phase, reason in excluded]
        if not reasons:  # not a candidate: no rule selects the tool
            policy = (f"exclusion: {reason}" for reason in self.exclusions.policy_reasons(tool))
            reasons = [*self._failing_premises(tool), *policy]
        is_named = bool(self.result.find(("kernel.named", 1), tool))
        unlocking = self._unlock_search.find(tool, is_named)
        return WhyNot(
            tool=tool,
            known=True,
            blocked_by=tuple(dict.fromkeys(reasons))[:MAX_REASONS],
            would_unlock=unlocking.sets,
            complete=unlocking.complete,
        )

    @cached_property
    def _unlock_search(self) -> UnlockSearch:
        return UnlockSearch(self.evaluation, self.visibility)

    def _could_serve(self, tool: str) -> bool:
        """Return whether a rule could select the tool, or a dependent of it, under this intent."""
        seen_tools: set[str] = set()
        pending = [tool]
        while pending:
            name = pending.pop()
            if name in seen_tools or self.exclusions.is_hidden(name):
                continue
            seen_tools.add(name)
            if self.result.find(("kernel.named", 1), name) or next(self._selecting_rules(name), None) is not None:
                return True
            pending += self._dependents(name)
        return False

    def _selecting_rules(self, tool: str) -> Iterator[tuple[Shape, Row]]:
        """Yield the rules that could select the tool under this intent, each with the variables that the tool binds."""
        for key in _SELECTING:
            for shape in self._shapes(key):
                if not self._applies(shape):
                    continue
                first = shape.rule.head.args[0]
                start = {} if isinstance(first, Apply) else shape.fix((0,), (tool,))
                is_general = isinstance(first, Variable | Apply)
                if start is None or (is_general and not self._can_select(shape, tool, start)):
                    continue
                yield shape, start

    def _shapes(self, key: Key) -> list[Shape]:
        """Return the visible rules of a predicate in an order independent of files."""
        visible = (shape for shape in self.explainer.shapes(key) if not self.visibility.hides(key, shape.rule.clause))
        return sorted(visible, key=lambda shape: shape.sort_key)

    def _can_select(self, shape: Shape, tool: str, start: Row) -> bool:
        """Return whether a rule for any tool can select this tool: static premises about the tool have to hold."""
        if not self._is_defined(tool):
            return False
        for premise in shape.rule.premises:
            if self._is_look_up(premise) and premise.atom.key not in self._changeable:
                is_about_tool = any(isinstance(arg, Variable) and arg.name in start for arg in premise.atom.args)
                if is_about_tool and not self.explainer.satisfies(premise, start):
                    return False
        return True

    def _is_defined(self, tool: str) -> bool:
        if self.result.find(("macro", 2), tool):
            return True
        heads = (shape.rule.head.args[0] for shape in self.explainer.shapes(("macro", 2)))
        return tool in [head for head in heads if not isinstance(head, Variable | Apply)]

    @cached_property
    def _changeable(self) -> set[Key]:
        return changeable_predicates(self.evaluation.result.program, self.evaluation.domain.profile.assertable)

    def _applies(self, shape: Shape) -> bool:
        """Return whether the rule can apply to this intent, and the predicates that it reads can hold."""
        for premise in shape.rule.clause.premises:
            if not self._is_look_up(premise):
                continue
            if premise.atom.key == _INTENT:
                required_intent = self._required_intent(shape, premise)
                if required_intent is not None and required_intent != self.intent:
                    return False
            elif not self._can_hold(premise.atom.key):
                return False
        return True

    def _required_intent(self, shape: Shape, premise: Literal) -> object:
        """Return the intent that a premise ``intent(…)`` of the rule requires; None if it may be any."""
        term = premise.atom.args[0]
        if not isinstance(term, Variable):
            return None if isinstance(term, Apply) else term
        for equality in shape.rule.clause.premises:
            if isinstance(equality, Equality) and not equality.negated and term in equality.terms:
                value = equality.right if equality.left == term else equality.left
                if not isinstance(value, Variable | Apply):
                    return value
        return None

    def _can_hold(self, key: Key) -> bool:
        """Return whether the predicate has facts, a rule for this intent, or no rule at all: clients may state it."""
        possible = self._possible.get(key)
        if possible is None:
            self._possible[key] = True  # assumed while its own rules are examined, which may be recursive
            shapes = self.explainer.shapes(key)
            possible = not shapes or self.explainer.has_facts(key) or any(map(self._applies, shapes))
            self._possible[key] = possible
        return possible

    def _failing_premises(self, tool: str) -> list[str]:
        """Describe, for each rule that could select the tool, the first premise that fails, and why."""
        reasons: list[str] = []
        for shape, start in self._selecting_rules(tool):
            reasons += self._failure(shape, start, {shape.rule.head.key}, 0)
        if not reasons and self._dependents(tool):
            return ["nothing that needs it is offered"]
        return reasons

    def _dependents(self, tool: str) -> list[str]:
        return sorted(str(row[0]) for row in self.evaluation.result.find(("requires", 2), tool, 1))

    def _failure(self, shape: Shape, start: Row, seen: set[Key], depth: int) -> Iterator[str]:
        """Describe the first failing premise of a rule and, recursively, those of the rules that could satisfy it."""
        index, row = self.explainer.furthest(shape, start, MAX_ROWS)
        if index == len(shape.rule.premises):
            yield f"{self.visibility.text(shape.rule.head.predicate)} holds, but not as it is needed"
            return
        premise = shape.as_written(index)
        yield self._describe(shape, premise)
        if not self._is_look_up(premise) or self.visibility.hides(premise.atom.key) or depth == MAX_DEPTH:
            return
        key = premise.atom.key
        if key in seen:
            return
        for deriving in self._shapes(key):
            if not self._applies(deriving):
                continue
            fixed_positions = [i for i in deriving.fixable if _value(premise, i, row) is not None]
            next_start = deriving.fix(fixed_positions, [_value(premise, i, row) for i in fixed_positions])
            if next_start is not None:
                yield from self._failure(deriving, next_start, seen | {key}, depth + 1)

    def _is_look_up(self, premise: Premise) -> TypeGuard[Literal]:
        """Return whether the premise looks up facts: not negated, not a comparison, not a built-in (``:lt``)."""
        return isinstance(premise, Literal) and not premise.negated and not premise.atom.is_builtin

    def _describe(self, shape: Shape, premise: Premise) -> str:
        head = self.visibility.text(shape.rule.head.predicate)
        if isinstance(premise, Equality) or premise.atom.is_builtin:
            return f"{head} asks for other values"
        key = premise.atom.key
        if self.visibility.hides(key):
            return f"{head} needs something that is not shown"
        name = self.visibility.text(key[0])
        if premise.negated:
            return f"{head} is held back by {name}"
        has_facts = self.explainer.has_facts(key)
        return f"{head} needs {name}, and {'no such fact fits' if has_facts else 'there is no such fact'}"


def _value(premise: Literal, position: int, row: Row) -> object:
    """Return the argument of the premise under the row; None if it is not known."""
    term = premise.atom.args[position]
    if isinstance(term, Variable):
        return row.get(term.name)
    return None if isinstance(term, Apply) else term
