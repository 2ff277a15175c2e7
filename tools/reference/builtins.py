"""The tables of built-in functions, predicates and reducers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS
from tools.reference.tables import table

__all__ = ["blocks"]


def blocks() -> dict[str, Callable[[], str]]:
    return {
        "built-in functions": _functions,
        "built-in predicates": _predicates,
        "built-in reducers": _reducers,
    }


def _functions() -> str:
    rows = [_row(f.name, _signature(f.params, f.rest), f.result, f.doc) for f in FUNCTIONS.values()]
    rows.sort(key=lambda row: (_family(row[0]), row[0]))
    parts = []
    for family, members in groupby(rows, key=lambda row: _family(row[0])):
        parts += [f"### {family}\n", table(("function", "takes", "gives", "meaning"), members)]
    return "\n".join(parts)


def _predicates() -> str:
    rows = [_row(p.name, _signature(p.params, None), p.modes, p.doc) for p in PREDICATES.values()]
    return table(("predicate", "takes", "modes", "meaning"), sorted(rows))


def _reducers() -> str:
    rows = [_row(r.name, _signature(r.params, r.rest), r.result, r.doc) for r in REDUCERS.values()]
    return table(("reducer", "takes", "gives", "meaning"), sorted(rows))


def _row(name: str, takes: str, gives: str, meaning: str) -> tuple[str, str, str, str]:
    return f"`{name}`", f"`{takes}`", f"`{gives}`", meaning


def _family(name: str) -> str:
    """Return the group of a function: ``fn:time`` for ``fn:time:add``."""
    parts = name.strip("`").split(":")
    return "General" if len(parts) == 2 else ":".join(parts[:2])


def _signature(params: tuple[str, ...], rest: str | None) -> str:
    return ", ".join([*params, *([f"{rest} …"] if rest else [])]) or "nothing"
