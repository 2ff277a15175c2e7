"""The wire schemas of a program's predicates, and the choice of predicates that are published.

A predicate is published if its declaration has a direction: clients assert facts of an ``input`` predicate, receive
facts of an ``output`` predicate, and do both for ``both``. Other predicates are internal. Predicates of the kernel are
never published, so that no client can assert their facts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.strict_json import Fault
from manglecp.base.suggestions import closest_match
from manglecp.mangle import FALSE, TRUE, Key, Predicate, Value, has_variables
from manglecp.mangle.syntax import Atom, Variable
from manglecp.mangle.types import ANY, Singleton, union
from manglecp.wire.messages import UNSET, ArgType, Direction, PredicateSchema
from manglecp.wire.shapes import ANYTHING, Shape, describe

_WORD_END: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(variable: str) -> str:
    """Return the wire name of a variable: ``session_id`` for ``SessionId``."""
    return _WORD_END.sub("_", variable).lower()


@dataclass(frozen=True, slots=True)
class Schema:
    """A predicate on the wire, with one shape for each argument.

    ``arg_names`` is None unless every argument has a unique name. With ``untimed_now``, a client's fact without a time
    holds at the evaluation time only, and a fact that holds already ends at the evaluation time at the latest.
    """

    predicate: str
    shapes: tuple[Shape, ...]
    arg_names: tuple[str, ...] | None = None
    temporal: bool = False
    untimed_now: bool = False

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
    """The schemas of a program's predicates."""

    def __init__(self, predicates: Mapping[Key, Predicate]) -> None:
        self._by_name: dict[str, dict[int, Schema]] = {}  # by name, then by arity
        for predicate in predicates.values():
            self._by_name.setdefault(predicate.name, {})[predicate.arity] = schema_of(predicate)

    def named(self, name: str) -> Mapping[int, Schema]:
        """Return the schemas of a name by arity. Raises :class:`Fault` for an unknown name."""
        by_arity = self._by_name.get(name)
        if by_arity is None:
            similar = closest_match(name, self._by_name)
            fix = f"did you mean {similar}?" if similar else f"declare it: Decl {name}(…)."
            raise Fault(f"unknown predicate {name}", fix)
        return by_arity

    def find(self, name: str, arity: int) -> Schema:
        """Return the schema of a predicate. Raises :class:`Fault` for an unknown name or arity."""
        by_arity = self.named(name)
        if arity not in by_arity:
            arities = " or ".join(map(str, sorted(by_arity)))
            raise Fault(f"{name} takes {arities} argument{'' if arities == '1' else 's'}, not {arity}")
        return by_arity[arity]


def schema_of(predicate: Predicate) -> Schema:
    """Return the declared schema. Without a declaration every argument may have any value."""
    if predicate.decl is None:
        return Schema(predicate.name, (ANYTHING,) * predicate.arity, temporal=predicate.temporal)
    columns = zip(*predicate.rows, strict=True) if predicate.rows else ()  # each row has a bound for every argument
    shapes = tuple(ANYTHING if ANY in column else Shape(union(column)) for column in columns)
    names = tuple(snake_case(arg.name) for arg in predicate.decl.atom.args if isinstance(arg, Variable))
    arg_names = names if "_" not in names and len(set(names)) == predicate.arity else None
    untimed_now = any(atom.predicate == UNTIMED and atom.args == ("now",) for atom in predicate.decl.descr)
    return Schema(predicate.name, shapes, arg_names, predicate.temporal, predicate.temporal and untimed_now)


UNTIMED: Final = "untimed"
"""The descriptor in a declaration that determines when a client's fact without a time holds."""
UNTIMED_MEANINGS: Final = (("now",), ("always",))
"""The possible arguments of ``untimed``."""

UPGRADE: Final = "disclosure_upgrade"
"""A client requests a higher detail level with this predicate; no pack can declare it."""
RESERVED_PREFIX: Final = "_manglecp_"
MAX_NAME_LENGTH: Final = 128

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
_TEXT_KINDS: Final = frozenset({"string", "name", "time", "duration", "bytes"})
_NUMBER_KINDS: Final = frozenset({"number", "float64"})


@dataclass(frozen=True, slots=True)
class PublishedPredicate:
    """A published predicate. With ``has_joint_bounds``, the valid values of an argument depend on other arguments."""

    schema: Schema
    direction: Direction
    arg_types: tuple[ArgType, ...]
    description: str | None = None
    has_joint_bounds: bool = False

    @property
    def assertable(self) -> bool:
        """Whether clients may assert its facts."""
        return self.direction != "output"

    def manifest_entry(self) -> PredicateSchema:
        return PredicateSchema(
            predicate=self.schema.predicate,
            arity=self.schema.arity,
            arg_types=self.arg_types,
            arg_names=self.schema.arg_names or UNSET,
            temporal=self.schema.temporal,
            description=self.description or UNSET,
            direction=self.direction,
            integers=tuple(i for i, shape in enumerate(self.schema.shapes) if shape.kinds == {"number"}) or UNSET,
        )


def is_name(text: str) -> bool:
    """Return whether the protocol allows this name for a published predicate."""
    return len(text) <= MAX_NAME_LENGTH and _NAME.fullmatch(text) is not None


def published_predicates(predicates: Mapping[Key, Predicate], kernel: Collection[str]) -> Iterator[PublishedPredicate]:
    """Yield the published predicates, sorted by name and arity. ``kernel`` are the names that are never published."""
    for (name, _), predicate in sorted(predicates.items()):
        direction = direction_of(predicate)
        if direction is None or name in kernel or name == UPGRADE or not is_name(name):
            continue
        yield publish(predicate, direction)


def publish(predicate: Predicate, direction: Direction) -> PublishedPredicate:
    """Return the published form of a predicate, with this direction."""
    schema = schema_of(predicate)
    arg_types = tuple(map(arg_type, schema.shapes))
    has_joint_bounds = len(predicate.rows) > 1 or has_variables(type_ for row in predicate.rows for type_ in row)
    return PublishedPredicate(schema, direction, arg_types, predicate.doc, has_joint_bounds)


def direction_of(predicate: Predicate) -> Direction | None:
    """Return the declared direction; None without a valid direction."""
    descriptors = _direction_descriptors(predicate)
    args = descriptors[0].args if descriptors else ()
    return next((direction for direction in _DIRECTIONS if args == (direction,)), None)


def _direction_descriptors(predicate: Predicate) -> list[Atom]:
    return [] if predicate.decl is None else [atom for atom in predicate.decl.descr if atom.predicate == "direction"]


def arg_type(shape: Shape) -> ArgType:
    """Return the type of an argument in the manifest; ``any`` if the shape allows several types."""
    are_boolean = [isinstance(member, Singleton) and member.value in (TRUE, FALSE) for member in shape.members]
    if all(are_boolean):
        return "boolean"
    if shape.kinds <= _TEXT_KINDS and not any(are_boolean):
        return "string"
    return "number" if shape.kinds <= _NUMBER_KINDS else "any"


def direction_problems(
    predicates: Mapping[Key, Predicate], kernel: Collection[str], derived: Collection[Key] = ()
) -> list[Diagnostic]:
    """Return diagnostics of declared directions; ``derived`` are the predicates that have rules."""
    diagnostics = []
    for key, predicate in sorted(predicates.items()):
        descriptors = _direction_descriptors(predicate)
        message, fix = _find_problem(predicate, descriptors, kernel, derived)
        if message is not None:
            span = descriptors[-1].span if descriptors else predicate.decl and predicate.decl.span
            diagnostics.append(Diagnostic("analysis", f"{key[0]}: {message}", span or None, fix=fix))
    return diagnostics


def _find_problem(
    predicate: Predicate, descriptors: list[Atom], kernel: Collection[str], derived: Collection[Key]
) -> tuple[str | None, str | None]:
    """Return the message and the fix; None for both if there is no problem."""
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
