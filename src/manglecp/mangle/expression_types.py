"""The types of expressions, from the types of what they are made of.

Arithmetic and its reducers want exactly one type. Constructors build theirs from their arguments. Everything else says
in the table of built-ins what it takes and gives; of what it takes only the constructors are compared here, kinds of
constants are left to the run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, TypeAlias

from manglecp.base.source import Source
from manglecp.mangle.builtins import FUNCTIONS
from manglecp.mangle.generic_types import Binding, Types, instantiate, shapes_agree
from manglecp.mangle.parser import parse
from manglecp.mangle.syntax import Apply, Decl, Term, Variable
from manglecp.mangle.types import (
    ANY,
    DURATION,
    EMPTY,
    FLOAT,
    NAME,
    NUMBER,
    STRING,
    TIME,
    ListType,
    MapType,
    PairType,
    StructType,
    Type,
    Union,
    Vocabulary,
    is_large,
    read_type,
    tuple_type,
    union,
    upper,
    widen,
)

State: TypeAlias = dict[str, Type]
"""The type each variable can still have."""

ORDERABLE: Final = (NUMBER, FLOAT, STRING, NAME, TIME, DURATION)
ORDERED: Final = union(ORDERABLE)
EXACT: Final[Mapping[str, Type]] = {
    **dict.fromkeys(("fn:plus", "fn:minus", "fn:mult", "fn:div", "fn:mod", "fn:sum", "fn:min", "fn:max"), NUMBER),
    **dict.fromkeys(("fn:float:plus", "fn:float:mult", "fn:float:div"), FLOAT),
    **dict.fromkeys(("fn:float:sum", "fn:float:min", "fn:float:max"), FLOAT),
    **dict.fromkeys(("fn:duration:sum", "fn:duration:min", "fn:duration:max"), DURATION),
    **dict.fromkeys(("fn:time:min", "fn:time:max"), TIME),
}
"""What takes and gives exactly one type."""


@cache
def signature(types: tuple[str, ...]) -> Types:
    """Parameter types of a built-in, from their text."""
    text = ", ".join(types)
    (decl,) = parse(Source("signature", f"Decl p() bound [{text}].")).items
    assert isinstance(decl, Decl)
    return tuple(read_type(term) for term in decl.bounds[0])


class Expressions:
    """For one program, whose names its vocabulary knows."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.signatures: dict[str, tuple[Types, Type | None, Type]] = {}

    def type_of(self, term: Term, state: State) -> Type:
        """The type of a term; :data:`EMPTY` for an application that cannot be typed."""
        if isinstance(term, Variable):
            return state.get(term.name, ANY)
        if not isinstance(term, Apply):
            return self.vocabulary.constant(term)
        args = [self.type_of(arg, state) for arg in term.args]
        type_ = EMPTY if EMPTY in args else self._apply(term, args)
        return ANY if is_large(type_) else type_

    def _apply(self, term: Apply, args: list[Type]) -> Type:
        name = term.function
        if name == "fn:list":
            return ListType(upper(args))
        if name == "fn:map":
            return MapType(upper(args[::2]), upper(args[1::2]))
        if name == "fn:tuple":
            return tuple_type(args) if args else EMPTY
        if name == "fn:pair":
            return PairType(*args) if len(args) == 2 else EMPTY
        if name == "fn:struct":
            return self._struct(term, args)
        if name == "fn:struct:get":
            return self._field_of(args[0], term.args[1]) if len(args) == 2 else EMPTY
        exact = EXACT.get(name)
        if exact is not None:
            return exact if all(_is_exactly(arg, exact) for arg in args) else EMPTY
        return self._registered(name, args)

    def _struct(self, term: Apply, args: list[Type]) -> Type:
        labels = term.args[::2]
        if len(args) % 2:
            return EMPTY
        if any(isinstance(label, Variable | Apply) for label in labels):
            return ANY
        fields = zip(labels, args[1::2], strict=True)
        return StructType(tuple((label, type_) for label, type_ in fields))  # type: ignore[misc]  # constants only

    def _field_of(self, struct: Type, label: Term) -> Type:
        if isinstance(label, Variable | Apply):
            return EMPTY
        members = struct.members if isinstance(struct, Union) else (struct,)
        found = [m.field(label) if isinstance(m, StructType) else None for m in members]
        present = [type_ for type_ in found if type_ is not None]
        return union(present) if present and all(isinstance(m, StructType) for m in members) else EMPTY

    def _registered(self, name: str, args: list[Type]) -> Type:
        function = FUNCTIONS.get(name)
        if function is None:
            return EMPTY
        params, rest, result = self._function_signature(name)
        wanted = [*params, *([rest] * (len(args) - len(params)) if rest is not None else [])]
        binding: Binding = {}
        for param, arg in zip(wanted, args, strict=False):
            if not shapes_agree(param, arg, binding):
                return EMPTY
        return instantiate(result, binding)

    def misplaced(self, name: str, args: list[Type]) -> tuple[int, Type]:
        """The first argument that keeps a function from having a type, and the type it should have."""
        exact = EXACT.get(name)
        if exact is not None:
            return next((i for i, arg in enumerate(args) if not _is_exactly(arg, exact)), 0), exact
        params = self._function_signature(name)[0]
        binding: Binding = {}
        for position, (param, arg) in enumerate(zip(params, args, strict=False)):
            if not shapes_agree(param, arg, binding):
                return position, param
        return 0, StructType(())  # a struct is wanted

    def _function_signature(self, name: str) -> tuple[Types, Type | None, Type]:
        if name not in self.signatures:
            entry = FUNCTIONS[name]
            rest = None if entry.rest is None else signature((entry.rest,))[0]
            self.signatures[name] = signature(entry.params), rest, signature((entry.result,))[0]
        return self.signatures[name]

    def lenient(self, term: Term, state: State) -> Type:
        """The same where an error at run time is enough: what cannot be typed may be anything."""
        type_ = self.type_of(term, state)
        return ANY if type_ == EMPTY else type_

    def reduced(self, expression: Apply, state: State) -> Type:
        """What a reducer gives for the rows of a group."""
        name = expression.function
        args = [self.lenient(arg, state) for arg in expression.args]
        if name in ("fn:count", "fn:count_distinct"):
            return NUMBER
        if name == "fn:avg":
            return FLOAT
        if name in ("fn:collect", "fn:collect_distinct") and args:
            return ListType(tuple_type(args))
        if name == "fn:collect_to_map" and len(args) == 2:
            return MapType(args[0], args[1])
        if name == "fn:pick_any" and args:
            return args[0]
        exact = EXACT.get(name, ANY)
        return exact if all(_is_exactly(arg, exact) for arg in args) else ANY


def _is_exactly(own: Type, wanted: Type) -> bool:
    """Is this the type that arithmetic wants? Two unknown values that were compared are taken for numbers."""
    return widen(own) == wanted or (wanted == NUMBER and own == ORDERED)
