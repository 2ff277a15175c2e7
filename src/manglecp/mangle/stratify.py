"""Which predicates are evaluated together, and in which order.

Predicates that depend on each other form a component; components are evaluated one after the other, each over the
finished ones below it. A dependency is *strict* if it needs the finished relation: negation, aggregation, and the
predicate that merges values. A strict dependency inside a component has no meaning, and the program is refused.
Premises with annotations and operators count like any others (D13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from manglecp.mangle import printer
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.errors import Diagnostic
from manglecp.mangle.packages import Key
from manglecp.mangle.source import Span
from manglecp.mangle.syntax import Clause, Literal


@dataclass(frozen=True, slots=True)
class Dependency:
    head: Key
    body: Key
    strict: bool
    clause: Clause | None
    premise: Literal | None

    @property
    def span(self) -> Span | None:
        if self.premise is not None:
            return self.premise.span
        return None if self.clause is None else self.clause.span


@dataclass(frozen=True, slots=True)
class Component:
    """Predicates that are evaluated together."""

    predicates: tuple[Key, ...]
    recursive: bool


class Dependencies:
    """The graph of the predicates that have rules."""

    def __init__(self, predicates: Mapping[Key, Predicate], rules: Sequence[Clause]) -> None:
        self.predicates = predicates
        self.nodes = sorted({clause.head.key for clause in rules})
        known = set(self.nodes)
        self.edges: dict[Key, list[Dependency]] = {node: [] for node in self.nodes}
        for dependency in _dependencies(predicates, rules):
            if dependency.body in known and dependency.head in known:
                self.edges[dependency.head].append(dependency)
        self.components = self._components()

    def _components(self) -> list[Component]:
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
        """A diagnostic for each component that needs its own finished relation."""
        diagnostics = []
        for component in self.components:
            strict = next((d for d in self.inside(component) if d.strict), None)
            if strict is None:
                continue
            path = " -> ".join(name for name, _ in self._cycle(strict, component))
            how = _how(strict)
            diagnostics.append(
                Diagnostic(
                    "stratification",
                    f"{strict.head[0]} depends on itself through {how}: {path}",
                    strict.span,
                    None if strict.clause is None else printer.clause(strict.clause),
                    "break the cycle: negation and aggregation need a relation that is finished before",
                )
            )
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
            clause = next(d.clause for d in inside if d.clause is not None)
            if len(component.predicates) > 1:
                names = ", ".join(name for name, _ in component.predicates)
                message = f"mutual recursion through temporal predicates: {names}"
                fix = "fold the predicates into one, or break the cycle"
                errors.append(Diagnostic("analysis", message, clause.span, printer.clause(clause), fix))
                continue
            future = [d for d in inside if d.premise is not None and d.premise.operator is not None]
            future = [d for d in future if d.premise and d.premise.operator and d.premise.operator.is_future]
            for dependency in future:
                message = f"{dependency.head[0]} depends on its own future"
                shown = None if dependency.clause is None else printer.clause(dependency.clause)
                errors.append(Diagnostic("analysis", message, dependency.span, shown, "look back in time instead"))
            if not future:
                message = (
                    f"{temporal[0][0]} is recursive through time; only the limits bound the number of its intervals"
                )
                shown = printer.clause(clause)
                warnings.append(Diagnostic("analysis", message, clause.span, shown, severity="warning"))
        return errors, warnings


def _how(strict: Dependency) -> str:
    if strict.premise is not None and strict.premise.negated:
        return f"the negation {printer.premise(strict.premise)}"
    return "its merge predicate" if strict.clause is None else "aggregation"


def _dependencies(predicates: Mapping[Key, Predicate], rules: Iterable[Clause]) -> Iterator[Dependency]:
    for clause in rules:
        for premise in clause.premises:
            if isinstance(premise, Literal):
                strict = premise.negated or clause.aggregates
                yield Dependency(clause.head.key, premise.atom.key, strict, clause, premise)
    for predicate in predicates.values():
        if predicate.merge is not None:
            yield Dependency(predicate.key, predicate.merge.predicate, True, None, None)


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
