"""Facts that the pack finds out itself, as the rules see them: who gives them, and which they may be.

A predicate that a generator gives is given by nobody else, or what is gone for the generator would still be there for
somebody, or the other way round. Rules may derive more of it. A generator speaks about the world: what tools are made
of, who asks and what policy decides by are not its business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.kernel import PREDICATES
from manglecp.mangle import Fact, Key, Predicate, Trust
from manglecp.mangle.syntax import Clause, Decl
from manglecp.pack import Pack, pack_problem

__all__ = ["Generated", "generator_problems", "given_elsewhere"]

_FILE = "facts.py"


class Generated(Protocol):
    """What finds facts out. It is asked once when a pack is loaded; changes come later."""

    def begin(self, predicates: Mapping[Key, Predicate]) -> Iterable[Fact]:
        """All facts as they are now; a :class:`manglecp.pack.diagnostics.PackError` if they cannot be had."""

    @property
    def version(self) -> str:
        """Of the facts: others have another one."""


def generator_problems(
    pack: Pack, decls: Iterable[Decl], clauses: Iterable[Clause], owned: Mapping[Key, Trust], whole: bool
) -> Iterator[Diagnostic]:
    """Why the generators of a pack cannot give what they declare; ``whole`` if no rule is missing."""
    declared = {decl.atom.predicate for decl in decls}
    levels = {name: level for (name, _), level in owned.items()}
    given = set()
    for generator in pack.generators.values():
        for name in generator.predicates:
            if name in PREDICATES:
                yield _wrong(
                    generator.name, f"{name} is a word of the kernel", "give another predicate, and let rules say it"
                )
            elif name in pack.externals:
                yield _wrong(
                    generator.name, f"{name} is external: it is answered by externals.py", "remove one of them"
                )
            elif name in levels:
                message = f"{name} belongs to {levels[name].label}, a generator may not add to it"
                yield _wrong(generator.name, message, "give another predicate that those rules read")
            elif name not in declared and whole:
                yield _wrong(generator.name, f"no rule file declares {name}", f"write Decl {name}(…) bound […].")
            else:
                given.add(name)
    for clause in clauses:
        name = clause.head.predicate
        if clause.is_fact and name in given:
            fix = "remove it, or let the generator give it"
            yield Diagnostic("analysis", given_elsewhere(name), clause.head.span, None, fix)


def given_elsewhere(predicate: str) -> str:
    """Why nobody else states it."""
    return f"the facts of {predicate} are those that facts.py gives"


def _wrong(generator: str, message: str, fix: str) -> Diagnostic:
    return pack_problem(_FILE, f"{generator}: {message}", fix=fix)
