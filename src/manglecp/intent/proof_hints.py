"""Proof hints: why these tools were selected, read from a finished evaluation.

For every tool of the response there is one proof: its leaves are the supporting facts, its rules the rule chain, its
shape the tree. Predicates that only the kernel uses are skipped, and absences are left out, because most concern
policy. Trees are bounded; they are cut furthest from the root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from manglecp.base.source import Trust
from manglecp.intent.definition import Definition
from manglecp.intent.redaction import CUT, SELECTION, Visibility, trust_of
from manglecp.intent.why_not import Exclusions, WhyNots
from manglecp.mangle import Fact, Key
from manglecp.mangle.explain import Node, RuleStatus
from manglecp.mangle.syntax import Literal as LiteralPremise
from manglecp.wire.messages import (
    UNSET,
    Derivation,
    DormantRule,
    Exclusion,
    Options,
    ProofHints,
    ProofTree,
    RuleCoverage,
    UnmatchedFact,
)

if TYPE_CHECKING:
    from manglecp.intent.evaluation import IntentEvaluation, Selected


# Rule coverage counts all rules, including the kernel's; fired, dormant and inapplicable rules add up to the total.
# Details are limited to the pack's own rules, by predicate names.


def rule_coverage(evaluation: IntentEvaluation) -> RuleCoverage:
    """Return counts of all rules, and details of the dormant ones that the caller may see."""
    coverage = evaluation.result.explainer.coverage(selector="intent")
    visibility = Visibility(evaluation.domain, evaluation.identity)
    details = [_dormant(rule, visibility) for rule in coverage.rules if _is_visible(rule, visibility)]
    return RuleCoverage(
        total_rules=len(coverage.rules),
        rules_fired=coverage.count("fired"),
        rules_dormant=coverage.count("partially_alive", "dead"),
        rules_inapplicable=coverage.count("inapplicable"),
        dormant_details=tuple(sorted(details, key=lambda one: (one.rule, one.status, one.missing_predicates))),
    )


def _is_visible(covered: RuleStatus, visibility: Visibility) -> bool:
    clause = covered.rule.clause
    if covered.status not in ("partially_alive", "dead") or trust_of(clause) is Trust.KERNEL:
        return False
    return not visibility.hides(clause.head.key, clause)


def _dormant(covered: RuleStatus, visibility: Visibility) -> DormantRule:
    clause = covered.rule.clause
    arities = {premise.atom.key for premise in clause.premises if hasattr(premise, "atom")}
    shown = [name for name in covered.missing if not any(visibility.hides(key) for key in arities if key[0] == name)]
    return DormantRule(
        rule=visibility.text(covered.rule.head),
        missing_predicates=tuple(visibility.text(name) for name in shown),
        status="dead" if covered.status == "dead" else "partially_alive",
    )


MAX_NODES: Final = 100
MAX_DEPTH: Final = 24
MAX_SUPPORTING: Final = 100

_ABOUT_CLIENT: Final = frozenset({"client", "client_permission", "client_trust"})
_REPEATS: Final = frozenset({"core"})  # repeats the proof of the candidate

_REASONS: Final = {
    "no rule mentions it": "No rules reference this predicate",
    "nothing joined": "Rules reference this predicate, but none of them could use the fact",
}

NodeType = Literal["server", "session", "derived"]


def hints_wanted(options: Options) -> bool:
    return options.include_proof_hints or bool(options.why_not)


class Hints:
    def __init__(self, evaluation: IntentEvaluation, deadline: float) -> None:
        self.evaluation = evaluation
        self.result = evaluation.result
        self.visibility = Visibility(evaluation.domain, evaluation.identity)
        self.session = frozenset(evaluation.session)
        self.deadline = deadline
        self._derivations: dict[str, Derivation] = {}

    def about(self, definitions: Sequence[Definition]) -> ProofHints:
        exclusions = Exclusions(self.evaluation, self.visibility, {definition.tool for definition in definitions})
        names = self.evaluation.request.payload.options.why_not
        return ProofHints(
            derivations=self.derivations(definitions),
            excluded=tuple(
                Exclusion(candidate=self.visibility.text(tool), excluded_by=phase, reason=reason)
                for tool, phase, reason in exclusions.all()
            ),
            unmatched_facts=tuple(self._unmatched()),
            why_not=WhyNots(self.evaluation, self.visibility, exclusions, self.deadline).of(names) if names else UNSET,
        )

    def derivations(self, definitions: Sequence[Definition]) -> tuple[Derivation, ...]:
        selected = {one.tool: one for one in self.evaluation.selected}
        for one in definitions:
            if one.tool not in self._derivations:
                self._derivations[one.tool] = self._derivation(one.macro_id, selected[one.tool])
        return tuple(self._derivations[one.tool] for one in definitions)

    def _derivation(self, macro_id: str, selected: Selected) -> Derivation:
        goal = Fact("final_selected", (selected.tool, selected.score, selected.phase))
        proof = self.result.explainer.explain(goal)
        assert proof is not None  # it was selected
        seen = self._preorder(proof.root)
        return Derivation(
            macro_id=macro_id,
            selected_by=selected.phase,
            score=selected.score,
            supporting_facts=tuple(self._supporting(seen)),
            rule_chain=tuple(dict.fromkeys(self.visibility.text(_predicate(n)) for n in seen if n.origin == "derived")),
            tree=self._tree(proof.root),
        )

    def _supporting(self, nodes: Iterable[Node]) -> list[dict[str, object]]:
        facts = {node.ground for node in nodes if node.ground is not None and self._is_own(node)}
        return [self.visibility.wire(fact) for fact in sorted(facts, key=lambda fact: fact.text)[:MAX_SUPPORTING]]

    def _is_own(self, node: Node) -> bool:
        return node.origin == "session" and node.ground is not None and self._readable(node.ground)

    def _readable(self, fact: Fact) -> bool:
        return fact.predicate in self.evaluation.domain.profile.readable

    def _children(self, node: Node) -> list[Node]:
        """Return the shown premises of a node; skipped premises are replaced by theirs."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        work = list(reversed(node.premises))
        while work:
            premise = work.pop()
            if premise in seen or premise.ground is None or premise.ground.predicate in _REPEATS:
                continue
            seen.add(premise)
            clause = None if premise.rule is None else premise.rule.clause
            if self.visibility.hides(premise.ground.key, clause):
                continue
            if clause is not None and trust_of(clause) is Trust.KERNEL and premise.ground.predicate not in SELECTION:
                work += reversed(premise.premises)
            else:
                found[premise] = None
        return list(found)

    def _preorder(self, root: Node) -> list[Node]:
        found: dict[Node, None] = {}
        work = [root]
        while work:
            node = work.pop()
            if node not in found:
                found[node] = None
                work += reversed(self._children(node))
        return list(found)

    def _tree(self, root: Node) -> ProofTree:
        """Build the tree breadth-first, so that what is cut is furthest from the selection."""
        levels: list[tuple[Node, int, list[int]]] = [(root, 1, [])]
        cut: set[int] = set()
        for place, (node, depth, below) in enumerate(levels):  # it grows
            children = self._distinct(self._children(node))
            if children and (depth == MAX_DEPTH or len(levels) + len(children) > MAX_NODES):
                cut.add(place)
                continue
            for child in children:
                below.append(len(levels))
                levels.append((child, depth + 1, []))
        trees: dict[int, ProofTree] = {}
        for place in reversed(range(len(levels))):
            node, _, below = levels[place]
            children_trees = tuple(trees.pop(child) for child in below)
            if place in cut:
                children_trees = (ProofTree(fact=CUT, type="derived"),)
            trees[place] = ProofTree(fact=self._text(node), type=self._type(node), children=children_trees)
        return trees[0]

    def _distinct(self, nodes: list[Node]) -> list[Node]:
        found: dict[object, Node] = {}
        for node in nodes:
            found.setdefault((self._text(node), self._type(node)) if not node.premises else node, node)
        return list(found.values())

    def _text(self, node: Node) -> str:
        assert node.ground is not None  # absences are left out
        return self.visibility.fact(node.ground, self._is_own(node))

    def _type(self, node: Node) -> NodeType:
        if node.origin == "derived":
            return "derived"
        if node.origin == "session" and _predicate(node) not in _ABOUT_CLIENT:
            return "session"
        return "server"

    def _unmatched(self) -> list[UnmatchedFact]:
        """Return one entry per predicate and reason.

        Facts that hidden rules read are left out: whether those rules used them must not be disclosed.
        """
        hidden = self._hidden_premises()
        own = [fact for fact in self.evaluation.session if self._readable(fact) and fact.key not in hidden]
        counts = Counter((fact.fact.predicate, _REASONS[fact.reason]) for fact in self.result.explainer.unused(own))
        return [
            UnmatchedFact(pred=pred, reason=reason if count == 1 else f"{reason} ({count} facts)")
            for (pred, reason), count in sorted(counts.items())
        ]

    def _hidden_premises(self) -> set[Key]:
        return {
            premise.atom.key
            for rule in self.result.program.rules
            if self.visibility.hides(rule.head.key, rule.clause)
            for premise in rule.clause.premises
            if isinstance(premise, LiteralPremise)
        }


def _predicate(node: Node) -> str:
    return "" if node.ground is None else node.ground.predicate
