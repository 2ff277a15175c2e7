"""The facts that a generator's host sends, as facts: read and checked as the declarations of their predicates say.

A row is an array of a predicate and its values, or a fact object as in a message, which may have a time. A host is
somebody else's word: only what the generator has declared is taken, and what does not fit is named by its predicate and
argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from manglecp.mangle import Acceptance, Fact, Key, Predicate, Value
from manglecp.wire import Fault, Schema, Schemas, read_fact, to_value

__all__ = ["FactRows"]

_SHOWN: Final = 80


class FactRows:
    """Reads the rows of one generator."""

    def __init__(self, predicates: Mapping[Key, Predicate], names: Collection[str]) -> None:
        self._names = frozenset(names)
        declared = {key: predicate for key, predicate in predicates.items() if key[0] in self._names}
        self._schemas = Schemas(declared)
        self._by_key: dict[Key, Schema] = {key: self._schemas.find(*key) for key in declared}
        self._accepts = Acceptance(declared).accepts

    def read(self, rows: Iterable[Any]) -> list[Fact]:
        """:class:`Fault` at the first that is none."""
        by_key, accepts = self._by_key, self._accepts
        found: list[Fact] = []
        for row in rows:
            if type(row) is not list:
                found.append(self._object(row))
                continue
            name, *given = row
            key = (name, len(given)) if type(name) is str else ("", 0)
            schema = by_key.get(key)
            if schema is None:
                raise self._unknown(name, len(given))
            try:
                args = tuple(map(to_value, given, schema.shapes))
                if not accepts(key, args):
                    raise _misfit(schema, args)
            except Fault as fault:
                raise Fault(f"a fact of {name}: {fault.message}", fault.fix) from None
            found.append(Fact(name, args))
        return found

    def _object(self, row: Any) -> Fact:
        name = row.get("pred") if type(row) is dict else None
        if type(name) is not str or name not in self._names:
            raise self._unknown(name, 0)
        try:
            return read_fact(row, self._schemas)
        except Fault as fault:
            raise Fault(f"a fact of {name}: {fault.message}", fault.fix) from None

    def _unknown(self, name: object, arity: int) -> Fault:
        if type(name) is str and name in self._names:
            arities = " or ".join(str(known) for known_as, known in sorted(self._by_key) if known_as == name)
            return Fault(f"a fact of {name} with {arity} values; it takes {arities}")
        shown = name[:_SHOWN] if type(name) is str else "what is no predicate"
        return Fault(f"a fact of {shown}, which it does not declare", "name it in @facts(…)")


def _misfit(schema: Schema, args: tuple[Value, ...]) -> Fault:
    """What the bounds do not take: an argument, or all of them together."""
    for position, value in enumerate(args):
        try:
            schema.check(position, value)
        except Fault as fault:
            return fault
    return Fault("its values do not fit together, as the Decl bounds them")
