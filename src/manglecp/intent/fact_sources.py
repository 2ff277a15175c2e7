"""Facts from Python code of a pack: external predicates (``externals.py``) and generators (``facts.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Trust
from manglecp.base.suggestions import did_you_mean
from manglecp.intent.kernel import PREDICATES
from manglecp.mangle import Fact, Key, Predicate
from manglecp.mangle.syntax import Clause, Decl
from manglecp.pack import ExternalDescription, Pack, pack_problem

# A declaration of an external predicate in the rules must agree with ``externals.py``; a missing declaration is added.
# Facts of an external predicate are an error: they would be mixed with its results.


def declarations(pack: Pack, decls: Iterable[Decl]) -> Source:
    """Return a source that declares the external predicates that the rules do not declare."""
    declared = {decl.atom.predicate for decl in decls}
    missing = [external for name, external in sorted(pack.externals.items()) if name not in declared]
    return Source("externals.py", "\n".join(map(_declaration, missing)), Trust.SCHEMA)


def external_problems(
    pack: Pack, decls: Iterable[Decl], clauses: list[Clause], all_parsed: bool
) -> Iterator[Diagnostic]:
    """Yield contradictions between rules and ``externals.py``; ``all_parsed`` is whether every rule file parsed."""
    declared = {decl.atom.predicate: decl for decl in decls}
    used = {name for clause in clauses for name, _ in clause.reads}
    for name, decl in declared.items():
        if descriptor(decl, "external") is not None and name not in pack.externals:
            yield _problem_at(decl, f"externals.py does not answer {name}", did_you_mean(name, pack.externals))
    for name, external in pack.externals.items():
        declaration = declared.get(name)
        if declaration is not None and _signature(declaration) != (external.arity, external.mode):
            fix = f"write {_declaration(external)}"
            yield _problem_at(declaration, f"externals.py answers {name} with another number of arguments or mode", fix)
        for clause in clauses:
            if clause.head.predicate == name and clause.is_fact:  # the analysis refuses rules for it
                yield Diagnostic("analysis", external_facts_message(name), clause.head.span, fix="remove it")
        if name not in used and all_parsed:
            fix = "remove it, or use it in a rule"
            yield pack_problem("externals.py", f"no rule uses {name}", fix=fix, severity="warning")


def external_facts_message(predicate: str) -> str:
    return f"{predicate} is external: it is answered by externals.py, not by facts"


def descriptor(decl: Decl, name: str) -> tuple[Any, ...] | None:
    """Return the arguments of a descriptor of a declaration, such as ``direction("input")``; None without one."""
    return next((descriptor.args for descriptor in decl.descr if descriptor.predicate == name), None)


def _problem_at(decl: Decl, message: str, fix: str) -> Diagnostic:
    span = decl.atom.span
    assert span is not None  # it was parsed
    return pack_problem(span.source.name, message, span.line, span.column, fix=fix)


def _signature(decl: Decl) -> tuple[int, str | None]:
    """Return the arity, and the mode if the predicate is declared as external."""
    mode = descriptor(decl, "mode") if descriptor(decl, "external") is not None else None
    return len(decl.atom.args), None if mode is None else "".join(map(str, mode))


def _declaration(external: ExternalDescription) -> str:
    names = external.arguments or tuple(f"A{number}" for number in range(1, external.arity + 1))
    modes = ", ".join(f'"{mode}"' for mode in external.mode)
    return f"Decl {external.predicate}({', '.join(names)}) descr [external(), mode({modes})]."


# A generated predicate has no facts from other files: a fact that the generator retracts could still hold. Rules may
# derive more facts of it. Predicates of the kernel and of policy cannot be generated.


class FactSource(Protocol):
    """The running generators of a pack."""

    def begin(self, predicates: Mapping[Key, Predicate]) -> Iterable[Fact]:
        """Return all current facts. Raises :class:`manglecp.pack.PackError`."""

    @property
    def version(self) -> str:
        """A text that changes with the facts."""


def generator_problems(
    pack: Pack, decls: Iterable[Decl], clauses: Iterable[Clause], owned: Mapping[Key, Trust], all_parsed: bool
) -> Iterator[Diagnostic]:
    """Yield why generators cannot provide the predicates that they name.

    ``owned`` has the owners of predicates that are not the domain's; ``all_parsed`` is whether every rule file parsed.
    """
    declared = {decl.atom.predicate for decl in decls}
    owners = {name: owner for (name, _), owner in owned.items()}
    generated_predicates = set()
    for generator in pack.generators.values():
        for name in generator.predicates:
            if name in PREDICATES:
                fix = "give another predicate, and derive it in rules"
                yield _generator_problem(generator.name, f"{name} is a word of the kernel", fix)
            elif name in pack.externals:
                message = f"{name} is external: it is answered by externals.py"
                yield _generator_problem(generator.name, message, "remove one of them")
            elif name in owners:
                message = f"{name} belongs to {owners[name].label}, a generator may not add to it"
                yield _generator_problem(generator.name, message, "give another predicate that those rules read")
            elif name not in declared and all_parsed:
                fix = f"write Decl {name}(…) bound […]."
                yield _generator_problem(generator.name, f"no rule file declares {name}", fix)
            else:
                generated_predicates.add(name)
    for clause in clauses:
        name = clause.head.predicate
        if clause.is_fact and name in generated_predicates:
            fix = "remove it, or let the generator give it"
            yield Diagnostic("analysis", generated_facts_message(name), clause.head.span, fix=fix)


def generated_facts_message(predicate: str) -> str:
    return f"the facts of {predicate} are those that facts.py gives"


def _generator_problem(generator: str, message: str, fix: str) -> Diagnostic:
    return pack_problem("facts.py", f"{generator}: {message}", fix=fix)
