"""The wire schemas of a program's predicates, and which of them are published.

A predicate is published by the direction in its declaration: ``input`` comes from clients, ``output`` goes to them,
``both`` does either (DATA-53). Without a direction it is internal. Kernel predicates are never published, so that no
client can assert them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.suggestions import closest_match
from manglecp.mangle import FALSE, TRUE, Key, Predicate, Value, has_variables
from manglecp.mangle.syntax import Atom, Variable
from manglecp.mangle.types import ANY, Singleton, union
from manglecp.wire.messages import UNSET, ArgType, Direction, PredicateSchema
from manglecp.wire.shapes import ANYTHING, Shape, describe
from manglecp.wire.strict_json import Fault

_WORD_END: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(variable: str) -> str:
    """Return the wire name of a variable: ``SessionId`` is ``session_id``."""
    return _WORD_END.sub("_", variable).lower()


@dataclass(frozen=True, slots=True)
class Schema:
    """A predicate on the wire. ``arg_names`` is None unless every argument has a unique name."""

    predicate: str
    shapes: tuple[Shape, ...]
    arg_names: tuple[str, ...] | None = None
    temporal: bool = False
    untimed_now: bool = False
    """Whether a fact without a time holds at the evaluation time, not always."""

    @property
    def arity(self) -> int:
        return len(self.shapes)

    def argument(self, position: int) -> str:
        """Return the name of an argument for messages."""
        return f"argument {position + 1}" if self.arg_names is None else f"argument {self.arg_names[position]}"

    def check(self, position: int, value: Value) -> Value:
        """Return the value. Raises :class:`Fault` if it does not conform to the bound of its argument."""
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
        """Return the schemas of a name by arity. Raises :class:`Fault`."""
        by_arity = self._known.get(name)
        if by_arity is None:
            similar = closest_match(name, self._known)
            fix = f"did you mean {similar}?" if similar else f"declare it: Decl {name}(…)."
            raise Fault(f"unknown predicate {name}", fix)
        return by_arity

    def find(self, name: str, arity: int) -> Schema:
        """Return the predicate. Raises :class:`Fault` with the declared arities."""
        by_arity = self.named(name)
        if arity not in by_arity:
            arities = " or ".join(map(str, sorted(by_arity)))
            raise Fault(f"{name} takes {arities} argument{'' if arities == '1' else 's'}, not {arity}")
        return by_arity[arity]


def schema_of(predicate: Predicate) -> Schema:
    """Return the declared schema. Without a declaration every argument may have any value."""
    columns = zip(*predicate.rows, strict=True) if predicate.rows else ()
    shapes = tuple(ANYTHING if ANY in column else Shape(union(column)) for column in columns)
    if predicate.decl is None:
        return Schema(predicate.name, (ANYTHING,) * predicate.arity, None, predicate.temporal)
    variables = [arg.name for arg in predicate.decl.atom.args if isinstance(arg, Variable)]
    names = tuple(map(snake_case, variables))
    usable = "_" not in names and len(set(names)) == predicate.arity
    untimed_now = any(one.predicate == UNTIMED and one.args == ("now",) for one in predicate.decl.descr)
    return Schema(
        predicate.name, shapes, names if usable else None, predicate.temporal, predicate.temporal and untimed_now
    )


UNTIMED: Final = "untimed"
"""The descriptor of a temporal predicate that states when a client's fact without a time holds."""
UNTIMED_MEANINGS: Final = (("now",), ("always",))

UPGRADE: Final = "disclosure_upgrade"
"""A client requests a higher disclosure level with this predicate; no pack can declare it (OPEN-16)."""
RESERVED_PREFIX: Final = "_manglecp_"
LONGEST_NAME: Final = 128

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
_TEXTS: Final = frozenset({"string", "name", "time", "duration", "bytes"})
_NUMBERS: Final = frozenset({"number", "float64"})


@dataclass(frozen=True, slots=True)
class PublishedPredicate:
    """A published predicate. ``jointly``: whether an argument conforms depends on the others."""

    schema: Schema
    direction: Direction
    arg_types: tuple[ArgType, ...]
    description: str | None = None
    jointly: bool = False

    @property
    def readable(self) -> bool:
        """Whether clients may assert it."""
        return self.direction != "output"

    def manifest_entry(self) -> PredicateSchema:
        """Return the entry of the manifest."""
        schema = self.schema
        return PredicateSchema(
            predicate=schema.predicate,
            arity=schema.arity,
            arg_types=self.arg_types,
            arg_names=schema.arg_names or UNSET,
            temporal=schema.temporal,
            description=self.description or UNSET,
            direction=self.direction,
        )


def is_name(text: str) -> bool:
    """Return whether this is a predicate name of the protocol (DATA-01, DATA-02)."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def published(predicates: Mapping[Key, Predicate], kernel: Collection[str]) -> Iterator[PublishedPredicate]:
    """Yield the published predicates, by name and arity."""
    for (name, _), predicate in sorted(predicates.items()):
        direction = direction_of(predicate)
        if direction is None or name in kernel or name == UPGRADE or not is_name(name):
            continue
        schema = schema_of(predicate)
        arg_types = tuple(map(arg_type, schema.shapes))
        jointly = len(predicate.rows) > 1 or has_variables(type_ for row in predicate.rows for type_ in row)
        yield PublishedPredicate(schema, direction, arg_types, predicate.doc, jointly)


def direction_of(predicate: Predicate) -> Direction | None:
    """Return the declared direction; None if there is none, or no valid one."""
    descriptors = _descriptors(predicate)
    declared = descriptors[0].args if descriptors else ()
    return next((direction for direction in _DIRECTIONS if declared == (direction,)), None)


def _descriptors(predicate: Predicate) -> list[Atom]:
    return [] if predicate.decl is None else [d for d in predicate.decl.descr if d.predicate == "direction"]


def arg_type(shape: Shape) -> ArgType:
    """Return the JSON type of an argument, ``any`` if there are several."""
    booleans = [isinstance(member, Singleton) and member.value in (TRUE, FALSE) for member in shape.members]
    if all(booleans):
        return "boolean"
    if shape.kinds <= _TEXTS and not any(booleans):
        return "string"
    return "number" if shape.kinds <= _NUMBERS else "any"


def direction_problems(
    predicates: Mapping[Key, Predicate], kernel: Collection[str], derived: Collection[Key] = ()
) -> list[Diagnostic]:
    """Return diagnostics of declared directions; ``derived`` are the predicates that have rules."""
    diagnostics = []
    for key, predicate in sorted(predicates.items()):
        descriptors = _descriptors(predicate)
        message, fix = _problem(predicate, descriptors, kernel, derived)
        if message is not None:
            where = descriptors[-1].span if descriptors else predicate.decl and predicate.decl.span
            diagnostics.append(Diagnostic("analysis", f"{key[0]}: {message}", where or None, None, fix))
    return diagnostics


def _problem(
    predicate: Predicate, descriptors: list[Atom], kernel: Collection[str], derived: Collection[Key]
) -> tuple[str | None, str | None]:
    if predicate.name == UPGRADE:
        return "this predicate belongs to the protocol", "give yours another name"
    if not descriptors:
        return None, None
    direction = direction_of(predicate)
    if len(descriptors) > 1 or direction is None:
        choices = ", ".join(f'"{direction}"' for direction in _DIRECTIONS)
        return "direction takes one string, once", f"one of {choices}"
    if predicate.name in kernel:
        return "a predicate of the kernel cannot be published", "leave its direction out"
    if not is_name(predicate.name):
        return "a published name has lower-case letters, digits and underscores, at most 128", "give it another name"
    if direction == "input" and predicate.key in derived:
        return "clients supply it, so that no rule can derive it", 'write direction("both")'
    return None, None
