"""The types by which declarations bound arguments, and the relations between types.

:func:`read_type` converts a term (``/number``, ``fn:List(/string)``, ``.Struct</id : /number>``) to a type. The checker
uses three relations: *conforms* (subset), *meet* (intersection) and *upper* (least upper bound). :data:`EMPTY` is the
type without values. A tuple type is a pair whose second part is a pair, as tuple values are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from manglecp.base.source import Span
from manglecp.mangle.printer import value_text
from manglecp.mangle.syntax import Apply, Term, Variable
from manglecp.mangle.values import KIND_NAMES, List, Map, Name, Pair, Struct, Value


@dataclass(frozen=True, slots=True)
class Base:
    """A kind of constant: ``/number``, ``/string``, … ; also ``/any`` and ``/bot``."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class NameType:
    """The names strictly below a prefix; with the prefix ``/name`` all names."""

    prefix: str

    def __str__(self) -> str:
        return self.prefix


@dataclass(frozen=True, slots=True)
class Singleton:
    value: Value

    def __str__(self) -> str:
        return f"fn:Singleton({value_text(self.value)})"


@dataclass(frozen=True, slots=True)
class Union:
    """A value of any of the member types. :func:`union` leaves out members that conform to another member."""

    members: tuple[Type, ...]

    def __str__(self) -> str:
        return f"fn:Union({', '.join(map(str, self.members))})"


class Compound:
    """A type constructor with types as arguments, which are the fields of the subclass."""

    __slots__ = ()

    @property
    def inner(self) -> tuple[Type, ...]:
        return tuple([getattr(self, field.name) for field in fields(self)])  # type: ignore[arg-type]  # a dataclass

    def __str__(self) -> str:
        return f"fn:{type(self).__name__.removesuffix('Type')}({', '.join(map(str, self.inner))})"


@dataclass(frozen=True, slots=True)
class PairType(Compound):
    first: Type
    second: Type


@dataclass(frozen=True, slots=True)
class ListType(Compound):
    element: Type


@dataclass(frozen=True, slots=True)
class MapType(Compound):
    key: Type
    value: Type


@dataclass(frozen=True, slots=True)
class StructType:
    """Structs with these fields: labels and types. An optional field may be absent."""

    required: tuple[tuple[Value, Type], ...]
    optional: tuple[tuple[Value, Type], ...] = ()

    def __str__(self) -> str:
        fields = [f"{value_text(label)}, {type_}" for label, type_ in self.required]
        fields += [f"fn:opt({value_text(label)}, {type_})" for label, type_ in self.optional]
        return f"fn:Struct({', '.join(fields)})"

    def field(self, label: Value) -> Type | None:
        """Return the type of a field; None if there is no such field."""
        return next((type_ for field_label, type_ in (*self.required, *self.optional) if field_label == label), None)


@dataclass(frozen=True, slots=True)
class Tag:
    """The type of the tag field in a variant of a tagged union: ``name``, or a name that is known only at run time."""

    name: Name

    def __str__(self) -> str:
        return f"fn:Singleton({self.name.text})"


@dataclass(frozen=True, slots=True)
class TypeVariable:
    name: str

    def __str__(self) -> str:
        return self.name


Type: TypeAlias = Base | NameType | Singleton | Union | PairType | ListType | MapType | StructType | Tag | TypeVariable

ALL_KINDS: Final = frozenset(KIND_NAMES.values())
MAX_DEPTH: Final = 100  # levels of nested types; limited, because the functions below are recursive

ANY: Final = Base("/any")
BOT: Final = Base("/bot")  # conforms to every type; the type of the elements of an empty list
NUMBER: Final = Base("/number")
FLOAT: Final = Base("/float64")
STRING: Final = Base("/string")
BYTES: Final = Base("/bytes")
TIME: Final = Base("/time")
DURATION: Final = Base("/duration")
NAME: Final = NameType("/name")
EMPTY: Final = Union(())  # the result of a meet without common values
BASES: Final[Mapping[str, Type]] = {
    str(base): base for base in (ANY, BOT, NAME, NUMBER, FLOAT, STRING, BYTES, TIME, DURATION)
}
KIND_TYPES: Final = {class_: BASES[f"/{kind}"] for class_, kind in KIND_NAMES.items() if f"/{kind}" in BASES}
_MAX_PARTS: Final = 5_000  # parts of a type; see is_large


class MalformedType(Exception):
    """A term that is not a type."""

    span: Span | None = None


def read_type(term: Term) -> Type:
    """Convert a term to a type. Raises :class:`MalformedType`."""
    if isinstance(term, Variable):
        return ANY if term.anonymous else TypeVariable(term.name)
    if isinstance(term, Name):
        return BASES.get(term.text) or NameType(term.text)
    if not isinstance(term, Apply):
        raise MalformedType(f"{value_text(term)} is not a type")
    reader = _CONSTRUCTORS.get(term.function)
    try:
        if reader is None:
            raise MalformedType(f"{term.function} is not a type constructor")
        return reader(term.args)
    except MalformedType as malformed:
        malformed.span = malformed.span or term.span
        raise


def _read_exactly(count: int, constructor: str, args: tuple[Term, ...]) -> list[Type]:
    if len(args) != count:
        raise MalformedType(f"{constructor} takes {count} argument{'s' if count > 1 else ''}, not {len(args)}")
    return [read_type(arg) for arg in args]


def _read_singleton(args: tuple[Term, ...]) -> Type:
    if len(args) != 1 or isinstance(args[0], Variable | Apply):
        raise MalformedType("fn:Singleton takes one constant")
    return Singleton(args[0])


def _read_union(args: tuple[Term, ...]) -> Type:
    if not args:
        raise MalformedType("fn:Union needs at least one alternative")
    return Union(tuple(read_type(arg) for arg in args))


def _read_tuple(args: tuple[Term, ...]) -> Type:
    if len(args) < 3:
        raise MalformedType("fn:Tuple takes three or more arguments; two make a fn:Pair")
    if len(args) > MAX_DEPTH:
        raise MalformedType(f"fn:Tuple takes at most {MAX_DEPTH} arguments")
    return tuple_type([read_type(arg) for arg in args])


def tuple_type(types: list[Type]) -> Type:
    result = types[-1]
    for part in reversed(types[:-1]):
        result = PairType(part, result)
    return result


def _read_struct(args: tuple[Term, ...]) -> StructType:
    required: list[tuple[Value, Type]] = []
    optional: list[tuple[Value, Type]] = []
    position = 0
    while position < len(args):
        arg = args[position]
        if isinstance(arg, Apply) and arg.function == "fn:opt":
            if len(arg.args) != 2:
                raise MalformedType("fn:opt takes a label and a type")
            optional.append((_label(arg.args[0]), read_type(arg.args[1])))
            position += 1
            continue
        label = _label(arg)
        if position + 1 == len(args):
            raise MalformedType(f"field {label.text} of the struct has no type")
        required.append((label, read_type(args[position + 1])))
        position += 2
    return StructType(tuple(required), tuple(optional))


def _label(term: Term) -> Name:
    if not isinstance(term, Name):
        raise MalformedType("the label of a struct field is a name")
    return term


def _read_tagged_union(args: tuple[Term, ...]) -> Type:
    if len(args) < 3 or len(args) % 2 == 0:
        raise MalformedType("fn:TaggedUnion takes a field and then tags with their structs")
    field = _label(args[0])
    variants: list[Type] = []
    tags: set[Name] = set()
    for tag_term, struct_term in zip(args[1::2], args[2::2], strict=True):
        if not isinstance(tag_term, Name):
            raise MalformedType("a tag of fn:TaggedUnion is a name")
        if tag_term in tags:
            raise MalformedType(f"tag {tag_term.text} occurs twice")
        tags.add(tag_term)
        struct = read_type(struct_term)
        if not isinstance(struct, StructType):
            raise MalformedType(f"the variant of tag {tag_term.text} is not a struct")
        if struct.field(field) is not None:
            raise MalformedType(f"the variant of tag {tag_term.text} has a field {field.text} of its own")
        variants.append(StructType(((field, Tag(tag_term)), *struct.required), struct.optional))
    return Union(tuple(variants))


_CONSTRUCTORS: Final = {
    "fn:Singleton": _read_singleton,
    "fn:Union": _read_union,
    "fn:Pair": lambda args: PairType(*_read_exactly(2, "fn:Pair", args)),
    "fn:Tuple": _read_tuple,
    "fn:List": lambda args: ListType(*_read_exactly(1, "fn:List", args)),
    "fn:Map": lambda args: MapType(*_read_exactly(2, "fn:Map", args)),
    "fn:Struct": _read_struct,
    "fn:Option": lambda args: _read_exactly(1, "fn:Option", args)[0],  # at run time an option is its value
    "fn:TaggedUnion": _read_tagged_union,
}


def describe_type(type_: Type) -> str:
    """Return a type for messages: the alternatives of a union are joined with "or"."""
    return " or ".join(map(str, type_.members)) if isinstance(type_, Union) and type_.members else str(type_)


def kinds_of(type_: Type) -> frozenset[str]:
    """Return the names of the kinds that values of a type can have."""
    if isinstance(type_, Union):
        return frozenset().union(*map(kinds_of, type_.members))
    if isinstance(type_, PairType | ListType | MapType | StructType):
        return frozenset({type(type_).__name__.removesuffix("Type").lower()})
    if isinstance(type_, NameType | Tag):
        return frozenset({"name"})
    if isinstance(type_, Singleton):
        return frozenset({KIND_NAMES[type(type_.value)]})
    if type_ == BOT:
        return frozenset()
    return ALL_KINDS & {str(type_).removeprefix("/")} or ALL_KINDS  # /any and a type variable have all kinds


def parts(type_: Type) -> Iterator[Type]:
    """Yield the type and all types inside it."""
    return (part for part, _ in _walk(type_))


def is_large(type_: Type) -> bool:
    """Return whether a type is too deep or too wide to be checked, as in a recursion that nests its own values."""
    return any(count > _MAX_PARTS or depth > MAX_DEPTH for count, (_, depth) in enumerate(_walk(type_)))


def _walk(type_: Type) -> Iterator[tuple[Type, int]]:
    """Yield every part and its depth; 1 for the type itself."""
    stack = [(type_, 1)]
    while stack:
        part, depth = stack.pop()
        yield part, depth
        stack += [(inner, depth + 1) for inner in _inner(part)]


def _inner(type_: Type) -> Sequence[Type]:
    """Return the types directly inside a type."""
    match type_:
        case Union(members):
            return members
        case Compound():
            return type_.inner
        case StructType(required, optional):
            return [t for _, t in (*required, *optional)]
    return ()


def conforms(left: Type, right: Type) -> bool:
    """Return whether every member of ``left`` is a member of ``right``."""
    if left in (right, BOT) or right == ANY:
        return True
    if isinstance(left, Union):
        return all(conforms(alternative, right) for alternative in left.members)
    if isinstance(right, Union):
        return any(conforms(left, alternative) for alternative in right.members)
    if isinstance(left, TypeVariable):
        left = ANY  # a type variable may have any type
    if isinstance(right, TypeVariable):
        return True
    if isinstance(right, Tag):
        if isinstance(left, Singleton):
            return left.value is right.name  # names are interned
        return isinstance(left, NameType | Tag)
    if isinstance(left, Tag):
        return conforms(Singleton(left.name), right)
    if isinstance(left, Singleton) and not isinstance(left.value, Name):
        return KIND_TYPES.get(type(left.value)) == right
    if isinstance(left, Singleton | NameType) and isinstance(right, NameType):
        name = left.prefix if isinstance(left, NameType) else value_text(left.value)
        return right == NAME or name.startswith(right.prefix + "/")
    if isinstance(left, MapType) and isinstance(right, MapType):
        if not {left.key, left.value}.isdisjoint((BOT, EMPTY)):
            return True  # the only value of ``left`` is the empty map
        # Maps are contravariant in their keys: every key of ``right`` may be looked up in a map of type ``left``.
        return conforms(right.key, left.key) and conforms(left.value, right.value)
    if isinstance(left, StructType) and isinstance(right, StructType):
        return _struct_conforms(left, right)
    if isinstance(left, PairType | ListType) and type(left) is type(right):
        return all(map(conforms, left.inner, _inner(right)))
    return False


def _struct_conforms(left: StructType, right: StructType) -> bool:
    for label, type_ in right.required:
        own_type = next((t for own_label, t in left.required if own_label == label), None)
        if own_type is None or not conforms(own_type, type_):
            return False
    return all((own_type := left.field(label)) is None or conforms(own_type, type_) for label, type_ in right.optional)


def meet(left: Type, right: Type) -> Type:
    """Return the intersection, or :data:`EMPTY`; for two different singletons of the same kind, that kind."""
    if left == right or right == ANY:
        return left
    if left == ANY:
        return right
    if isinstance(left, TypeVariable):
        return right
    if isinstance(right, TypeVariable):
        return left
    if conforms(left, right):
        return left
    if conforms(right, left):
        return right
    if isinstance(left, Union):
        return union(meet(m, right) for m in left.members)
    if isinstance(right, Union):
        return union(meet(left, m) for m in right.members)
    if type(left) is type(right) and isinstance(left, Compound):
        met = [meet(*pair) for pair in zip(left.inner, _inner(right), strict=True)]
        if EMPTY in met and not isinstance(left, ListType | MapType):  # empty lists and maps have both types
            return EMPTY
        return type(left)(*met)
    if isinstance(left, Singleton) or isinstance(right, Singleton):
        wide_left, wide_right = widen(left), widen(right)
        return EMPTY if (wide_left, wide_right) == (left, right) else meet(wide_left, wide_right)
    if isinstance(left, StructType) and isinstance(right, StructType):
        return _struct_meet(left, right)
    return EMPTY


def _struct_meet(left: StructType, right: StructType) -> Type:
    required: dict[Value, Type] = {}
    optional: dict[Value, Type] = {}
    labels = [label for label, _ in (*left.required, *right.required, *left.optional, *right.optional)]
    for label in dict.fromkeys(labels):
        types = [t for t in (left.field(label), right.field(label)) if t is not None]
        met = types[0] if len(types) == 1 else meet(*types)
        if any(label == required_label for required_label, _ in (*left.required, *right.required)):
            if met == EMPTY:
                return EMPTY
            required[label] = met
        elif met != EMPTY:
            optional[label] = met
    return StructType(tuple(required.items()), tuple(optional.items()))


def widen(type_: Type) -> Type:
    """Return the kind of a singleton or tag; return any other type unchanged."""
    if isinstance(type_, Singleton):
        return KIND_TYPES[type(type_.value)]
    return NAME if isinstance(type_, Tag) else type_


def union(types: Iterable[Type]) -> Type:
    """Return the union without members that conform to another member."""
    members: list[Type] = []
    for type_ in _flat(types):
        if not any(conforms(type_, other) for other in members):
            members = [*(other for other in members if not conforms(other, type_)), type_]
    if len(members) == 1:
        return members[0]
    return Union(tuple(sorted(members, key=str)))


def _flat(types: Iterable[Type]) -> Iterator[Type]:
    for type_ in types:
        yield from _flat(type_.members) if isinstance(type_, Union) else (type_,)


def upper(types: Iterable[Type]) -> Type:
    """Return the least upper bound; ``/bot`` if there are no types."""
    result = union(types)
    return BOT if result == EMPTY else result


class Vocabulary:
    """The prefixes of names and the singletons in declared types, which determine how precisely a constant is typed."""

    def __init__(self, declared: Iterable[Type] = ()) -> None:
        self.prefixes: set[str] = set()
        self.singletons: set[Value] = set()
        for type_ in declared:
            for part in parts(type_):
                self._add(part)
        self.max_prefix_length = max(map(len, self.prefixes), default=0)

    def _add(self, part: Type) -> None:
        if isinstance(part, NameType):
            self.prefixes.add(part.prefix)
        elif isinstance(part, Singleton):
            self.singletons.add(part.value)
            if isinstance(part.value, Name):
                self.prefixes.add(part.value.text)
        elif isinstance(part, Tag):
            self.singletons.add(part.name)
        elif isinstance(part, StructType):
            for label, type_ in (*part.required, *part.optional):
                if isinstance(label, Name) and not isinstance(type_, Tag):  # a tag field has no names below
                    self.prefixes.add(label.text)

    def constant(self, value: Value, exact: bool = True) -> Type:
        """Return the type of an atomic value; with ``exact``, a singleton if a declared type mentions the value."""
        if exact and value in self.singletons:
            return Singleton(value)
        if not isinstance(value, Name):
            return KIND_TYPES[type(value)]
        prefix = value.text[: self.max_prefix_length + 1]  # including the slash after the prefix
        while (cut := prefix.rfind("/")) > 0:
            prefix = prefix[:cut]
            if prefix in self.prefixes:
                return NameType(prefix)
        return NAME

    def value(self, value: Value, exact: bool = True, depth: int = 0) -> Type:
        """Return the type of any value; ``exact`` as in :meth:`constant`. Parts deeper than MAX_DEPTH are ``/any``."""
        if depth > MAX_DEPTH:
            return ANY
        if isinstance(value, Pair):
            firsts = [value.first]
            rest = value.second
            while isinstance(rest, Pair):  # a tuple is a chain of pairs
                firsts.append(rest.first)
                rest = rest.second
            if len(firsts) > MAX_DEPTH:
                return PairType(self.value(value.first, exact, depth + 1), ANY)
            return tuple_type([self.value(v, exact, depth + len(firsts)) for v in (*firsts, rest)])
        if isinstance(value, List):
            return ListType(upper(self._distinct_types(value.items, exact, depth)))
        if isinstance(value, Map):
            if not value.entries:
                return MapType(BOT, BOT)
            # Keys are contravariant, so an exact type would accept too few keys.
            keys = upper(self._distinct_types([k for k, _ in value.entries], exact=False, depth=depth))
            return MapType(keys, upper(self._distinct_types([v for _, v in value.entries], exact, depth)))
        if isinstance(value, Struct):
            return StructType(tuple((label, self.value(v, exact, depth + 1)) for label, v in value.entries))
        return self.constant(value, exact)

    def _distinct_types(self, values: Iterable[Value], exact: bool, depth: int) -> list[Type]:
        return list(dict.fromkeys(self.value(v, exact, depth + 1) for v in values))


Types: TypeAlias = tuple[Type, ...]
Binding: TypeAlias = dict[str, Type]  # types of type variables, by name


def has_variables(types: Iterable[Type]) -> bool:
    """Return whether one of the types has type variables."""
    return any(isinstance(part, TypeVariable) for type_ in types for part in parts(type_))


def instantiate(type_: Type, binding: Binding) -> Type:
    """Substitute type variables; unbound variables become ``/any``."""
    if isinstance(type_, TypeVariable):
        return binding.get(type_.name, ANY)
    if isinstance(type_, Compound):
        return type(type_)(*[instantiate(part, binding) for part in type_.inner])
    if isinstance(type_, Union):
        return union(instantiate(m, binding) for m in type_.members)
    if isinstance(type_, StructType):
        return StructType(
            tuple((label, instantiate(t, binding)) for label, t in type_.required),
            tuple((label, instantiate(t, binding)) for label, t in type_.optional),
        )
    return type_


def row_accepts(row: Types, types: Types) -> bool:
    """Return whether the types fit a declared row, with consistent type variables."""
    binding: Binding = {}
    return all(_fits(expected, actual, binding) for expected, actual in zip(row, types, strict=True))


def _fits(expected: Type, actual: Type, binding: Binding) -> bool:
    """Return whether ``actual`` conforms to ``expected``; binds a type variable to the widest type that it matched."""
    if isinstance(expected, TypeVariable):
        bound = binding.get(expected.name)
        widened = widen(actual)
        if bound is None or conforms(bound, widened):
            binding[expected.name] = widened
            return True
        return conforms(widened, bound)
    if has_variables((expected,)):
        return _fits_inside(expected, actual, binding)
    return conforms(actual, expected)


def _fits_inside(expected: Type, actual: Type, binding: Binding) -> bool:
    if isinstance(expected, Union):
        return any(_fits(m, actual, binding) for m in expected.members)
    if isinstance(expected, Compound):
        return type(expected) is type(actual) and all(
            _fits(*pair, binding) for pair in zip(expected.inner, _inner(actual), strict=True)
        )
    if isinstance(expected, StructType) and isinstance(actual, StructType):
        required = dict(actual.required)
        return all(label in required and _fits(t, required[label], binding) for label, t in expected.required) and all(
            (own_type := actual.field(label)) is None or _fits(t, own_type, binding) for label, t in expected.optional
        )
    return False


def match_type(expected: Type, actual: Type, binding: Binding) -> Type:
    """Return the meet of both types; binds the type variables of ``expected``."""
    if isinstance(expected, TypeVariable):
        common = meet(binding.get(expected.name, ANY), actual)
        if common != EMPTY:
            binding[expected.name] = common
        return common
    if not has_variables((expected,)):
        return meet(actual, expected)
    if isinstance(actual, Union):
        return union(match_type(expected, m, binding) for m in actual.members)
    if actual == ANY or isinstance(actual, TypeVariable):
        return instantiate(expected, binding)
    if isinstance(expected, ListType | PairType) and type(actual) is type(expected):
        inner = [match_type(*pair, binding) for pair in zip(expected.inner, _inner(actual), strict=True)]
        return EMPTY if EMPTY in inner else type(expected)(*inner)
    return meet(actual, instantiate(expected, {}))


def shapes_agree(param: Type, arg: Type, binding: Binding) -> bool:
    """Return whether an argument has the type constructors of ``param``; kinds of constants are checked at run time."""
    if isinstance(param, TypeVariable):
        bound = binding.get(param.name)
        binding[param.name] = arg if bound is None else upper((bound, arg))
        return True
    if not isinstance(param, ListType | PairType | MapType):
        return True
    if isinstance(arg, Union):
        return bool(arg.members) and all(shapes_agree(param, alternative, binding) for alternative in arg.members)
    return type(arg) is type(param) and all(
        shapes_agree(*pair, binding) for pair in zip(param.inner, _inner(arg), strict=True)
    )
