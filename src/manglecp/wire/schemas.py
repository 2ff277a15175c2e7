"""A predicate as the wire sees it: the names and shapes of its arguments, and whether its facts have a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from manglecp.base.suggestions import closest_match
from manglecp.mangle import Key, Predicate, Value
from manglecp.mangle.syntax import Variable
from manglecp.mangle.types import ANY, union
from manglecp.wire.faults import Fault
from manglecp.wire.shapes import ANYTHING, Shape
from manglecp.wire.values import describe

_WORD_END: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(variable: str) -> str:
    """``SessionId`` is ``session_id`` on the wire."""
    return _WORD_END.sub("_", variable).lower()


@dataclass(frozen=True, slots=True)
class Schema:
    """``arg_names`` is None where not every argument has a name of its own."""

    predicate: str
    shapes: tuple[Shape, ...]
    arg_names: tuple[str, ...] | None = None
    temporal: bool = False

    @property
    def arity(self) -> int:
        """How many arguments its facts have."""
        return len(self.shapes)

    def argument(self, position: int) -> str:
        """What a message calls an argument."""
        return f"argument {position + 1}" if self.arg_names is None else f"argument {self.arg_names[position]}"

    def check(self, position: int, value: Value) -> Value:
        """The value, if the bound of its argument takes it."""
        if not self.shapes[position].accepts(value):
            message = f"{self.argument(position)} of {self.predicate} takes {self.shapes[position]}"
            raise Fault(f"{message}, not {describe(value)}")
        return value


class Schemas:
    """The predicates of a program."""

    def __init__(self, predicates: Mapping[Key, Predicate]) -> None:
        self._known: dict[str, dict[int, Schema]] = {}
        for predicate in predicates.values():
            self._known.setdefault(predicate.name, {})[predicate.arity] = schema_of(predicate)

    def named(self, name: str) -> Mapping[int, Schema]:
        """By number of arguments; most predicates have one."""
        found = self._known.get(name)
        if found is None:
            similar = closest_match(name, self._known)
            fix = f"did you mean {similar}?" if similar else f"declare it: Decl {name}(…)."
            raise Fault(f"unknown predicate {name}", fix)
        return found

    def find(self, name: str, arity: int) -> Schema:
        """The predicate of this name and arity; a :class:`Fault` says which arities there are."""
        by_arity = self.named(name)
        if arity not in by_arity:
            known = " or ".join(map(str, sorted(by_arity)))
            raise Fault(f"{name} takes {known} argument{'' if known == '1' else 's'}, not {arity}")
        return by_arity[arity]


def schema_of(predicate: Predicate) -> Schema:
    """What the declaration says. Without one every argument may be anything."""
    columns = zip(*predicate.rows, strict=True) if predicate.rows else ()
    shapes = tuple(ANYTHING if ANY in column else Shape(union(column)) for column in columns)
    if predicate.decl is None:
        return Schema(predicate.name, (ANYTHING,) * predicate.arity, None, predicate.temporal)
    variables = [arg.name for arg in predicate.decl.atom.args if isinstance(arg, Variable)]
    names = tuple(map(snake_case, variables))
    usable = "_" not in names and len(set(names)) == predicate.arity
    return Schema(predicate.name, shapes, names if usable else None, predicate.temporal)
