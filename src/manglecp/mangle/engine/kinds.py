"""What kinds of values a variable can have, as far as declarations guarantee it.

A plan may move premises only if that can neither add nor lose a run-time error. Most premises cannot raise once the
kinds of their arguments are known: ``X < 5`` is harmless when X is declared a number. Only declared bounds count here,
because facts that arrive later are checked against those and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from manglecp.mangle.builtins import FUNCTIONS, PREDICATES
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.expression_types import signature
from manglecp.mangle.packages import Key
from manglecp.mangle.syntax import Apply, Equality, Literal, Premise, Term, Variable, bound_variables
from manglecp.mangle.types import (
    Base,
    ListType,
    MapType,
    NameType,
    OptionType,
    PairType,
    Singleton,
    StructType,
    Tag,
    Type,
    Union,
)
from manglecp.mangle.values import KIND_NAMES

Kinds: TypeAlias = frozenset[str]
Env: TypeAlias = Mapping[str, Kinds]

ALL: Final[Kinds] = frozenset(KIND_NAMES.values())
ORDERABLE: Final = frozenset({"number", "float64", "string", "name", "time", "duration"})
_BASES: Final = {
    "/number": "number",
    "/float64": "float64",
    "/string": "string",
    "/bytes": "bytes",
    "/time": "time",
    "/duration": "duration",
}
# Functions that cannot fail once every argument has one of these kinds.
_TOTAL: Final[Mapping[str, str]] = {
    "fn:plus": "number",
    "fn:minus": "number",
    "fn:mult": "number",
    "fn:list:len": "list",
    "fn:number:to_string": "number",
    "fn:float64:to_string": "float64",
    "fn:name:to_string": "name",
    "fn:name:root": "name",
    "fn:name:tip": "name",
    "fn:name:list": "name",
    "fn:duration:nanos": "duration",
    "fn:duration:seconds": "duration",
    "fn:duration:minutes": "duration",
    "fn:duration:hours": "duration",
    "fn:time:to_unix_nanos": "time",
    "fn:time:now": "",
}
_NEVER_RAISE: Final = frozenset(
    {":list:member", ":match_cons", ":match_nil", ":match_pair", ":match_entry", ":match_field", ":filter"}
)
_COMPARISONS: Final = frozenset({":lt", ":le", ":gt", ":ge"})


def kinds_of(type_: Type) -> Kinds:
    """The kinds of the members of a type."""
    if isinstance(type_, Base):
        kind = _BASES.get(type_.name)
        return frozenset() if type_.name == "/bot" else ALL if kind is None else frozenset({kind})
    if isinstance(type_, Union):
        return frozenset().union(*map(kinds_of, type_.members))
    if isinstance(type_, OptionType):
        return kinds_of(type_.some)
    if isinstance(type_, NameType | Tag):
        return frozenset({"name"})
    if isinstance(type_, Singleton):
        return frozenset({KIND_NAMES[type(type_.value)]})
    for class_, kind in ((PairType, "pair"), (ListType, "list"), (MapType, "map"), (StructType, "struct")):
        if isinstance(type_, class_):
            return frozenset({kind})
    return ALL


class KindInference:
    """Follows a rule in running order."""

    def __init__(self, predicates: Mapping[Key, Predicate], inputs: Env | None = None) -> None:
        self.predicates = predicates
        self.env: dict[str, Kinds] = dict(inputs or {})

    def of(self, term: Term) -> Kinds:
        """What the term can be, all kinds where nothing is known."""
        if isinstance(term, Variable):
            return self.env.get(term.name, ALL)
        if isinstance(term, Apply):
            function = FUNCTIONS.get(term.function)
            return ALL if function is None else kinds_of(signature((function.result,))[0])
        return frozenset({KIND_NAMES[type(term)]})

    def can_raise(self, premise: Premise) -> bool:
        """May evaluating this premise fail with an error, given what is known so far?"""
        if isinstance(premise, Equality):
            return self.any_can_raise((premise.left, premise.right))
        if self.any_can_raise(premise.atom.args):
            return True
        name = premise.atom.predicate
        if not name.startswith(":"):
            return self._time_can_raise(premise)
        args = [self.of(arg) for arg in premise.atom.args]
        if name in _NEVER_RAISE:
            return False
        if name in _COMPARISONS:
            return not (args[0] == args[1] and len(args[0]) == 1 and args[0] <= ORDERABLE)
        if name == ":match_prefix":
            return args[1] != {"name"}
        if name.startswith(":string:"):
            return args[1] != {"string"}
        wanted = [kinds_of(type_) for type_ in signature(PREDICATES[name].params)]
        return name.startswith(":interval:") or not all(own <= kinds for own, kinds in zip(args, wanted, strict=True))

    def _time_can_raise(self, premise: Literal) -> bool:
        bounds = [] if premise.annotation is None else list(bound_variables(premise.annotation.bounds))
        if any(self.env.get(v.name, frozenset({"time"})) - {"time"} for v in bounds if not v.anonymous):
            return True
        window = [] if premise.operator is None else bound_variables(premise.operator.bounds)
        return any(self.env.get(v.name, ALL) - {"time", "duration"} for v in window)

    def any_can_raise(self, terms: Iterable[Term]) -> bool:
        """Could the value of any of these terms be an error?"""
        return any(isinstance(term, Apply) and self._apply_can_raise(term) for term in terms)

    def _apply_can_raise(self, term: Apply) -> bool:
        kind = _TOTAL.get(term.function)
        if kind is None or self.any_can_raise(term.args) or (term.function == "fn:minus" and not term.args):
            return True
        return any(self.of(arg) != {kind} for arg in term.args)

    def follow(self, premise: Premise) -> None:
        """Note what is known behind a premise."""
        if isinstance(premise, Equality):
            if not premise.negated:
                for one, other in ((premise.left, premise.right), (premise.right, premise.left)):
                    self._meet(one, self.of(other))
        elif not premise.negated:
            self._follow_literal(premise)

    def _follow_literal(self, premise: Literal) -> None:
        atom = premise.atom
        if atom.predicate in _COMPARISONS:
            left, right = atom.args
            common = self.of(left) & self.of(right) & ORDERABLE
            self._meet(left, common)
            self._meet(right, common)
            return
        rows: Iterable[tuple[Type, ...]]
        if atom.predicate.startswith(":"):
            modes = PREDICATES[atom.predicate].modes
            types = signature(PREDICATES[atom.predicate].params)
            for arg, mode, type_ in zip(atom.args, modes, types, strict=True):
                if mode == "-":
                    self._meet(arg, kinds_of(type_))
            return
        rows = self.predicates[atom.key].rows
        for position, arg in enumerate(atom.args):
            column = frozenset().union(*(kinds_of(row[position]) for row in rows)) if rows else ALL
            self._meet(arg, column)
        if premise.annotation is not None:
            for variable in bound_variables(premise.annotation.bounds):
                self._meet(variable, frozenset({"time"}) if variable.name not in self.env else ALL)

    def _meet(self, term: Term, kinds: Kinds) -> None:
        if isinstance(term, Variable) and not term.anonymous:
            self.env[term.name] = self.env.get(term.name, ALL) & kinds
