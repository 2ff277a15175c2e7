"""Packages: every predicate gets its full name before anything else looks at it.

A predicate declared or defined in ``Package zoo!`` is called ``zoo.…`` from then on. In bodies, a predicate of the same
package is found by its short name; a dotted name belongs to another package, which must be named in a ``Use`` line. In
a unit without package a dotted name is just a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from manglecp.base.diagnostic import Diagnostic
from manglecp.mangle import printer
from manglecp.mangle.syntax import Atom, Clause, Decl, Literal, Premise, Unit

Key = tuple[str, int]


def resolve(units: Iterable[Unit]) -> tuple[list[Unit], list[Diagnostic]]:
    """The units with full predicate names, and what is wrong with their packages."""
    units = list(units)
    members: dict[str, set[Key]] = {}
    for unit in units:
        if unit.package is not None:
            own = members.setdefault(unit.package.name, set())
            own |= {decl.atom.key for decl in unit.decls}
            own |= {clause.head.key for clause in unit.clauses}
    diagnostics: list[Diagnostic] = []
    resolved = []
    for unit in units:
        if unit.package is None:
            resolved.append(unit)
            continue
        resolver = _Resolver(unit.package.name, members[unit.package.name], {use.name for use in unit.uses})
        for use in unit.uses:
            if use.name == unit.package.name:
                message = f"package {use.name} uses itself"
                diagnostics.append(Diagnostic("analysis", message, use.span, fix="remove the Use line"))
        resolved.append(replace(unit, items=tuple(resolver.item(item) for item in unit.items)))
        diagnostics += resolver.diagnostics
    return resolved, diagnostics


def package_of(predicate: str) -> str:
    """The package part of a full name."""
    return predicate.rpartition(".")[0]


class _Resolver:
    def __init__(self, package: str, members: set[Key], uses: set[str]) -> None:
        self.package = package
        self.members = members
        self.uses = uses
        self.diagnostics: list[Diagnostic] = []

    def item(self, item: Decl | Clause) -> Decl | Clause:
        if isinstance(item, Decl):
            return replace(
                item,
                atom=self.defined(item.atom),
                inclusion=tuple(self.mentioned(atom, item) for atom in item.inclusion),
            )
        return replace(
            item,
            head=self.defined(item.head),
            premises=tuple(self.premise(premise, item) for premise in item.premises),
        )

    def premise(self, premise: Premise, clause: Clause) -> Premise:
        if isinstance(premise, Literal):
            return replace(premise, atom=self.mentioned(premise.atom, clause))
        return premise

    def defined(self, atom: Atom) -> Atom:
        if atom.predicate.startswith(":"):
            return atom
        return replace(atom, predicate=f"{self.package}.{atom.predicate}")

    def _is_own(self, atom: Atom) -> bool:
        """Is this a predicate of the package, by its full name?"""
        short = atom.predicate.removeprefix(f"{self.package}.")
        return package_of(atom.predicate) == self.package or (short, len(atom.args)) in self.members

    def mentioned(self, atom: Atom, item: Decl | Clause) -> Atom:
        if atom.predicate.startswith(":"):
            return atom
        if atom.key in self.members:
            return self.defined(atom)
        other = package_of(atom.predicate)
        if other and other not in self.uses and not self._is_own(atom):
            self.diagnostics.append(
                Diagnostic(
                    "analysis",
                    f"{atom.predicate} belongs to package {other}, which is not used here",
                    atom.span,
                    printer.item(item),
                    f"write Use {other}! behind the Package line",
                )
            )
        return atom
