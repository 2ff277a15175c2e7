"""Stratification: components of the dependency graph, in evaluation order.

A dependency is *strict* if the head needs the finished relation of the body: in a negation, an aggregation or a merge.
A program with a strict dependency inside a component is rejected, even if the premise has an annotation or operator.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Span
from manglecp.mangle import printer
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.syntax import Clause, Decl, Key, Literal, bound_variables

_MAX_PATH: Final = 10  # predicates of a cycle in a message
_MAX_CYCLES: Final = 20  # strict dependencies that are examined per component


@dataclass(frozen=True, slots=True)
class Dependency:
    """The predicate ``head`` reads ``body``; ``strict`` is whether it needs the finished relation of ``body``."""

    head: Key
    body: Key
    strict: bool
    origin: Clause | Decl  # a declaration, if the body is its merge predicate
    premise: Literal | None  # None for a merge predicate
    span: Span | None

    @property
    def looks_ahead(self) -> bool:
        """Whether the premise has an operator about the future."""
        return self.premise is not None and self.premise.operator is not None and self.premise.operator.is_future

    @property
    def retracts(self) -> bool:
        """Whether more facts of the body can remove facts of the head.

        More facts can do so in a negation, an aggregation or a merge. They can also extend an interval: then a variable
        that is bound to its end has another value.
        """
        if self.strict or self.premise is None or self.premise.annotation is None:
            return self.strict
        return any(not variable.anonymous for variable in bound_variables(self.premise.annotation.bounds))


@dataclass(frozen=True, slots=True)
class Component:
    """Predicates that are evaluated together."""

    predicates: tuple[Key, ...]
    recursive: bool


class Dependencies:
    """The graph of the predicates that have rules or merge their facts."""

    def __init__(self, predicates: Mapping[Key, Predicate], rules: Sequence[Clause]) -> None:
        self.predicates = predicates
        nodes = {clause.head.key for clause in rules}
        nodes |= {key for key, predicate in predicates.items() if predicate.merge is not None}
        self.edges: dict[Key, list[Dependency]] = {node: [] for node in sorted(nodes)}
        for dependency in dependencies(predicates, rules):
            if dependency.body in nodes and dependency.head in nodes:
                self.edges[dependency.head].append(dependency)
        self.components = self._components()

    def _components(self) -> list[Component]:
        """Return the components, dependencies first."""
        neighbours = {node: sorted({d.body for d in edges}) for node, edges in self.edges.items()}
        return [
            Component(tuple(sorted(members)), len(members) > 1 or members[0] in neighbours[members[0]])
            for members in strongly_connected(neighbours)
        ]

    def inside(self, component: Component) -> Iterator[Dependency]:
        """Yield the dependencies between predicates of the component."""
        members = set(component.predicates)
        for node in component.predicates:
            yield from (d for d in self.edges[node] if d.body in members)

    def unstratifiable(self) -> list[Diagnostic]:
        """Return a diagnostic for each cycle with a strict dependency, located at the strict premise.

        If another clause of the cycle is less trusted, such as a clause of a pack in a cycle through the kernel, that
        clause is at fault. It gets one diagnostic, for the shortest cycle of which it is at fault.
        """
        diagnostics = []
        for component in self.components:
            seen: set[frozenset[Key]] = set()
            # The shortest cycle of each clause at fault; empty if the clause was reported before.
            cycles: dict[Clause | Decl, list[Dependency]] = {}
            strict_dependencies = sorted((d for d in self.inside(component) if d.strict), key=_distrust, reverse=True)
            for strict in strict_dependencies[:_MAX_CYCLES]:
                cycle = self._cycle(strict, component)
                if frozenset(d.body for d in cycle) in seen:
                    continue
                seen.add(frozenset(d.body for d in cycle))
                closing = max(cycle, key=_distrust)  # among equals, max() returns the first: the strict dependency
                if closing is strict:
                    diagnostics.append(_unstratifiable(strict, cycle))
                    cycles[strict.origin] = []
                elif closing.origin not in cycles or len(cycle) < len(cycles[closing.origin]):
                    cycles[closing.origin] = cycle
            diagnostics += [_unstratifiable(max(cycle, key=_distrust), cycle) for cycle in cycles.values() if cycle]
        return diagnostics

    def _cycle(self, first: Dependency, component: Component) -> list[Dependency]:
        """Return a shortest cycle that begins with the dependency ``first``."""
        reached_by: dict[Key, Dependency] = {}
        queue = [first.body]
        members = set(component.predicates)
        for node in queue:
            if node == first.head:
                break
            for dependency in self.edges[node]:
                if dependency.body in members and dependency.body not in reached_by and dependency.body != first.body:
                    reached_by[dependency.body] = dependency
                    queue.append(dependency.body)
        way_back: list[Dependency] = []
        node = first.head
        while node != first.body:
            way_back.append(reached_by[node])
            node = way_back[-1].head
        return [first, *reversed(way_back)]

    def temporal_recursion(self) -> tuple[list[Diagnostic], list[Diagnostic]]:
        """Return errors and warnings about recursion through temporal predicates."""
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
                path = [d.head for d in self._cycle(step, component)] + [step.head]
                message = f"mutual recursion through temporal predicates: {_path_text(path)}"
                fix = "fold the predicates into one, or break the cycle"
                errors.append(Diagnostic("analysis", message, clause.head.span, printer.clause(clause), fix))
                continue
            future_dependencies = [d for d in inside if d.looks_ahead]
            for dependency in future_dependencies:
                message = f"{dependency.head[0]} depends on its own future"
                text = printer.item(dependency.origin)
                errors.append(Diagnostic("analysis", message, dependency.span, text, "look back in time instead"))
            if not future_dependencies:
                name, text = temporal[0][0], printer.clause(clause)
                message = f"{name} is recursive through time; only the limits bound the number of its intervals"
                warnings.append(Diagnostic("analysis", message, clause.head.span, text, severity="warning"))
        return errors, warnings


def _distrust(dependency: Dependency) -> int:
    """Return the trust level of the source; a higher level is less trusted."""
    return 0 if dependency.span is None else int(dependency.span.source.trust)


def _unstratifiable(closing: Dependency, cycle: list[Dependency]) -> Diagnostic:
    """Return the diagnostic of a cycle, at the dependency ``closing``; the first dependency of ``cycle`` is strict."""
    strict = cycle[0]
    reason, need = _reason_and_need(strict)
    if closing is not strict:
        reason += f" in {strict.head[0]}"
    start = cycle.index(closing)
    path = [d.head for d in (*cycle[start:], *cycle[:start])] + [closing.head]
    message = f"{closing.head[0]} depends on itself through {reason}: {_path_text(path)}"
    fix = f"break the cycle: {need} a relation that is finished before"
    return Diagnostic("stratification", message, closing.span, printer.item(closing.origin), fix)


def _reason_and_need(strict: Dependency) -> tuple[str, str]:
    if strict.premise is None:
        return "its merge predicate", "a merge needs"
    if strict.premise.negated:
        return f"the negation {printer.premise(strict.premise)}", "a negation needs"
    return "aggregation", "an aggregation needs"


def _path_text(keys: list[Key]) -> str:
    names = [name for name, _ in keys]
    if len(names) > _MAX_PATH:
        names = [*names[: _MAX_PATH // 2], "…", *names[-_MAX_PATH // 2 :]]
    return " -> ".join(names)


def dependencies(predicates: Mapping[Key, Predicate], rules: Iterable[Clause]) -> Iterator[Dependency]:
    """Yield a dependency for each premise of each rule, and for the merge predicate of each merged predicate."""
    for clause in rules:
        for premise in clause.premises:
            if isinstance(premise, Literal):
                strict = premise.negated or clause.aggregates
                yield Dependency(clause.head.key, premise.atom.key, strict, clause, premise, premise.span)
    for predicate in predicates.values():
        merge = predicate.merge
        if merge is not None and predicate.decl is not None:
            yield Dependency(predicate.key, merge.predicate, True, predicate.decl, premise=None, span=merge.span)


def strongly_connected(neighbours: Mapping[Key, Sequence[Key]]) -> Iterator[list[Key]]:
    """Yield the strongly connected components, dependencies first, by Tarjan's algorithm without recursion."""
    low: dict[Key, int] = {}  # the least index that a node reaches; sys.maxsize when its component is complete
    stack: list[Key] = []
    for root in neighbours:
        work = [] if root in low else [(root, len(low), iter(neighbours[root]))]
        while work:
            node, index, unvisited = work[-1]
            if node not in low:
                low[node] = index
                stack.append(node)
            for neighbour in unvisited:
                if neighbour not in low:
                    work.append((neighbour, len(low), iter(neighbours[neighbour])))
                    break
                low[node] = min(low[node], low[neighbour])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index:
                    members: list[Key] = []
                    while node not in members[-1:]:  # pop up to and including the node
                        members.append(stack.pop())
                    low.update(dict.fromkeys(members, sys.maxsize))
                    yield members
