"""What was derived about one tool, found by its name through the engine's indexes: no relation is scanned."""

from __future__ import annotations

from typing import TypeAlias

from manglecp.mangle import Result, Value, all_rows, finder, order_key

__all__ = ["Lookup", "Row"]

Row: TypeAlias = tuple[Value, ...]


class Lookup:
    """Rows of the predicates of one result. All answers are sorted, so that nothing depends on hash order."""

    __slots__ = ("_find", "_result")

    def __init__(self, result: Result) -> None:
        self._result = result
        self._find = finder(result)

    def rows(self, predicate: str, arity: int, first: Value) -> list[Row]:
        """The facts whose first argument this is."""
        found = self._find((predicate, arity), first)
        return sorted(found, key=_row_order) if len(found) > 1 else found

    def one(self, predicate: str, arity: int, first: Value) -> Row | None:
        """The least of them: what counts where a predicate is single-valued."""
        found = self._find((predicate, arity), first)
        if len(found) > 1:
            return min(found, key=_row_order)
        return found[0] if found else None

    def all(self, predicate: str, arity: int) -> list[Row]:
        """Every fact of a predicate; for predicates of which a request has few."""
        return sorted(all_rows(self._result, (predicate, arity)), key=_row_order)

    def holds(self, predicate: str, *args: Value) -> bool:
        """Is there this very fact?"""
        found = self._find((predicate, len(args)), args[0])
        return args in found


def _row_order(row: Row) -> list[object]:
    return [order_key(value) for value in row]
