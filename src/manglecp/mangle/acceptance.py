"""Whether a declaration takes a fact. Most speak of kinds of values only, so that a look at the kinds is enough."""

from __future__ import annotations

from collections.abc import Mapping

from manglecp.mangle.declarations import Predicate
from manglecp.mangle.generic_types import row_accepts
from manglecp.mangle.packages import Key
from manglecp.mangle.types import NAME, Base, Type, Vocabulary
from manglecp.mangle.values import INT_MAX, INT_MIN, KINDS, Value


class Acceptance:
    """The declarations of one program, asked for many facts."""

    def __init__(self, predicates: Mapping[Key, Predicate]) -> None:
        self.predicates = predicates
        self.vocabulary = Vocabulary(t for p in predicates.values() for row in p.rows for t in row)
        # Combinations of kinds that a predicate takes whatever the values are.
        self._accepted: dict[Key, set[tuple[type, ...]]] = {}

    def accepts(self, key: Key, args: tuple[Value, ...]) -> bool:
        """Does the predicate take these arguments? One without a declaration takes any values."""
        for arg in args:
            if type(arg) is str:
                if not arg.isascii() and not is_text(arg):
                    return False
            elif type(arg) is int and not INT_MIN <= arg <= INT_MAX:
                return False
        kinds = tuple(map(type, args))
        accepted = self._accepted.get(key)
        if accepted is None:
            accepted = self._accepted[key] = set()
        if kinds in accepted:
            return True
        if any(kind not in KINDS for kind in kinds):
            return False
        predicate = self.predicates[key]
        if predicate.decl is None:
            accepted.add(kinds)
            return True
        if not any(row_accepts(row, self.types(args)) for row in predicate.rows):
            return False
        if all(isinstance(t, Base) or t == NAME for row in predicate.rows for t in row):
            accepted.add(kinds)
        return True

    def types(self, args: tuple[Value, ...]) -> tuple[Type, ...]:
        """The most exact type of each value."""
        return tuple(self.vocabulary.value(arg) for arg in args)


def is_text(value: str) -> bool:
    """Python's strings may hold halves of characters, which no encoding can write."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
