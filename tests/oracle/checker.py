"""A second, plain implementation of the bounds checker, to compare the one in `src` with.

It is written from the description of the language alone and shares only the parser with the implementation. It tells
whether a program is refused for its types, provided that it passes every other analysis. Temporal premises, modes, type
variables, tagged unions, options and tuples are not covered; `tests/oracle/programs.py` writes none.

A type is a name (`/number`, `/any`, a prefix), or a tuple of a constructor and its parts:

    ("Const", c)            the type of the constant `c` in an expression; it conforms to what `c` is a member of
    ("Singleton", c)        as declared
    ("Union", T, …)         ("Union",) is the empty type
    ("List", T)   ("Pair", S, T)   ("Map", K, V)
    ("Struct", (label, T, required), …)

A state is a mapping of variables to types. Every premise replaces each state by its successors, one for each possible
alternative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from manglecp.mangle import syntax
from manglecp.mangle.syntax import Apply, Atom, Clause, Equality, Key, Premise, Term, Unit, Variable, term_variables
from manglecp.mangle.values import Bytes, Float, Name

Type: TypeAlias = Any  # a name, or a tuple of a constructor and its parts
Row: TypeAlias = tuple[Type, ...]
State: TypeAlias = dict[str, Type]

EMPTY: Final = ("Union",)
BASE_TYPES: Final = frozenset({"/any", "/bot", "/number", "/float64", "/string", "/bytes", "/time", "/duration"})
NOT_PREFIXES: Final = BASE_TYPES - {"/time", "/duration"}
ORDERED: Final = ("/number", "/float64", "/string", "/name", "/time", "/duration")
KINDS: Final = {int: "/number", str: "/string", Float: "/float64", Bytes: "/bytes"}
ANY_LIST: Final = ("List", "/any")

ARITHMETIC: Final = {
    **dict.fromkeys(("fn:plus", "fn:minus", "fn:mult", "fn:div", "fn:mod", "fn:sum", "fn:min", "fn:max"), "/number"),
    **dict.fromkeys(("fn:float:plus", "fn:float:mult", "fn:float:div"), "/float64"),
}
RESULTS: Final = {  # of functions whose arguments have base types, which are not compared
    "fn:string:concat": "/string",
    "fn:string:lower": "/string",
    "fn:string:len": "/number",
    "fn:string:split": ("List", "/string"),
    "fn:name:root": "/name",
    "fn:count": "/number",
}
KIND_TESTS: Final = {
    **{f":is_{kind}": f"/{kind}" for kind in ("string", "number", "float64", "name", "bytes", "time", "duration")},
    ":is_list": ANY_LIST,
    ":is_map": ("Map", "/any", "/any"),
    ":is_struct": ("Struct",),
    ":is_pair": ("Pair", "/any", "/any"),
    ":is_null": ("Singleton", Name("/null")),
}
INPUTS: Final = {  # of built-ins with outputs: the positions that need a value
    ":list:member": (1,),
    ":list:enumerate": (0,),
    ":match_index": (0, 1),
    ":match_path": (0, 1),
    ":match_cons": (0,),
    ":match_pair": (0,),
    ":match_entry": (0, 1),
    ":match_field": (0, 1),
}


class Refused(Exception):
    """The program is refused; the text says why."""


def refusal(unit: Unit) -> str | None:
    """Return why the types of the program are wrong, or None."""
    try:
        Checker(unit).check()
    except Refused as refused:
        return str(refused)
    return None


# Types ---------------------------------------------------------------------------------------------------------------


def is_constant(term: Term) -> bool:
    return not isinstance(term, (Variable, Apply))


def is_below(name: str, prefix: str) -> bool:
    return name.startswith(prefix + "/")


def is_member(constant: Any, type_: Type) -> bool:
    """Whether a scalar constant belongs to the type."""
    if isinstance(type_, tuple):
        if type_[0] == "Union":
            return any(is_member(constant, part) for part in type_[1:])
        return type_[0] in ("Singleton", "Const") and bool(type_[1] == constant)
    if type_ == "/any":
        return True
    if not isinstance(constant, Name):
        return bool(type_ == KINDS[type(constant)])
    return type_ == "/name" or (type_ not in BASE_TYPES and is_below(constant.text, type_))


def shape(type_: Type) -> str | None:
    return type_[0] if isinstance(type_, tuple) else None


def fields(struct: Type) -> dict[Any, tuple[Type, bool]]:
    return {label: (type_, required) for label, type_, required in struct[1:]}


def parts(type_: Type) -> tuple[Type, ...]:
    """Return the alternatives of a union, without inner unions; of another type, the type."""
    if shape(type_) != "Union":
        return (type_,)
    return tuple(part for member in type_[1:] for part in parts(member))


def conforms(left: Type, right: Type) -> bool:
    if left == right or right == "/any" or left == "/bot":
        return True
    if shape(left) == "Union":
        return all(conforms(part, right) for part in left[1:])
    if shape(right) == "Union" and any(conforms(left, part) for part in right[1:]):
        return True
    if isinstance(left, str) and isinstance(right, str):
        return left not in BASE_TYPES and right not in BASE_TYPES and (right == "/name" or is_below(left, right))
    if shape(left) in ("Singleton", "Const"):
        return is_member(left[1], right)
    if shape(left) is None or shape(left) != shape(right):
        return False
    match left[0]:
        case "List" | "Pair":
            return all(map(conforms, left[1:], right[1:]))
        case "Map":
            return left == ("Map", "/bot", "/bot") or (conforms(right[1], left[1]) and conforms(left[2], right[2]))
        case "Struct":
            return has_fields(fields(left), fields(right))
    return False


def has_fields(left: dict[Any, tuple[Type, bool]], right: dict[Any, tuple[Type, bool]]) -> bool:
    absent = ("/bot", False)
    found = ((*left.get(label, absent), *field) for label, field in right.items())
    return all(conforms(own, type_) and present >= required for own, present, type_, required in found)


def is_within(type_: Type, prefix: str) -> bool:
    """Whether every name of the type is longer than the prefix and begins with it, as `:match_prefix` compares them."""
    if isinstance(type_, str):
        return type_ not in BASE_TYPES and type_ != "/name" and type_.startswith(prefix)
    constant = type_[1] if type_[0] == "Singleton" else None
    return isinstance(constant, Name) and constant.text.startswith(prefix) and constant.text != prefix


def upper(types: Iterable[Type]) -> Type:
    """Return the upper bound: `/any`, or the union of the types that conform to no other."""
    flat = list(dict.fromkeys(part for type_ in types for part in parts(type_)))
    if "/any" in flat:
        return "/any"
    kept: list[Type] = []
    for position, type_ in enumerate(flat):
        others = kept + flat[position + 1 :]
        if not any(conforms(type_, other) for other in others):
            kept.append(type_)
    return kept[0] if len(kept) == 1 else ("Union", *kept)


# The checker ---------------------------------------------------------------------------------------------------------


class Checker:
    def __init__(self, unit: Unit) -> None:
        self.clauses: dict[Key, list[Clause]] = {}
        for clause in unit.clauses:
            self.clauses.setdefault(clause.head.key, []).append(clause)
        self.prefixes = {name for decl in unit.decls for bound in decl.bounds for name in names_in(bound)}
        self.declared: dict[Key, list[Row]] = {
            decl.atom.key: [tuple(map(read_type, bound)) for bound in decl.bounds] or [("/any",) * len(decl.atom.args)]
            for decl in unit.decls
        }
        self.inferred: dict[Key, list[Row]] = {}
        self.under_way: set[Key] = set()

    def check(self) -> None:
        for key in sorted(self.clauses):
            if key in self.declared:
                for clause in self.clauses[key]:
                    self.check_clause(clause, self.declared[key])
            else:
                self.rows(key)

    def check_clause(self, clause: Clause, declared: Sequence[Row]) -> None:
        """Every alternative of the clause conforms to one of the declared rows."""
        for row in self.head_rows(clause):
            if not any(all(map(conforms, row, bound)) for bound in declared):
                raise Refused(f"{clause.head.predicate} takes {declared}, not {row}")

    def rows(self, key: Key) -> list[Row]:
        """Return the alternatives of a predicate; those of an undeclared one are inferred at its first use."""
        if key in self.declared:
            return self.declared[key]
        if key in self.under_way:
            return [("/any",) * key[1]]
        if key not in self.inferred:
            self.under_way.add(key)
            found = [row for clause in self.clauses[key] for row in self.head_rows(clause)]
            self.inferred[key] = list(dict.fromkeys(tuple(map(self.widen, row)) for row in found))
            self.under_way.discard(key)
        return self.inferred[key]

    def head_rows(self, clause: Clause) -> Iterator[Row]:
        states: list[State] = [{}]
        for premise in in_order(clause.premises):
            states = distinct(next_state for state in states for next_state in self.successors(premise, state))
            if not states:
                raise Refused(f"no types work for {premise} of {clause.head.predicate}")
        for state in states:
            for transform in clause.transforms:
                for let in transform.lets:
                    state[let.variable.name] = self.type_of(let.expression, state, lenient=True)
            yield tuple(self.type_of(term, state, lenient=True) for term in clause.head.args)

    # Types that depend on the declared names

    def widen(self, type_: Type) -> Type:
        """Return the type with each constant replaced by the type of its kind."""
        match type_:
            case ("Const", Name() as name):
                above = [prefix for prefix in self.prefixes if is_below(name.text, prefix)]
                return max(above, key=len, default="/name")
            case ("Const", constant):
                return KINDS[type(constant)]
            case ("Union", *members):
                return upper(map(self.widen, members))
            case ("Struct", *members):
                return ("Struct", *((label, self.widen(part), required) for label, part, required in members))
            case ("List" | "Pair" | "Map" as constructor, *members):
                return (constructor, *map(self.widen, members))
        return type_

    def meet(self, left: Type, right: Type) -> Type:
        if left == right or right == "/any":
            return left
        if left == "/any":
            return right
        if conforms(left, right):
            return left
        if conforms(right, left):
            return right
        if shape(left) == "Union" or shape(right) == "Union":
            meets = (self.meet(a, b) for a in parts(left) for b in parts(right))
            return upper(found for found in meets if found != EMPTY)
        if shape(left) == "Const" or shape(right) == "Const":
            wide = self.widen(left), self.widen(right)
            return EMPTY if wide == (left, right) else self.meet(*wide)
        if shape(left) is None or shape(left) != shape(right):
            return EMPTY
        match left[0]:
            case "List" | "Map":  # the empty list is in every list type
                return (left[0], *map(self.meet, left[1:], right[1:]))
            case "Pair":
                both = tuple(map(self.meet, left[1:], right[1:]))
                return EMPTY if EMPTY in both else ("Pair", *both)
            case "Struct":
                return self.meet_structs(fields(left), fields(right))
        return EMPTY

    def meet_structs(self, left: dict[Any, tuple[Type, bool]], right: dict[Any, tuple[Type, bool]]) -> Type:
        found = []
        for label in dict.fromkeys((*left, *right)):
            a, a_required = left.get(label, ("/any", False))
            b, b_required = right.get(label, ("/any", False))
            both, required = self.meet(a, b), a_required or b_required
            if both == EMPTY and required:
                return EMPTY
            found.append((label, both, required))
        return ("Struct", *sorted(found, key=lambda field: str(field[0])))

    def type_of(self, term: Term, state: State, lenient: bool = False) -> Type:
        """Return the type of an expression; an ill-typed application has the empty type, or `/any` if `lenient`."""
        if isinstance(term, Variable):
            return state.get(term.name, "/any")
        if not isinstance(term, Apply):
            return ("Const", term)
        args = [self.type_of(arg, state, lenient) for arg in term.args]
        found = EMPTY if EMPTY in args else self.result(term, args)
        return "/any" if lenient and found == EMPTY else found

    def result(self, term: Apply, args: list[Type]) -> Type:
        match term.function:
            case name if name in ARITHMETIC:
                return ARITHMETIC[name] if all(self.is_exactly(arg, ARITHMETIC[name]) for arg in args) else EMPTY
            case name if name in RESULTS:
                return RESULTS[name]
            case "fn:list":
                return ("List", upper(args) if args else "/bot")
            case "fn:pair":
                return ("Pair", *args)
            case "fn:map":
                return ("Map", self.widen(upper(args[::2])), upper(args[1::2])) if args else ("Map", "/bot", "/bot")
            case "fn:struct":
                labels = term.args[::2]
                return ("Struct", *sorted(((a, b, True) for a, b in zip(labels, args[1::2], strict=True)), key=str))
            case "fn:struct:get":
                return self.field(args[0], term.args[1])
            case "fn:list:len":
                return "/number" if self.elements(args[0]) else EMPTY
            case "fn:list:cons" | "fn:list:append" as name:
                element, rest = args if name == "fn:list:cons" else reversed(args)
                return ("List", upper((element, *self.elements(rest)))) if self.elements(rest) else EMPTY
            case "fn:collect":
                return ("List", self.widen(args[0]))
        raise NotImplementedError(term.function)

    def is_exactly(self, type_: Type, expected: Type) -> bool:
        """Whether arithmetic takes the type. What is only known to be ordered counts as a number."""
        return bool(self.widen(type_) == expected) or (expected == "/number" and type_ == ("Union", *ORDERED))

    def elements(self, type_: Type) -> list[Type]:
        """Return the element types of a list type or a union of them; nothing if it is not certainly a list."""
        lists = parts(type_)
        return [part[1] for part in lists] if all(shape(part) == "List" for part in lists) else []

    def field(self, type_: Type, label: Term) -> Type:
        """Return the type of the field in the alternatives that have it."""
        return upper(
            fields(part)[label][0] for part in parts(type_) if shape(part) == "Struct" and label in fields(part)
        )

    # Premises

    def successors(self, premise: Premise, state: State) -> Iterator[State]:
        if isinstance(premise, Equality):
            yield from self.unequal(premise, state) if premise.negated else self.equal(premise, state)
            return
        atom = premise.atom
        match atom.predicate:
            case ":match_prefix":
                found = self.match_prefix(atom, state, premise.negated)
            case ":match_field":
                found = self.match_field(atom, state)
            case name if name in KIND_TESTS:
                found = self.test_kind(atom, state, premise.negated)
            case ":lt" | ":le" | ":gt" | ":ge":
                found = self.compare(atom, state)
            case _:
                found = list(self.feasible(atom.args, self.premise_rows(atom, state), state))
        if not premise.negated or atom.predicate == ":match_prefix" or atom.predicate in KIND_TESTS:
            yield from found
        elif found:
            yield state

    def feasible(self, args: Sequence[Term], rows: Iterable[Row], state: State) -> Iterator[State]:
        for row in rows:
            refined = dict(state)
            for arg, type_ in zip(args, row, strict=True):
                if is_constant(arg):
                    if not is_member(arg, type_):
                        break
                elif isinstance(arg, Variable):
                    both = self.meet(refined.get(arg.name, "/any"), type_)
                    if both == EMPTY:
                        break
                    if not arg.anonymous:
                        refined[arg.name] = both
            else:
                yield refined

    def premise_rows(self, atom: Atom, state: State) -> list[Row]:
        name, args = atom.predicate, atom.args
        if not name.startswith(":"):
            return self.rows(atom.key)
        match name:
            case ":string:contains" | ":string:matches" | ":string:has_word":
                return [("/string", "/string")]
            case ":match_nil":
                return [(ANY_LIST,)]
            case ":list:member":
                return [(made[1], made) for made in self.alternatives(args[1], state, ANY_LIST)]
            case ":list:enumerate" | ":match_index":
                return [(made, "/number", made[1]) for made in self.alternatives(args[0], state, ANY_LIST)]
            case ":match_path":
                return [("/any", ANY_LIST, "/any")]
            case ":match_cons":
                return [(made, made[1], made) for made in self.alternatives(args[0], state, ANY_LIST)]
            case ":match_pair":
                return [
                    (made, made[1], made[2]) for made in self.alternatives(args[0], state, ("Pair", "/any", "/any"))
                ]
            case ":match_entry":
                key = self.type_of(args[1], state)
                maps = self.alternatives(args[0], state, ("Map", "/any", "/any"))
                return [("/any", "/any", made[2]) for made in maps if self.meet(key, made[1]) != EMPTY]
        raise NotImplementedError(name)

    def alternatives(self, arg: Term, state: State, wanted: Type) -> list[Type]:
        """Return the alternatives of the argument that have the shape that the built-in takes apart."""
        made = self.type_of(arg, state)
        if made == "/any":
            return [wanted]
        found = [part for part in parts(made) if shape(part) == wanted[0]]
        if "/bot" in parts(made) and wanted[0] != "Map":  # conforms to every list and pair
            found.append(wanted)
        return [wanted] if isinstance(arg, Apply) and not found else found  # an expression is not checked

    def compare(self, atom: Atom, state: State) -> list[State]:
        """Both sides are restricted to the kinds that they have in common; here expressions count too."""
        types = [self.type_of(arg, state, lenient=True) for arg in atom.args]
        kinds = [kind for kind in ORDERED if all(self.meet(type_, kind) != EMPTY for type_ in types)]
        common = kinds[0] if len(kinds) == 1 else ("Union", *kinds)
        names = [arg.name for arg in atom.args if isinstance(arg, Variable)]
        return [{**state, **{name: self.meet(state.get(name, "/any"), common) for name in names}}] if kinds else []

    def match_field(self, atom: Atom, state: State) -> list[State]:
        made = self.type_of(atom.args[0], state)
        type_ = "/any" if made == "/any" else self.field(made, atom.args[1])
        return [] if type_ == EMPTY else list(self.feasible(atom.args[2:], [(type_,)], state))

    def match_prefix(self, atom: Atom, state: State, negated: bool) -> list[State]:
        variable, prefix = atom.args
        assert isinstance(variable, Variable)
        assert isinstance(prefix, Name)
        found = state.get(variable.name, "/any")
        if found == "/any":
            return [state] if negated else [{**state, variable.name: prefix.text}]
        left = [narrowed for part in parts(found) if (narrowed := self.below(part, prefix.text)) != EMPTY]
        if negated and left:
            left = [part for part in parts(found) if not is_within(self.widen(part), prefix.text)]
        return [{**state, variable.name: upper(left)}] if left else []

    def test_kind(self, atom: Atom, state: State, negated: bool) -> list[State]:
        """A kind test keeps what may have the kind; a negated one what may have another."""
        (variable,) = atom.args
        assert isinstance(variable, Variable)
        kind, found = KIND_TESTS[atom.predicate], parts(state.get(variable.name, "/any"))
        if negated:
            left = [part for part in found if part == "/bot" or not conforms(part, kind)]
        else:
            left = [both for part in found if (both := self.meet(part, kind)) != EMPTY]
        return [{**state, variable.name: upper(left)}] if left else []

    def below(self, type_: Type, prefix: str) -> Type:
        """Return what of the type may begin with the prefix, which need not end at a slash."""
        return type_ if is_within(self.widen(type_), prefix) else self.meet(type_, prefix)

    def equal(self, premise: Equality, state: State) -> Iterator[State]:
        left, right = premise.left, premise.right
        types = self.type_of(left, state), self.type_of(right, state)
        variables = [side.name for side in (left, right) if isinstance(side, Variable)]
        both = self.meet(*types)
        if EMPTY not in types and (both != EMPTY or not variables):
            yield {**state, **dict.fromkeys(variables, both)}

    def unequal(self, premise: Equality, state: State) -> Iterator[State]:
        sides = premise.left, premise.right
        both = self.meet(*(self.widen(self.type_of(side, state)) for side in sides))
        variables = [side.name for side in sides if isinstance(side, Variable)]
        if both != EMPTY:
            yield {**state, **{name: self.meet(state.get(name, "/any"), both) for name in variables}}


# Reading a program ---------------------------------------------------------------------------------------------------


def in_order(premises: Sequence[Premise]) -> Iterator[Premise]:
    """Yield the premises in textual order, each as soon as its inputs have values."""
    waiting, bound = list(premises), set[str]()
    while waiting:
        ready = next(premise for premise in waiting if is_ready(premise, bound))
        waiting.remove(ready)
        yield ready
        terms = (ready.left, ready.right) if isinstance(ready, Equality) else ready.atom.args
        bound |= variables_of(terms)


def variables_of(terms: Iterable[Term]) -> set[str]:
    return {variable.name for variable in term_variables(*terms) if not variable.anonymous}


def is_ready(premise: Premise, bound: set[str]) -> bool:
    if isinstance(premise, Equality):
        sides = premise.left, premise.right
        missing = [side for side in sides if variables_of([side]) - bound]
        return not missing or (not premise.negated and len(missing) == 1 and isinstance(missing[0], Variable))
    args = premise.atom.args
    if premise.negated:
        needed: Iterable[Term] = args
    elif premise.atom.predicate.startswith(":"):
        needed = [args[i] for i in INPUTS.get(premise.atom.predicate, range(len(args)))]
    else:
        needed = [arg for arg in args if isinstance(arg, Apply)]
    return variables_of(needed) <= bound


def distinct(states: Iterable[State]) -> list[State]:
    return list({frozenset(state.items()): state for state in states}.values())


def names_in(bound: Iterable[Term]) -> Iterator[str]:
    """Yield the names that are prefixes for the type of a name."""
    return (term.text for term in syntax.subterms(*bound) if isinstance(term, Name) and term.text not in NOT_PREFIXES)


def read_type(term: Term) -> Type:
    if isinstance(term, Name):
        return term.text
    assert isinstance(term, Apply), term
    match term.function.removeprefix("fn:"):
        case "Singleton":
            return ("Singleton", term.args[0])
        case "Union" | "List" | "Pair" | "Map" as constructor:
            return (constructor, *map(read_type, term.args))
        case "Struct":
            return ("Struct", *sorted(read_fields(iter(term.args)), key=str))
    raise NotImplementedError(term.function)


def read_fields(args: Iterator[Term]) -> Iterator[tuple[Term, Type, bool]]:
    for arg in args:
        if isinstance(arg, Apply):
            yield arg.args[0], read_type(arg.args[1]), False
        else:
            yield arg, read_type(next(args)), True
