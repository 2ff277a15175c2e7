"""External predicates of a pack: declared where they are answered, and by nobody else.

``externals.py`` says what they are. A declaration in the rules has to agree, and where there is none it is made. Facts
of such a predicate would be asked together with its answers, so there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.suggestions import did_you_mean
from manglecp.mangle import Source, Trust
from manglecp.mangle.syntax import Clause, Decl, Literal
from manglecp.pack import ExternalDescription, Pack, pack_problem

__all__ = ["answered", "declarations", "descriptor", "external_problems"]


def declarations(pack: Pack, decls: Iterable[Decl]) -> Source:
    """Declarations of those that the rules do not declare."""
    declared = {decl.atom.predicate for decl in decls}
    missing = [external for name, external in sorted(pack.externals.items()) if name not in declared]
    return Source("externals.py", "\n".join(map(_declaration, missing)), Trust.SCHEMA)


def external_problems(pack: Pack, decls: Iterable[Decl], clauses: list[Clause], whole: bool) -> Iterator[Diagnostic]:
    """What rules and ``externals.py`` say differently; ``whole`` if no rule is missing."""
    declared = {decl.atom.predicate: decl for decl in decls}
    used = {p.atom.predicate for clause in clauses for p in clause.premises if isinstance(p, Literal)}
    for name, decl in declared.items():
        if descriptor(decl, "external") is not None and name not in pack.externals:
            yield _at(decl, f"externals.py does not answer {name}", did_you_mean(name, pack.externals))
    for name, external in pack.externals.items():
        found = declared.get(name)
        if found is not None and _signature(found) != (external.arity, external.mode):
            fix = f"write {_declaration(external)}"
            yield _at(found, f"externals.py answers {name} with another number of arguments or mode", fix)
        for clause in clauses:
            if clause.head.predicate == name and clause.is_fact:  # the language refuses rules
                yield Diagnostic("analysis", answered(name), clause.head.span, None, "remove it")
        if name not in used and whole:
            fix = "remove it, or ask it in a rule"
            yield pack_problem("externals.py", f"no rule asks {name}", fix=fix, severity="warning")


def answered(predicate: str) -> str:
    """Why there are no facts of it."""
    return f"{predicate} is external: it is answered by externals.py, not by facts"


def descriptor(decl: Decl, name: str) -> tuple[Any, ...] | None:
    """The arguments of a descriptor of a declaration."""
    return next((found.args for found in decl.descr if found.predicate == name), None)


def _at(decl: Decl, message: str, fix: str) -> Diagnostic:
    span = decl.atom.span
    assert span is not None  # it was parsed
    return pack_problem(span.source.name, message, span.line, span.column, fix=fix)


def _signature(decl: Decl) -> tuple[int, str | None]:
    """The number of arguments and the mode of an external predicate."""
    mode = descriptor(decl, "mode") if descriptor(decl, "external") is not None else None
    return len(decl.atom.args), None if mode is None else "".join(map(str, mode))


def _declaration(external: ExternalDescription) -> str:
    names = external.arguments or tuple(f"A{number}" for number in range(1, external.arity + 1))
    modes = ", ".join(f'"{mode}"' for mode in external.mode)
    return f"Decl {external.predicate}({', '.join(names)}) descr [external(), mode({modes})]."
