"""The predicates of the kernel, grouped by the headings of its vocabulary file."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from manglecp.intent.kernel import kernel_units
from manglecp.mangle.printer import term
from manglecp.mangle.syntax import Decl
from tools.reference.tables import cell, table

__all__ = ["blocks"]

_HEADING: Final = re.compile(r"^# --- (.+?) -+$", re.MULTILINE)


def blocks() -> dict[str, Callable[[], str]]:
    return {"kernel predicates": _predicates}


def _predicates() -> str:
    vocabulary = kernel_units()[0]
    assert vocabulary.source is not None
    headings = [
        (vocabulary.source.text.count("\n", 0, found.start()) + 1, found[1])
        for found in _HEADING.finditer(vocabulary.source.text)
    ]
    parts = []
    for (first, heading), (last, _) in zip(headings, [*headings[1:], (1 << 30, "")], strict=True):
        rows = [_row(decl) for decl in vocabulary.decls if decl.span is not None and first < decl.span.line < last]
        parts += [f"## {heading[0].upper()}{heading[1:]}\n", table(("predicate", "types", "meaning"), rows)]
    return "\n".join(parts)


def _row(decl: Decl) -> tuple[str, str, str]:
    arguments = ", ".join(map(term, decl.atom.args))
    types = ", ".join(f"`{term(bound)}`" for bound in (decl.bounds[0] if decl.bounds else ()))
    (text,) = (one.args[0] for one in decl.descr if one.predicate == "doc")
    return f"`{decl.atom.predicate}({arguments})`", types, cell(str(text))
