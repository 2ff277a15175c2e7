"""Texts that stand in rules and reach a client: descriptions, instructions, reasons, and what declarations say.

A rule file holds no character that nobody sees (:mod:`manglecp.pack.loader`), but a rule can write one as an escape.
It is shown written out in the end; here it is told to whoever wrote it, with its place. A rule may look for such
characters in its body, and facts of a pack's own predicates may list them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.text import find_invisible
from manglecp.intent.kernel import PREDICATES
from manglecp.mangle import List, Map, Pair, Struct, argument_span
from manglecp.mangle.syntax import Apply, Atom, Term, Unit

__all__ = ["hidden_texts"]


def hidden_texts(units: Iterable[Unit]) -> Iterator[Diagnostic]:
    """Everything that a pack would say with a character that nobody sees."""
    for unit in units:
        heads = (clause.head for clause in unit.clauses if clause.head.predicate in PREDICATES)
        for atom in (*heads, *(about for decl in unit.decls for about in decl.descr)):
            yield from _in_atom(atom)


def _in_atom(atom: Atom) -> Iterator[Diagnostic]:
    for column, term in enumerate(atom.args):
        if (atom.key, column) == (("macro", 2), 0):
            continue  # names have rules of their own
        for text in _texts(term):
            if (hidden := find_invisible(text, running=True)) is not None:
                message = f"{atom.predicate} says something with the invisible character {hidden[1]}"
                yield Diagnostic("analysis", message, argument_span(atom, column), None, "remove it")
                break


def _texts(term: Term) -> Iterator[str]:
    waiting: list[object] = [term]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case Apply(args=args):
                waiting += args
            case Pair() as pair:
                waiting += (pair.first, pair.second)
            case List() as listed:
                waiting += listed.items
            case Map() | Struct() as table:
                waiting += (part for entry in table.entries for part in entry)
