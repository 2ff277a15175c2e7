"""Which predicates are evaluated together, and in which order.

Predicates that depend on each other form a component; components are evaluated one after the other, each over the
finished ones below it. A dependency is *strict* if it needs the finished relation: negation, aggregation, and the
predicate that merges values. A strict dependency inside a component has no meaning, and the program is refused.
Premises with annotations and operators count like any others (D13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from manglecp.mangle import printer
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.errors import Diagnostic
from manglecp.mangle.packages import Key
from manglecp.mangle.source import Span
from manglecp.mangle.syntax import Clause, Decl, Literal

_LONGEST_PATH: Final = 10
_MOST_CYCLES: Final = 20


@dataclass(frozen=True, slots=True)
class Dependency:
    head: Key
    body: Key
    strict: bool
    origin: Clause | Decl  # a declaration asks for its merge predicate
    premise: Literal | None
    span: Span | None

    @property
    def looks_ahead(self) -> bool:
        return self.premise is not None and self.premise.operator is not None and self.premise.operator.is_future


@dataclass(frozen=True, slots=True)
class Component:
    """Predicates that are evaluated together."""

    predicates: tuple[Key, ...]
    recursive: bool


class Dependencies:
    """The graph of the predicates that have rules or merge their facts."""

    def __init__(self, predicates: Mapping[Key, Predicate], rules: Sequence[Clause]) -> None:
        self.predicates = predicates
        known = {clause.head.key for clause in rules}
        known |= {key for key, predicate in predicates.items() if predicate.merge is not None}
        self.nodes = sorted(known)
        self.edges: dict[Key, list[Dependency]] = {node: [] for node in self.nodes}
        for dependency in _dependencies(predicates, rules):
            if dependency.body in known and dependency.head in known:
                self.edges[dependency.head].append(dependency)
        self.components = self._components()

    def _components(self) -> list[Component]:
        """In order of dependence, also of predicates that only have facts to merge."""
        neighbours = {node: sorted({d.body for d in edges}) for node, edges in self.edges.items()}
        components = []
        for members in strongly_connected(self.nodes, neighbours):
            recursive = len(members) > 1 or members[0] in neighbours[members[0]]
            components.append(Component(tuple(sorted(members)), recursive))
        return components

    def inside(self, component: Component) -> Iterator[Dependency]:
        """The dependencies between members of one component."""
        members = set(component.predicates)
        for node in component.predicates:
            yield from (d for d in self.edges[node] if d.body in members)

    def unstratifiable(self) -> list[Diagnostic]:
        """A diagnostic for each cycle in which a predicate needs its own finished relation."""
        diagnostics = []
        for component in self.components:
            seen: set[frozenset[Key]] = set()
            for strict in islice((d for d in self.inside(component) if d.strict), _MOST_CYCLES):
                cycle = self._cycle(strict, component)
                if frozenset(cycle) in seen:
                    continue
                seen.add(frozenset(cycle))
                how, needs = _how(strict)
                message = f"{strict.head[0]} depends on itself through {how}: {_path(cycle)}"
                fix = f"break the cycle: {needs} a relation that is finished before"
                diagnostics.append(Diagnostic("stratification", message, strict.span, printer.item(strict.origin), fix))
        return diagnostics

    def _cycle(self, strict: Dependency, component: Component) -> list[Key]:
        """A way from the head through the strict dependency back to the head."""
        came_from: dict[Key, Key] = {}
        queue = [strict.body]
        members = set(component.predicates)
        for node in queue:
            if node == strict.head:
                break
            for dependency in self.edges[node]:
                if dependency.body in members and dependency.body not in came_from and dependency.body != strict.body:
                    came_from[dependency.body] = node
                    queue.append(dependency.body)
        back = [strict.head]
        while back[-1] != strict.body:
            back.append(came_from[back[-1]])
        return [strict.head, *reversed(back)]

    def temporal_recursion(self) -> tuple[list[Diagnostic], list[Diagnostic]]:
        """Errors and warnings about recursion through time (D13)."""
        errors: list[Diagnostic] = []
        warnings: list[Diagnostic] = []
        for component in self.components:
            temporal = [key for key in component.predicates if self.predicates[key].temporal]
            if not component.recursive or not temporal:
                continue
            inside = list(self.inside(component))
            clause = next(d.origin for d in inside if isinstance(d.origin, Clause))
            if len(component.predicates) > 1:
                step = next(d for d in inside if d.head != d.body)
                message = f"mutual recursion through temporal predicates: {_path(self._cycle(step, component))}"
                fix = "fold the predicates into one, or break the cycle"
                errors.append(Diagnostic("analysis", message, clause.head.span, printer.clause(clause), fix))
                continue
            future = [d for d in inside if d.looks_ahead]
            for dependency in future:
                message = f"{dependency.head[0]} depends on its own future"
                shown = printer.item(dependency.origin)
                errors.append(Diagnostic("analysis", message, dependency.span, shown, "look back in time instead"))
            if not future:
                message = (
                    f"{temporal[0][0]} is recursive through time; only the limits bound the number of its intervals"
                )
                shown = printer.clause(clause)
                warnings.append(Diagnostic("analysis", message, clause.head.span, shown, severity="warning"))
        return errors, warnings


def _how(strict: Dependency) -> tuple[str, str]:
    if strict.premise is None:
        return "its merge predicate", "a merge needs"
    if strict.premise.negated:
        return f"the negation {printer.premise(strict.premise)}", "a negation needs"
    return "aggregation", "an aggregation needs"


def _path(cycle: list[Key]) -> str:
    """The way round a cycle; the middle of a long one is left out."""
    names = [name for name, _ in cycle]
    if len(names) > _LONGEST_PATH:
        names = [*names[: _LONGEST_PATH // 2], "…", *names[-_LONGEST_PATH // 2 :]]
    return " -> ".join(names)


def _dependencies(predicates: Mapping[Key, Predicate], rules: Iterable[Clause]) -> Iterator[Dependency]:
    for clause in rules:
        for premise in clause.premises:
            if isinstance(premise, Literal):
                strict = premise.negated or clause.aggregates
                yield Dependency(clause.head.key, premise.atom.key, strict, clause, premise, premise.span)
    for predicate in predicates.values():
        merge = predicate.merge
        if merge is not None and predicate.decl is not None:
            yield Dependency(predicate.key, merge.predicate, True, predicate.decl, None, merge.span)


def strongly_connected(nodes: Iterable[Key], neighbours: Mapping[Key, Sequence[Key]]) -> Iterator[list[Key]]:
    """Tarjan's components, dependencies first, without recursion."""
    index: dict[Key, int] = {}
    low: dict[Key, int] = {}
    stack: list[Key] = []
    on_stack: set[Key] = set()
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(neighbours[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for following in rest:
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(neighbours[following])))
                    break
                if following in on_stack:
                    low[node] = min(low[node], index[following])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    members = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        members.append(member)
                        if member == node:
                            break
                    yield members
