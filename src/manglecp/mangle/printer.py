"""Syntax trees back to text, one clause per line: ``parse(print(x)) == x``.

The layout of whole files, with comments, is the business of :mod:`manglecp.mangle.formatter`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from manglecp.mangle.lexer import CONSTANT
from manglecp.mangle.syntax import (
    Annotation,
    Apply,
    Atom,
    Clause,
    Decl,
    Equality,
    Let,
    Operator,
    Package,
    Premise,
    Term,
    TimeBound,
    Transform,
    Unit,
    Variable,
)
from manglecp.mangle.text import value_text

_ENDS_IN_NAME: Final = re.compile(CONSTANT + r"\Z")
INFIX: Final = {":lt": "<", ":le": "<=", ":gt": ">", ":ge": ">="}


def term(node: Term) -> str:
    """A variable, a constant or an application."""
    if isinstance(node, Variable):
        return node.name
    if isinstance(node, Apply):
        return _application(node)
    return value_text(node)


def _application(node: Apply) -> str:
    args = [term(arg) for arg in node.args]
    if node.function == "fn:list":
        return f"[{', '.join(args)}]"
    pairs_up = len(args) % 2 == 0
    if node.function == "fn:map" and args and pairs_up:
        return f"[{_entries(args)}]"
    if node.function == "fn:struct" and pairs_up:
        return f"{{{_entries(args)}}}"
    return f"{node.function}({', '.join(args)})"


def _entries(args: list[str]) -> str:
    # A variable may not touch the colon of the reference's grammar, so every colon stands free.
    return ", ".join(f"{key} : {value}" for key, value in zip(args[::2], args[1::2], strict=True))


def atom(node: Atom) -> str:
    """``p(X, 1)``"""
    return f"{node.predicate}({', '.join(term(arg) for arg in node.args)})"


def atoms(nodes: tuple[Atom, ...]) -> str:
    """``[p(X), q(Y)]``"""
    return f"[{', '.join(atom(node) for node in nodes)}]"


def _bounds(bounds: tuple[TimeBound, ...]) -> str:
    return f"[{', '.join(bound.text for bound in bounds)}]"


def annotation(node: Annotation | None) -> str:
    """``@[start, end]``, or nothing."""
    return "" if node is None else f"@{_bounds(node.bounds)}"


def operator(node: Operator | None) -> str:
    """``<-[a, b]`` and a space, or nothing."""
    return "" if node is None else f"{node.kind}{_bounds(node.bounds)} "


def premise(node: Premise, write: Callable[[Term], str] = term) -> str:
    """One premise. ``write`` may put something else in the place of a term, such as the value of a variable."""
    if isinstance(node, Equality):
        return f"{write(node.left)} {'!=' if node.negated else '='} {write(node.right)}"
    symbol = INFIX.get(node.atom.predicate)
    if symbol is not None and len(node.atom.args) == 2 and not node.negated and not node.timed:
        left, right = node.atom.args
        return f"{write(left)} {symbol} {write(right)}"
    args = ", ".join(write(arg) for arg in node.atom.args)
    negation = "!" if node.negated else ""
    return f"{negation}{operator(node.operator)}{node.atom.predicate}({args}){annotation(node.annotation)}"


def transform(node: Transform) -> str:
    """``|> do fn:group_by(…), let X = fn:…``"""
    parts = [] if node.do is None else [f"do {term(node.do)}"]
    parts += map(let, node.lets)
    return "|> " + ", ".join(parts)


def let(node: Let) -> str:
    """``let X = fn:…``"""
    return f"let {node.variable.name} = {term(node.expression)}"


def clause(node: Clause) -> str:
    """A rule or a fact on one line, with its full stop."""
    text = atom(node.head) + annotation(node.annotation)
    if node.premises:
        text += " :- " + ", ".join(premise(p) for p in node.premises)
    for step in node.transforms:
        text += " " + transform(step)
    return end_clause(text)


def end_clause(text: str) -> str:
    """Add the full stop, with a space where it would be taken for part of a name by other readers."""
    return text + (" ." if _ENDS_IN_NAME.search(text) else ".")


def decl(node: Decl) -> str:
    """A declaration on one line, with its full stop."""
    parts = [f"Decl {atom(node.atom)}"]
    if node.temporal:
        parts.append("temporal")
    if node.descr:
        parts.append(f"descr {atoms(node.descr)}")
    parts += [f"bound {row(types)}" for types in node.bounds]
    if node.inclusion:
        parts.append(f"inclusion {atoms(node.inclusion)}")
    return " ".join(parts) + "."


def row(types: tuple[Term, ...]) -> str:
    """The types of one ``bound``."""
    return f"[{', '.join(map(term, types))}]"


def package(keyword: str, node: Package) -> str:
    """``Package name!`` or ``Use name!``, as the keyword says."""
    attributes = f" {atoms(node.attributes)}" if node.attributes else ""
    return f"{keyword} {node.name}{attributes}!"


def item(node: Decl | Clause) -> str:
    """A declaration or a clause."""
    return decl(node) if isinstance(node, Decl) else clause(node)


def unit(node: Unit) -> str:
    """The whole unit, one statement per line."""
    lines = [] if node.package is None else [package("Package", node.package)]
    lines += [package("Use", use) for use in node.uses]
    lines += [item(i) for i in node.items]
    return "".join(line + "\n" for line in lines)
