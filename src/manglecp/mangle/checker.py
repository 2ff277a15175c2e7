"""The bounds checker: rejects rules that pass a predicate what its declaration forbids.

For each rule, in running order, it keeps the possible types of every variable. A predicate has alternatives: its
declared rows, or what its facts and rules yield. Each premise splits the states by alternative and drops impossible
ones; a rule without a state is rejected. At the end the head must fit a declared row in every state.

Only provable errors are rejected: an application without a type is an error in a body, but ``/any`` in a head or
``let``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.mangle import printer
from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS
from manglecp.mangle.declarations import Acceptance, Predicate
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.parser import argument_span, parse
from manglecp.mangle.syntax import (
    Apply,
    Atom,
    Clause,
    Equality,
    Key,
    Literal,
    Premise,
    Term,
    Transform,
    Variable,
    bound_variables,
)
from manglecp.mangle.types import (
    ANY,
    BOT,
    DURATION,
    EMPTY,
    FLOAT,
    NAME,
    NUMBER,
    STRING,
    TIME,
    Binding,
    ListType,
    MapType,
    NameType,
    PairType,
    Singleton,
    StructType,
    Tag,
    Type,
    Types,
    TypeVariable,
    Union,
    Vocabulary,
    conforms,
    describe_type,
    has_variables,
    instantiate,
    is_large,
    match_type,
    meet,
    member,
    read_type,
    row_accepts,
    shapes_agree,
    tuple_type,
    union,
    upper,
    widen,
)
from manglecp.mangle.values import Name

if TYPE_CHECKING:
    from manglecp.mangle.program import GivenFact, Rule


# Arithmetic and its reducers need exactly one type, constructors build theirs from their arguments. For other built-ins
# only type constructors are compared; kinds of constants are checked at run time.
State: TypeAlias = dict[str, Type]  # the possible type of each variable

ORDERABLE: Final = (NUMBER, FLOAT, STRING, NAME, TIME, DURATION)
ORDERED: Final = union(ORDERABLE)
EXACT: Final[Mapping[str, Type]] = {
    **dict.fromkeys(("fn:plus", "fn:minus", "fn:mult", "fn:div", "fn:mod", "fn:sum", "fn:min", "fn:max"), NUMBER),
    **dict.fromkeys(("fn:float:plus", "fn:float:mult", "fn:float:div"), FLOAT),
    **dict.fromkeys(("fn:float:sum", "fn:float:min", "fn:float:max"), FLOAT),
    **dict.fromkeys(("fn:duration:sum", "fn:duration:min", "fn:duration:max"), DURATION),
    **dict.fromkeys(("fn:time:min", "fn:time:max"), TIME),
}
"""Functions over exactly one type."""


@cache
def signature(types: tuple[str, ...]) -> Types:
    """Parse the types of a built-in."""
    text = ", ".join(types)
    (decl,) = parse(Source("signature", f"Decl p() bound [{text}].")).decls
    return tuple(read_type(term) for term in decl.bounds[0])


class Expressions:
    """Infers the types of terms from the types of their variables."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def type_of(self, term: Term, state: State) -> Type:
        """Return the type of a term; :data:`EMPTY` for an application that cannot be typed."""
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
        function = FUNCTIONS.get(name)
        if function is None:
            return EMPTY
        params = signature(function.params)
        if function.rest is not None:
            params += signature((function.rest,)) * (len(args) - len(params))
        binding: Binding = {}
        if not all(shapes_agree(param, arg, binding) for param, arg in zip(params, args, strict=False)):
            return EMPTY
        return instantiate(signature((function.result,))[0], binding)

    def _struct(self, term: Apply, args: list[Type]) -> Type:
        labels = term.args[::2]
        if len(args) % 2:
            return EMPTY
        if any(isinstance(label, Variable | Apply) for label in labels):
            return ANY
        return StructType(tuple(zip(labels, args[1::2], strict=True)))  # type: ignore[arg-type]  # constants only

    def _field_of(self, struct: Type, label: Term) -> Type:
        if isinstance(label, Variable | Apply):
            return EMPTY
        members = struct.members if isinstance(struct, Union) else (struct,)
        if not all(isinstance(m, StructType) for m in members):
            return EMPTY
        return union(t for m in members if isinstance(m, StructType) and (t := m.field(label)) is not None)

    def find_misfit(self, name: str, args: list[Type]) -> tuple[int, Type]:
        """Return the first argument that prevents an application from having a type, and the expected type."""
        exact = EXACT.get(name)
        if exact is not None:
            return next((i for i, arg in enumerate(args) if not _is_exactly(arg, exact)), 0), exact
        binding: Binding = {}
        for position, (param, arg) in enumerate(zip(signature(FUNCTIONS[name].params), args, strict=False)):
            if not shapes_agree(param, arg, binding):
                return position, param
        return 0, StructType(())  # a struct is wanted

    def type_or_any(self, term: Term, state: State) -> Type:
        """Return the type of a term, or ``/any`` where a run-time error is sufficient."""
        type_ = self.type_of(term, state)
        return ANY if type_ == EMPTY else type_

    def reducer_type(self, expression: Apply, state: State) -> Type:
        name = expression.function
        args = [self.type_or_any(arg, state) for arg in expression.args]
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
    """Return whether the type is exactly ``wanted``. Two unknown values that were compared count as numbers."""
    return widen(own) == wanted or (wanted == NUMBER and own == ORDERED)


MAX_STATES: Final = 200


def check_types(
    predicates: Mapping[Key, Predicate], rules: Sequence[Rule], facts: Sequence[GivenFact]
) -> list[Diagnostic]:
    """Return the type errors of the rules and facts."""
    checker = _Checker(predicates, rules)
    for fact in facts:
        checker.check_fact(fact)
    for key in sorted(checker.rules):
        checker.infer(key)
    return checker.diagnostics


class _Infeasible(Exception):
    """No state is left; the message names the premise or argument."""

    def __init__(self, message: str, span: Span | None = None, fix: str | None = None) -> None:
        super().__init__(message)
        self.span = span
        self.fix = fix


class _NothingProven(Exception):
    """A rule has too many alternatives, or reads a predicate whose types an error left open."""


class _Checker:
    def __init__(self, predicates: Mapping[Key, Predicate], rules: Sequence[Rule]) -> None:
        self.predicates = predicates
        self.diagnostics: list[Diagnostic] = []
        self.rules: dict[Key, list[Rule]] = {}
        for rule in rules:
            self.rules.setdefault(rule.head.key, []).append(rule)
        self.acceptance = Acceptance(predicates)
        self.vocabulary = self.acceptance.vocabulary
        self.expressions = Expressions(self.vocabulary)
        self.observed: dict[Key, dict[Types, None]] = {}
        self.alternatives: dict[Key, tuple[Types, ...]] = {}
        self.unproven: set[Key] = set()

    def complain(self, clause: Clause, message: str, span: Span | None, fix: str | None = None) -> None:
        where = span or clause.span
        self.diagnostics.append(Diagnostic("analysis", message, where, printer.clause(clause), fix))

    def check_fact(self, fact: GivenFact) -> None:
        predicate = self.predicates[fact.key]
        try:
            args = fact.values(0)
        except ValueFault:
            return  # depends on the evaluation time; reported when that is known
        if predicate.decl is None:
            types = tuple(self.vocabulary.value(arg, exact=False) for arg in args)
            self.observed.setdefault(fact.key, {})[types] = None
            return
        if not self.acceptance.accepts(fact.key, args):
            self.report_misfit(fact.clause, predicate, self.acceptance.types(args))

    def report_misfit(self, clause: Clause, predicate: Predicate, types: Types) -> None:
        head = clause.head
        if len(predicate.rows) == 1:
            for position, (type_, wanted) in enumerate(zip(types, predicate.rows[0], strict=True)):
                if not conforms(type_, wanted):
                    message = _misfit_message(head, position, describe_type(wanted), type_)
                    fix = None
                    if isinstance(wanted, NameType) and isinstance(head.args[position], Name):
                        fix = f"write a name below {wanted}, such as {wanted}/x"
                    self.complain(clause, message, argument_span(head, position), fix)
                    return
        wanted_rows = " or ".join(map(_row_text, predicate.rows))
        self.complain(clause, f"{predicate.name} takes {wanted_rows}, not {_row_text(types)}", head.span)

    def rows(self, key: Key) -> tuple[Types, ...]:
        predicate = self.predicates[key]
        if predicate.decl is not None:
            return predicate.rows
        if key in self.unproven:
            raise _NothingProven
        # While it is being inferred, in a recursion, a predicate may have any type.
        return self.alternatives.get(key, ((ANY,) * predicate.arity,))

    def infer(self, root: Key) -> None:
        """Check the rules of a predicate after those of the undeclared predicates it reads, depth first."""
        waiting = [(root, self._undeclared_premises(root))] if root not in self.alternatives else []
        begun = {root}
        while waiting:
            key, premises = waiting[-1]
            following = next((p for p in premises if p not in begun and p not in self.alternatives), None)
            if following is None:
                waiting.pop()
                self.alternatives[key] = self._check_rules(key)
            else:
                begun.add(following)
                waiting.append((following, self._undeclared_premises(following)))

    def _undeclared_premises(self, key: Key) -> Iterator[Key]:
        for rule in self.rules.get(key, []):
            for premise in rule.premises:
                predicate = self.predicates.get(premise.atom.key) if isinstance(premise, Literal) else None
                if predicate is not None and predicate.decl is None:
                    yield predicate.key

    def _check_rules(self, key: Key) -> tuple[Types, ...]:
        rows = dict(self.observed.get(key, {}))
        for rule in self.rules.get(key, []):
            try:
                rows.update(dict.fromkeys(_RuleCheck(self, rule).head_types()))
            except _Infeasible as failure:
                self.complain(rule.clause, str(failure), failure.span, failure.fix)
                self.unproven.add(key)
            except _NothingProven:  # so nothing is refused, here and in what reads it
                self.unproven.add(key)
        return _most_general(rows)


def _misfit_message(atom: Atom, position: int, wanted: str, own: Type) -> str:
    shown = printer.term(atom.args[position])
    return f"argument {position + 1} of {atom.predicate} is {wanted}, but {shown} is {describe_type(own)}"


def _row_text(types: Types) -> str:
    return f"({', '.join(map(str, types))})"


def _most_general(rows: Iterable[Types]) -> tuple[Types, ...]:
    general: list[Types] = []
    for row in rows:
        if not any(all(map(conforms, row, other)) for other in general):
            general = [*(other for other in general if not all(map(conforms, other, row))), row]
    return tuple(sorted(general, key=str))


class _RuleCheck:
    def __init__(self, checker: _Checker, rule: Rule) -> None:
        self.checker = checker
        self.expressions = checker.expressions
        self.rule = rule
        self.clause = rule.clause
        self.predicate = checker.predicates[rule.head.key]

    def head_types(self) -> list[Types]:
        """Return the types of the head, one tuple per state; reports what a declaration forbids."""
        states = self._initial_states()
        for premise in self.rule.premises:
            states = self._states_after(premise, states)
        for transform in self.clause.transforms:
            states = [self._transform(transform, state) for state in states]
        heads: dict[Types, None] = {}
        for state in states:
            self._head_interval(state)
            heads[tuple(self.expressions.type_or_any(arg, state) for arg in self.clause.head.args)] = None
        if self.predicate.decl is not None:
            for types in heads:
                if not any(row_accepts(row, types) for row in self.predicate.rows):
                    self.checker.report_misfit(self.clause, self.predicate, types)
                    break
        return [tuple(map(widen, types)) for types in heads]

    def _initial_states(self) -> list[State]:
        inputs = list(self.predicate.inputs())
        states = []
        for row in self.predicate.rows if inputs else ():
            state: State = {}
            for position in inputs:
                arg = self.clause.head.args[position]
                if isinstance(arg, Variable) and not isinstance(row[position], TypeVariable):
                    state[arg.name] = meet(state.get(arg.name, ANY), row[position])
            states.append(state)
        return states or [{}]

    def _states_after(self, premise: Premise, states: list[State]) -> list[State]:
        after: list[State] = []
        failure: _Infeasible | None = None
        for state in states:
            try:
                after += self._premise(premise, state)
            except _Infeasible as reason:
                failure = failure or reason
        if not after:
            raise failure or _Infeasible(f"{printer.premise(premise)} can never hold", premise.span)
        if len(after) > 1:  # the same may be possible in several ways
            after = list({frozenset(state.items()): state for state in after}.values())
        if len(after) > MAX_STATES:
            raise _NothingProven
        return after

    def _premise(self, premise: Premise, state: State) -> Iterable[State]:
        if isinstance(premise, Equality):
            return [self._equality(premise, state)]
        name = premise.atom.predicate
        if name in printer.INFIX:
            return [self._comparison(premise, state)]
        if name in (":match_field", ":match_entry"):
            return [self._entry(premise, state)]
        if name == ":match_prefix":
            return [self._prefix(premise, state)]
        if name.startswith(":"):
            rows: Sequence[Types] = [signature(PREDICATES[name].params)]
        else:
            rows = self.checker.rows(premise.atom.key)
        return self._alternatives(premise, rows, state)

    def _alternatives(self, premise: Literal, rows: Sequence[Types], state: State) -> list[State]:
        feasible = [new for row in rows if (new := self._row(premise.atom, row, state)) is not None]
        if rows and not feasible:
            raise self._explain_infeasible(premise, rows, state)
        if premise.negated:
            feasible = [state]
        for part, type_ in ((premise.annotation, TIME), (premise.operator, Union((TIME, DURATION)))):
            for variable in () if part is None else bound_variables(part.bounds):
                feasible = [self._narrow(s, variable, type_, premise) for s in feasible]
        return feasible or [state]

    def _explain_infeasible(self, premise: Literal, rows: Sequence[Types], state: State) -> _Infeasible:
        atom = premise.atom
        for position, arg in enumerate(atom.args):
            if isinstance(arg, Apply):
                continue
            own = self.expressions.type_of(arg, state)
            if all(_narrow_argument(own, arg, row[position], {}) == EMPTY for row in rows):
                wanted = " or ".join(dict.fromkeys(describe_type(row[position]) for row in rows))
                return _Infeasible(_misfit_message(atom, position, wanted, own), argument_span(atom, position))
        types = _row_text(tuple(self.expressions.type_of(arg, state) for arg in atom.args))
        wanted = " or ".join(map(_row_text, rows))
        return _Infeasible(f"{printer.premise(premise)} can never hold: {wanted} never meets {types}", premise.span)

    def _row(self, atom: Atom, row: Types, state: State) -> State | None:
        """Return the state after an atom matched this row; None if it cannot."""
        binding: State = {}
        new = dict(state)
        # Twice, because a later argument may bind a type variable of an earlier one.
        for arg, wanted in [*zip(atom.args, row, strict=True)] * (2 if has_variables(row) else 1):
            if isinstance(arg, Apply):
                continue  # not followed: its value is compared at run time
            own = new.get(arg.name, ANY) if isinstance(arg, Variable) else self.checker.vocabulary.constant(arg)
            narrowed = _narrow_argument(own, arg, wanted, binding)
            if narrowed == EMPTY:
                return None
            if isinstance(arg, Variable) and not arg.anonymous:
                new[arg.name] = narrowed
        return new

    def _narrow(self, state: State, variable: Variable, type_: Type, premise: Premise) -> State:
        if variable.anonymous:
            return state
        own = state.get(variable.name, ANY)
        both = meet(own, type_)
        if both == EMPTY:
            wanted = describe_type(type_)
            message = f"{variable.name} is {describe_type(own)}, {printer.premise(premise)} wants {wanted}"
            raise _Infeasible(message, variable.span or premise.span)
        return {**state, variable.name: both}

    def _equality(self, premise: Equality, state: State) -> State:
        left = self._body_type(premise.left, state, premise)
        right = self._body_type(premise.right, state, premise)
        variables = [side for side in (premise.left, premise.right) if isinstance(side, Variable)]
        if not variables:
            return state
        if premise.negated:  # what differs from one value can be any other of its kind
            left, right = widen(left), widen(right)
        both = meet(left, right)
        if both == EMPTY:
            verb = "always differ" if premise.negated else "are never equal"
            message = f"{printer.premise(premise)}: {describe_type(left)} and {describe_type(right)} {verb}"
            raise _Infeasible(message, premise.span)
        return {**state, **{v.name: both for v in variables if not v.anonymous}}

    def _body_type(self, term: Term, state: State, premise: Premise) -> Type:
        """Return the type of one side; an application that cannot be typed is an error in a body."""
        type_ = self.expressions.type_of(term, state)
        if type_ != EMPTY:
            return type_
        assert isinstance(term, Apply)
        for arg in term.args:
            self._body_type(arg, state, premise)  # the innermost one is to blame
        message, fix = self._explain_untyped(term, [self.expressions.type_of(arg, state) for arg in term.args])
        raise _Infeasible(message, term.span or premise.span, fix)

    def _explain_untyped(self, term: Apply, types: list[Type]) -> tuple[str, str | None]:
        if term.function == "fn:struct:get" and isinstance(types[0], StructType):
            return f"{describe_type(types[0])} has no field {printer.term(term.args[1])}", None
        position, wanted = self.expressions.find_misfit(term.function, types)
        own, arg = types[position], printer.term(term.args[position])
        message = f"{term.function} takes {describe_type(wanted)}, but {arg} is {describe_type(own)}"
        if own == ANY or isinstance(own, Union):
            return message, "declare a narrower type with Decl … bound […], or compare the value first"
        if isinstance(own, ListType) and term.function in EXACT:
            return message, "a list is folded in a fact, a head or a let"
        return message, None

    def _comparison(self, premise: Literal, state: State) -> State:
        """Restrict both sides to one orderable kind (D10)."""
        types = [self.expressions.type_or_any(arg, state) for arg in premise.atom.args]
        kinds = [kind for kind in ORDERABLE if all(meet(t, kind) != EMPTY for t in types)]
        if not kinds:
            left, right = types
            message = f"{printer.premise(premise)} compares {describe_type(left)} with {describe_type(right)}"
            ordered = [any(meet(t, kind) != EMPTY for kind in ORDERABLE) for t in types]
            fix = "compare two values of one kind" if all(ordered) else f"what has an order is {describe_type(ORDERED)}"
            raise _Infeasible(message, premise.span, fix)
        if premise.negated:
            return state
        common = union(kinds)
        new = dict(state)
        for arg in premise.atom.args:
            if isinstance(arg, Variable) and not arg.anonymous:
                new[arg.name] = meet(new.get(arg.name, ANY), common)
        return new

    def _entry(self, premise: Literal, state: State) -> State:
        """Check ``:match_field`` or ``:match_entry``: the value has the type of its field or of the map's values."""
        container, key, value = premise.atom.args
        own = self.expressions.type_of(container, state)
        type_ = self._entry_type(premise, own, key, state)
        if type_ is None:
            what = "field" if premise.atom.predicate == ":match_field" else "entry"
            message = f"{describe_type(own)} has no {what} {printer.term(key)}"
            raise _Infeasible(message, argument_span(premise.atom, 1))
        if premise.negated or not isinstance(value, Variable):
            return state
        return self._narrow(state, value, type_, premise)

    def _entry_type(self, premise: Literal, own: Type, key: Term, state: State) -> Type | None:
        if own in (ANY, EMPTY) or isinstance(own, TypeVariable):
            return ANY
        if isinstance(own, Union):
            types = [t for m in own.members if (t := self._entry_type(premise, m, key, state)) is not None]
            return union(types) if types else None
        if premise.atom.predicate == ":match_field":
            if not isinstance(own, StructType):
                return None
            return ANY if isinstance(key, Variable | Apply) else own.field(key)
        if not isinstance(own, MapType):
            return None
        key_type = self.expressions.type_of(key, state)
        if own.key != BOT and key_type != EMPTY and meet(key_type, own.key) == EMPTY:
            return None
        return ANY if own.value == BOT else own.value

    def _prefix(self, premise: Literal, state: State) -> State:
        """Restrict X in ``:match_prefix(X, /p)`` to the names below /p, negated to the others."""
        arg, prefix = premise.atom.args
        if not isinstance(prefix, Name):
            raise _Infeasible(":match_prefix takes a name as its second argument", argument_span(premise.atom, 1))
        own = self.expressions.type_of(arg, state)
        if own == EMPTY:
            return state
        members = own.members if isinstance(own, Union) else (own,)
        can = [type_ for m in members if (type_ := _below(prefix.text, m)) != EMPTY]
        if not can:
            message = f"{printer.term(arg)} is {describe_type(own)}, no such value is below {prefix.text}"
            raise _Infeasible(message, argument_span(premise.atom, 0))
        if premise.negated:
            can = [m for m in members if not isinstance(m, NameType) or _below(prefix.text, m) != m]
            if not can:
                message = f"{printer.premise(premise)} never holds: {printer.term(arg)} is {describe_type(own)}"
                raise _Infeasible(message, premise.span)
        if not isinstance(arg, Variable) or arg.anonymous:
            return state
        return {**state, arg.name: union(can)}

    def _transform(self, transform: Transform, state: State) -> State:
        for let in transform.lets:
            reduces = transform.do is not None and let.expression.function in REDUCERS
            type_of = self.expressions.reducer_type if reduces else self.expressions.type_or_any
            state = {**state, let.variable.name: type_of(let.expression, state)}
        return state

    def _head_interval(self, state: State) -> None:
        annotation = self.clause.annotation
        for variable in () if annotation is None else bound_variables(annotation.bounds):
            own = state.get(variable.name, ANY)
            if not variable.anonymous and meet(own, TIME) == EMPTY:
                message = f"{variable.name} is {describe_type(own)}, an interval is between times"
                raise _Infeasible(message, variable.span)


def _below(prefix: str, type_: Type) -> Type:
    """Return the part of a type that ``:match_prefix`` accepts; it compares texts, ignoring boundaries."""
    if type_ == ANY or isinstance(type_, TypeVariable):
        return NameType(prefix)
    if isinstance(type_, Singleton | Tag):
        return type_ if conforms(type_, NameType(prefix)) else _below(prefix, widen(type_))
    if not isinstance(type_, NameType):
        return EMPTY
    if type_ == NAME or prefix.startswith(f"{type_.prefix}/"):
        return NameType(prefix)
    return type_ if f"{type_.prefix}/".startswith(prefix) else EMPTY


def _narrow_argument(own: Type, arg: Term, wanted: Type, binding: State) -> Type:
    if isinstance(arg, Variable | Apply) or has_variables((wanted,)):
        return match_type(wanted, own, binding)
    return Singleton(arg) if member(arg, wanted) else EMPTY
