"""Proofs, which are graphs that are formatted as trees; and the minimal sets of given facts that support a fact."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

from manglecp.mangle.declarations import FactAcceptor
from manglecp.mangle.engine.model import EvaluatedModel
from manglecp.mangle.explain.fixpoint import settle
from manglecp.mangle.explain.instances import Absence, Demand, Instance, Instances, Option, all_covers, option_of
from manglecp.mangle.explain.search import LEAF, Choice, Search
from manglecp.mangle.explain.shape import RuleRef, bindings_json, with_bindings
from manglecp.mangle.explain.solver import ModelSolver
from manglecp.mangle.facts import Fact
from manglecp.mangle.model import Origin
from manglecp.mangle.values import Value

NodeOrigin: TypeAlias = Origin | Literal["derived", "absent"]

MAX_NODES: Final = 10_000  # in a larger tree, each repetition of a subtree is cut
_MAX_INDENT: Final = 40  # levels that are indented; a deeper level is written as a number


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One step of a proof: a fact, and the nodes from which it follows. Nodes may share a premise."""

    fact: str  # canonical text; for an absence, the negated premise
    origin: NodeOrigin
    rule: RuleRef | None = None
    bindings: Mapping[str, Value] = field(default_factory=dict)
    premises: tuple[Node, ...] = ()
    ground: Fact | None = field(default=None, repr=False)  # None for an absence
    omitted: int = 0  # rows of a group that the proof leaves out


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    fact: str
    root: Node

    def nodes(self) -> list[Node]:
        """Return every node once, premises first."""
        return list(_bottom_up(self.root))

    def leaves(self) -> list[str]:
        return sorted({node.fact for node in self.nodes() if node.origin not in ("derived", "absent")})

    def rules(self) -> list[RuleRef]:
        rules = {node.rule.id: node.rule for node in self.nodes() if node.rule}
        return [rules[id_] for id_ in sorted(rules)]

    def as_json(self, max_nodes: int = MAX_NODES) -> dict[str, Any]:
        """Return plain JSON.

        In a tree of more than ``max_nodes`` nodes, only the first occurrence of a subtree is complete; each other
        occurrence has no premises, and is marked by ``"repeated": true``.
        """
        premises_by_depth: list[list[dict[str, Any]]] = [[]]
        for node, depth, is_repeated in self._walk(max_nodes):
            document: dict[str, Any] = {
                "fact": node.fact,
                "origin": node.origin,
                "rule": None if node.rule is None else node.rule.as_json(),
                "bindings": bindings_json(node.bindings),
                "premises": [],
            }
            if node.omitted:
                document["omitted_rows"] = node.omitted
            if is_repeated:
                document["repeated"] = True
            premises_by_depth[depth].append(document)
            premises_by_depth[depth + 1 :] = [document["premises"]]
        return {"fact": self.fact, "proof": premises_by_depth[0][0]}

    def text(self, max_nodes: int = MAX_NODES) -> str:
        """Return the tree as lines: one fact per line, its premises indented below."""
        return "\n".join(line for visit in self._walk(max_nodes) for line in _node_lines(*visit)) + "\n"

    def _walk(self, max_nodes: int) -> Iterator[tuple[Node, int, bool]]:
        """Yield the nodes of the tree, each with its depth, and whether its premises are cut as a repetition."""
        cut_repeated = _tree_size(self.root) > max_nodes
        work = [(self.root, 0)]
        seen: set[Node] = set()
        while work:
            node, depth = work.pop()
            is_repeated = cut_repeated and bool(node.premises) and node in seen
            yield node, depth, is_repeated
            if not is_repeated:
                seen.add(node)
                work += [(premise, depth + 1) for premise in reversed(node.premises)]


def _node_lines(node: Node, depth: int, is_repeated: bool) -> Iterator[str]:
    margin = "  " * min(depth, _MAX_INDENT) + (f"({depth}) " if depth > _MAX_INDENT else "")
    if is_repeated:
        yield f"{margin}{node.fact}  [see above]"
        return
    mark = "" if node.origin == "derived" else f"  [{node.origin}]"
    yield with_bindings(f"{margin}{node.fact}{mark}", node.bindings)
    if node.rule is not None:
        yield f"{' ' * len(margin)}  by {node.rule.text_with_place}"
    if node.omitted:
        yield f"{' ' * len(margin)}  and {node.omitted} more rows"


def _bottom_up(root: Node) -> Iterator[Node]:
    """Yield every node after its premises, without recursion: a proof may be thousands of steps deep."""
    seen = {root}
    work = [(root, iter(root.premises))]
    while work:
        node, unvisited = work[-1]
        premise = next(unvisited, None)
        if premise is None:
            work.pop()
            yield node
        elif premise not in seen:
            seen.add(premise)
            work.append((premise, iter(premise.premises)))


def _tree_size(root: Node) -> int:
    sizes: dict[Node, int] = {}
    for node in _bottom_up(root):
        sizes[node] = 1 + sum(sizes[premise] for premise in node.premises)
    return sizes[root]


class Prover:
    """Proves facts of one model; memoises nodes, which proofs share."""

    def __init__(self, model: EvaluatedModel) -> None:
        self.model = model
        self.solver = ModelSolver(model)
        self.instances = Instances(self.solver)
        self.acceptance = FactAcceptor(model.program.predicates)
        self.search = Search(self.solver, self.instances)
        self._nodes: dict[Fact, Node] = {}

    def using(self, leaves: Collection[Fact]) -> Prover:
        """Return a prover of the same model that uses only these given facts."""
        prover = copy(self)
        prover.search = Search(self.solver, self.instances, frozenset(leaves))
        prover._nodes = {}
        return prover

    def proof(self, goal: Fact) -> Proof | None:
        """Return the proof; None if the fact does not hold or cannot be proved from the permitted leaves."""
        if not self.solver.contains(goal):
            return None
        option = self.option(goal)
        self.search.prove(option.facts)
        chosen = self.search.cheapest([option])
        if not chosen:
            return None  # the goal does not follow from the permitted leaves
        if goal in option.facts:
            return Proof(goal.text, self._node(goal))
        parts = tuple(self._node(part) for part in chosen)
        return Proof(goal.text, Node(goal.text, "derived", premises=parts, ground=goal))

    def option(self, goal: Fact) -> Option:
        """Return the goal itself as an option, or the uncoalesced facts that cover its interval."""
        if goal.interval is None:
            return Option((goal,))
        raw = self.solver.intervals(goal.key, goal.args, raw=True)
        if goal.interval in raw:
            return Option((goal,))
        return option_of(Demand(goal.interval), goal.key, goal.args, raw)

    def _node(self, goal: Fact) -> Node:
        best = self.search.best
        work = [goal]
        while work:
            fact = work[-1]
            if fact in self._nodes:
                work.pop()
                continue
            missing = [premise for premise in best[fact].premises if premise not in self._nodes]
            if missing:
                work += missing
            else:
                self._nodes[fact] = self._make_node(fact, best[fact])
                work.pop()
        return self._nodes[goal]

    def _make_node(self, fact: Fact, choice: Choice) -> Node:
        if choice is LEAF:
            return Node(fact.text, self.model.origin(fact) or "given", ground=fact)
        premises: dict[object, Node] = {}
        for chosen in choice.chosen:
            if isinstance(chosen, Absence):
                premises.setdefault(chosen.text, Node(chosen.text, "absent"))
            else:
                premises.update({premise: self._nodes[premise] for premise in chosen})
        instance = choice.instance
        if instance is None or instance.shape is None:
            return Node(fact.text, "derived", premises=tuple(premises.values()), ground=fact)
        shape = instance.shape
        bindings = shape.by_first_occurrence(instance.row)
        return Node(fact.text, "derived", shape.ref, bindings, tuple(premises.values()), fact, instance.omitted)


AssumedFacts: TypeAlias = frozenset[Fact]

NO_FACTS: Final[AssumedFacts] = frozenset()


class MinimalSets:
    """Sets of assumed facts, none of which contains another."""

    __slots__ = ("_sets",)

    def __init__(self, sets: Iterable[AssumedFacts] = ()) -> None:
        self._sets: dict[AssumedFacts, None] = {}
        for facts in sets:
            self.add(facts)

    def add(self, new: AssumedFacts) -> bool:
        """Add a set unless it contains a stored set; drop stored sets that contain it. Return whether it was added."""
        if any(map(new.issuperset, self._sets)):
            return False
        for old in [old for old in self._sets if new < old]:
            del self._sets[old]
        self._sets[new] = None
        return True

    def __iter__(self) -> Iterator[AssumedFacts]:
        return iter(tuple(self._sets))

    def __len__(self) -> int:
        return len(self._sets)


# A given fact that rules derive too has several sets: the fact itself, and those of its derivations. Sets are combined
# bottom-up, in a recursion to the fixpoint; a set that contains another is dropped.
MAX_INSTANCES: Final = 20_000  # instances in one search for sets
MAX_COVERS: Final = 1_000  # covers of one demanded interval


class TooWide(Exception):
    """There are more than MAX_INSTANCES instances."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The minimal sets of given facts that support a fact: smallest first, each set sorted by text."""

    sets: tuple[tuple[Fact, ...], ...]
    complete: bool  # whether these are all sets


class Supports:
    """Finds the minimal sets of given facts that support facts, at most ``limit`` per fact."""

    def __init__(self, search: Search, limit: int) -> None:
        self.search = search
        self.limit = limit
        self.complete = True
        self._sets: dict[Fact, MinimalSets] = {}

    def of(self, options: Iterable[Option]) -> Alternatives:
        options = tuple(options)
        self._settle([fact for option in options for fact in option.facts])
        sets = [tuple(sorted(facts, key=self.search.text)) for facts in self._sets_of_any(options)]
        sets.sort(key=lambda facts: (len(facts), [self.search.text(fact) for fact in facts]))
        return Alternatives(tuple(sets[: self.limit]), self.complete and len(sets) <= self.limit)

    def _settle(self, goals: list[Fact]) -> None:
        """Compute the sets of the goals and of the facts on which they rest, to the fixpoint. Raises TooWide."""
        readers: dict[Fact, dict[Fact, None]] = {}
        stack, count = list(goals), 0
        while stack:
            fact = stack.pop()
            if fact in self._sets:
                continue
            self._sets[fact] = MinimalSets([frozenset({fact})] if self.search.solver.is_given(fact) else ())
            instances, is_all = self.search.expand(fact, MAX_INSTANCES)
            count += len(instances)
            if count > MAX_INSTANCES or not is_all:
                raise TooWide
            for instance in instances:
                self.complete &= not instance.omitted
                for other in instance.facts():
                    readers.setdefault(other, {})[fact] = None
                    stack.append(other)
        lowest_first = sorted(self._sets, key=lambda fact: (self.search.component_of(fact.key), self.search.text(fact)))
        settle(lowest_first, readers, self._extend)

    def _extend(self, fact: Fact) -> bool:
        """Add the sets of each instance of a fact to the sets of the fact; return whether a set is new."""
        sets = self._sets[fact]
        changed = False
        for instance in self.search.expand(fact, MAX_INSTANCES)[0]:
            for new in self._sets_of_instance(instance):
                if len(sets) >= self.limit and not any(new <= old for old in sets):
                    self.complete = self.complete and any(old <= new for old in sets)
                    continue
                changed |= sets.add(new)
        return changed

    def _sets_of_instance(self, instance: Instance) -> MinimalSets:
        sets = MinimalSets([NO_FACTS])
        for ground in instance.grounds:
            if not isinstance(ground, Absence):
                sets = self._unions(sets, self._sets_of_any(ground.options))
        return sets

    def _sets_of_any(self, options: Iterable[Option]) -> MinimalSets:
        sets = MinimalSets()
        for option in options:
            if option.demand.whole is None:
                for fact in option.facts:
                    self._add(sets, self._sets[fact])
                continue
            covers = list(islice(all_covers(option), MAX_COVERS + 1))
            self.complete = self.complete and len(covers) <= MAX_COVERS
            for cover in covers[:MAX_COVERS]:
                supports = MinimalSets([NO_FACTS])
                for fact in cover:
                    supports = self._unions(supports, self._sets[fact])
                self._add(sets, supports)
        return sets

    def _unions(self, left: MinimalSets, right: MinimalSets) -> MinimalSets:
        sets = MinimalSets()
        self._add(sets, (left_facts | right_facts for left_facts in left for right_facts in right))
        return sets

    def _add(self, target: MinimalSets, new: Iterable[AssumedFacts]) -> None:
        """Add sets, up to ten times the limit: a smaller set that is added later replaces the sets that contain it."""
        for facts in new:
            if len(target) >= 10 * self.limit:
                self.complete = False
                return
            target.add(facts)
