"""Tools that no request can change are put together when a pack is loaded, so that a flaw is told then.

A tool is settled if only facts say what its chain is: no rule of the pack could add a step or an argument to it. What
depends on a request is put together when it is proven, and a flaw keeps the tool out of that answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.chain import PREDICATES, chain
from manglecp.intent.definition import Flaw
from manglecp.mangle import Base, Key, Program, Value, argument_span, order_key
from manglecp.mangle.explain import Dependence
from manglecp.mangle.syntax import Clause, Variable
from manglecp.pack import Pack

__all__ = ["changing", "flawed_tools"]

_OF_REQUEST: Final = frozenset({"intent", "intent_param", "client", "client_permission", "client_trust"})


def changing(program: Program, readable: Iterable[str]) -> set[Key]:
    """What a request can add to or take from; ``readable`` are the predicates that clients may state."""
    names = {*readable, *_OF_REQUEST}
    return Dependence(program).affects(key for key in program.predicates if key[0] in names)


def flawed_tools(pack: Pack, base: Base, clauses: Sequence[Clause]) -> Iterator[Diagnostic]:
    """The settled tools whose facts make no chain."""
    open_tools = {_tool(clause) for clause in clauses if clause.premises and clause.head.key in PREDICATES.items()}
    if None in open_tools:
        return  # some rule may speak of any tool
    for clause in clauses:
        tool = _tool(clause)
        if clause.head.key != ("macro", 2) or not isinstance(tool, str) or tool in open_tools:
            continue
        open_tools.add(tool)  # once is enough
        rows = {name: _rows(base, (name, arity), tool) for name, arity in PREDICATES.items()}
        if not rows["macro_step"] or any(action not in pack.actions for _, _, action in rows["macro_step"]):
            continue  # never offered, and told elsewhere
        try:
            chain(tool, rows, pack.actions)
        except Flaw as flaw:
            span = argument_span(clause.head, 0)
            message = f"the tool {tool!r} is never offered: {flaw.message}"
            yield Diagnostic("analysis", message, span, None, flaw.fix)


def _tool(clause: Clause) -> object:
    """The tool that a clause speaks of; None if it may be any."""
    first = clause.head.args[0] if clause.head.args else None
    return None if isinstance(first, Variable) else first


def _rows(base: Base, key: Key, tool: str) -> list[tuple[Value, ...]]:
    found: Iterable[tuple[Value, ...]] = base.layer.facts[base.compiled.ids[key]].index((0,)).get(tool, ())
    return sorted(found, key=lambda row: [order_key(value) for value in row])
