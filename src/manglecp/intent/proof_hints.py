"""Proof hints: why these tools were selected, read from a finished evaluation.

Each tool of the response has one proof: its leaves become the supporting facts of the hints, its rules the rule chain,
its structure the tree. Intermediate predicates of the kernel are replaced by their premises. Negated premises are left
out, because most concern policy. Trees are bounded: a large one is cut furthest from the root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from manglecp.base.source import Trust
from manglecp.intent.definition import Definition
from manglecp.intent.redaction import CUT, SELECTION, Visibility
from manglecp.intent.run_facts import RUN_PREDICATES
from manglecp.intent.why_not import Exclusions, WhyNots
from manglecp.mangle import Fact, Key
from manglecp.mangle.explain import Coverage, Node, RuleStatus
from manglecp.wire import messages

if TYPE_CHECKING:
    from manglecp.intent.evaluation import IntentEvaluation, Selected


# Rule coverage counts all rules, including the kernel's; fired, dormant and inapplicable rules add up to the total.
# Details are limited to the pack's own rules, and name only predicates.
def rule_coverage(evaluation: IntentEvaluation) -> messages.RuleCoverage:
    """Return counts of all rules, and details of the dormant ones that the caller may see."""
    coverage = _without_run_rules(evaluation.result.explainer.coverage(selector="intent"))
    visibility = Visibility(evaluation.domain, evaluation.identity)
    details = [_dormant_rule(rule, visibility) for rule in coverage.rules if _is_detailed(rule, visibility)]
    return messages.RuleCoverage(
        total_rules=len(coverage.rules),
        rules_fired=coverage.count("fired"),
        rules_dormant=coverage.count("partially_alive", "dead"),
        rules_inapplicable=coverage.count("inapplicable"),
        dormant_details=tuple(sorted(details, key=lambda rule: (rule.rule, rule.status, rule.missing_predicates))),
    )


def _without_run_rules(coverage: Coverage) -> Coverage:
    """Mark rules about runs as inapplicable: no request has the facts that they read."""
    about_runs, rules, count = set(RUN_PREDICATES), coverage.rules, 0
    while count < len(about_runs):
        count = len(about_runs)
        is_about_run = [rule.status != "fired" and not about_runs.isdisjoint(rule.missing) for rule in rules]
        heads = [rule.rule.clause.head.predicate for rule in rules]
        other_heads = {head for head, is_about in zip(heads, is_about_run, strict=True) if not is_about}
        about_runs.update(set(heads) - other_heads)  # predicates that have only rules about runs
    return Coverage(
        tuple(replace(r, status="inapplicable") if x else r for r, x in zip(rules, is_about_run, strict=True))
    )


def _is_detailed(rule_status: RuleStatus, visibility: Visibility) -> bool:
    clause = rule_status.rule.clause
    if rule_status.status not in ("partially_alive", "dead") or clause.trust is Trust.KERNEL:
        return False
    return not visibility.hides(clause.head.key, clause)


def _dormant_rule(rule_status: RuleStatus, visibility: Visibility) -> messages.DormantRule:
    hidden = {key[0] for key in rule_status.rule.clause.reads if visibility.hides(key)}
    return messages.DormantRule(
        rule=visibility.text(rule_status.rule.head),
        missing_predicates=tuple(visibility.text(name) for name in rule_status.missing if name not in hidden),
        status="dead" if rule_status.status == "dead" else "partially_alive",
    )


MAX_NODES: Final = 100  # nodes of a tree
MAX_DEPTH: Final = 24
MAX_SUPPORTING: Final = 100  # facts of one derivation

_ABOUT_CLIENT: Final = frozenset({"client", "client_permission", "client_trust", "stale_source"})
_REDUNDANT: Final = frozenset({"kernel.core"})  # kernel.core(T) has the same proof as candidate(T, …)
_REASONS: Final = {  # texts for clients, by the reason that the engine gives
    "no rule mentions it": "No rules reference this predicate",
    "nothing joined": "Rules reference this predicate, but none of them could use the fact",
}

NodeType = Literal["server", "session", "derived"]


def hints_wanted(options: messages.Options) -> bool:
    return options.include_proof_hints or bool(options.why_not)


class Hints:
    """The hints of one evaluation. ``deadline`` is a time of the monotonic clock."""

    def __init__(self, evaluation: IntentEvaluation, deadline: float) -> None:
        self.evaluation = evaluation
        self.result = evaluation.result
        self.visibility = Visibility(evaluation.domain, evaluation.identity)
        self.session = frozenset(evaluation.session)
        self.deadline = deadline
        self._derivations: dict[str, messages.Derivation] = {}

    def about(self, definitions: Sequence[Definition]) -> messages.ProofHints:
        exclusions = Exclusions(self.evaluation, self.visibility, {definition.tool for definition in definitions})
        names = self.evaluation.request.payload.options.why_not
        return messages.ProofHints(
            derivations=self.derivations(definitions),
            excluded=tuple(
                messages.Exclusion(candidate=self.visibility.text(tool), excluded_by=phase, reason=reason)
                for tool, phase, reason in exclusions.all()
            ),
            unmatched_facts=tuple(self._unmatched()),
            why_not=WhyNots(self.evaluation, self.visibility, exclusions, self.deadline).of(names)
            if names
            else messages.UNSET,
        )

    def derivations(self, definitions: Sequence[Definition]) -> tuple[messages.Derivation, ...]:
        """Return a derivation for each tool, in the order of the tools; each derivation is computed once."""
        selected_by_name = {selected.tool: selected for selected in self.evaluation.selected}
        for definition in definitions:
            tool = definition.tool
            if tool not in self._derivations:
                self._derivations[tool] = self._derivation(definition.macro_id, selected_by_name[tool])
        return tuple(self._derivations[definition.tool] for definition in definitions)

    def _derivation(self, macro_id: str, selected: Selected) -> messages.Derivation:
        goal = Fact("final_selected", (selected.tool, selected.score, selected.phase))
        proof = self.result.explainer.explain(goal)
        assert proof is not None  # the tool was selected
        root = proof.root
        if (permitted := self.result.explainer.explain(Fact("permitted", (selected.tool,)))) is not None:
            root = replace(root, premises=(*root.premises, permitted.root))  # shown to callers that may see policy
        nodes = self._preorder(root)
        rules = (self.visibility.text(_predicate(node)) for node in nodes if node.origin == "derived")
        return messages.Derivation(
            macro_id=macro_id,
            selected_by=selected.phase,
            score=selected.score,
            supporting_facts=tuple(self._supporting(nodes)),
            rule_chain=tuple(dict.fromkeys(rules)),
            tree=self._tree(root),
        )

    def _supporting(self, nodes: Iterable[Node]) -> list[dict[str, object]]:
        facts = {node.ground for node in nodes if node.ground is not None and self._is_from_client(node)}
        return [self.visibility.wire(fact) for fact in sorted(facts, key=lambda fact: fact.text)[:MAX_SUPPORTING]]

    def _is_from_client(self, node: Node) -> bool:
        """Return whether the node is a fact of the client, not one of the server about the request."""
        return node.origin == "session" and node.ground is not None and self._is_assertable(node.ground)

    def _is_assertable(self, fact: Fact) -> bool:
        return fact.predicate in self.evaluation.domain.profile.assertable

    def _children(self, node: Node) -> list[Node]:
        """Return the shown premises of a node; an intermediate predicate of the kernel is replaced by its premises."""
        children: list[Node] = []
        seen_premises: set[Node] = set()
        pending = list(reversed(node.premises))
        while pending:
            premise = pending.pop()
            if premise in seen_premises or premise.ground is None or premise.ground.predicate in _REDUNDANT:
                continue
            seen_premises.add(premise)
            clause = None if premise.rule is None else premise.rule.clause
            if self.visibility.hides(premise.ground.key, clause):
                continue
            if clause is not None and clause.trust is Trust.KERNEL and premise.ground.predicate not in SELECTION:
                pending += reversed(premise.premises)
            else:
                children.append(premise)
        return children

    def _preorder(self, root: Node) -> list[Node]:
        nodes: dict[Node, None] = {}
        pending = [root]
        while pending:
            node = pending.pop()
            if node not in nodes:
                nodes[node] = None
                pending += reversed(self._children(node))
        return list(nodes)

    def _tree(self, root: Node) -> messages.ProofTree:
        """Build the tree breadth-first, so that the nodes that are cut are furthest from the selection."""
        queue: list[tuple[Node, int, list[int]]] = [(root, 1, [])]  # node, depth, indices of its children
        cut: set[int] = set()
        for index, (node, depth, child_indices) in enumerate(queue):  # the loop appends to the queue
            children = self._distinct(self._children(node))
            if children and (depth == MAX_DEPTH or len(queue) + len(children) > MAX_NODES):
                cut.add(index)
                continue
            for child in children:
                child_indices.append(len(queue))
                queue.append((child, depth + 1, []))
        trees: dict[int, messages.ProofTree] = {}
        for index in reversed(range(len(queue))):
            node, _, child_indices = queue[index]
            subtrees = tuple(trees.pop(child) for child in child_indices)
            if index in cut:
                subtrees = (messages.ProofTree(fact=CUT, type="derived"),)
            trees[index] = messages.ProofTree(fact=self._text(node), type=self._type(node), children=subtrees)
        return trees[0]

    def _distinct(self, nodes: list[Node]) -> list[Node]:
        """Drop leaves whose redacted texts are equal."""
        distinct: dict[object, Node] = {}
        for node in nodes:
            appearance = node if node.premises else (self._text(node), self._type(node))
            distinct.setdefault(appearance, node)
        return list(distinct.values())

    def _text(self, node: Node) -> str:
        assert node.ground is not None  # only negated premises have no ground fact, and these are left out
        return self.visibility.fact(node.ground, self._is_from_client(node))

    def _type(self, node: Node) -> NodeType:
        if node.origin == "derived":
            return "derived"
        if node.origin == "session" and _predicate(node) not in _ABOUT_CLIENT:
            return "session"
        return "server"

    def _unmatched(self) -> list[messages.UnmatchedFact]:
        """Return one entry per predicate and reason.

        Facts that hidden rules read are left out: whether a hidden rule used a fact must not be disclosed.
        """
        hidden = self._hidden_premises()
        facts = [fact for fact in self.evaluation.session if self._is_assertable(fact) and fact.key not in hidden]
        unused_facts = self.result.explainer.unused(facts)
        counts = Counter((unused.fact.predicate, _REASONS[unused.reason]) for unused in unused_facts)
        return [
            messages.UnmatchedFact(pred=pred, reason=reason if count == 1 else f"{reason} ({count} facts)")
            for (pred, reason), count in sorted(counts.items())
        ]

    def _hidden_premises(self) -> set[Key]:
        rules = self.result.program.rules
        hidden = [rule.clause for rule in rules if self.visibility.hides(rule.head.key, rule.clause)]
        return set().union(*(clause.reads for clause in hidden))


def _predicate(node: Node) -> str:
    return "" if node.ground is None else node.ground.predicate
