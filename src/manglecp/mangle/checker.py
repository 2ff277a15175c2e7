"""The bounds checker: rejects rules that violate the declared types of a predicate.

A *state* maps the variables of a rule to their possible types. The *alternatives* of a predicate are rows of types: the
declared rows or, without a declaration, the types of its facts and rules. In running order, each premise replaces every
state by one state per possible alternative. A rule without a state is rejected. In every state the head must fit a
declared row.

Only provable errors are rejected: a function application that cannot be typed is an error in a body, but has the type
``/any`` in a head or ``let``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span
from manglecp.mangle import printer, syntax
from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS
from manglecp.mangle.declarations import FactAcceptor, Predicate
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.parser import argument_span, parse
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
    Base,
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
    kinds_of,
    match_type,
    meet,
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


State: TypeAlias = dict[str, Type]  # the possible type of each variable

ORDERABLE: Final = (NUMBER, FLOAT, STRING, NAME, TIME, DURATION)
ANY_ORDERABLE: Final = union(ORDERABLE)
# Arithmetic and its reducers need exactly one type; constructors build a type from the types of their arguments. For
# other built-ins only type constructors are compared; kinds of constants are checked at run time.
EXACT: Final[Mapping[str, Type]] = {
    **dict.fromkeys(("fn:plus", "fn:minus", "fn:mult", "fn:div", "fn:mod", "fn:sum", "fn:min", "fn:max"), NUMBER),
    **dict.fromkeys(("fn:float:plus", "fn:float:mult", "fn:float:div"), FLOAT),
    **dict.fromkeys(("fn:float:sum", "fn:float:min", "fn:float:max"), FLOAT),
    **dict.fromkeys(("fn:duration:sum", "fn:duration:min", "fn:duration:max"), DURATION),
    **dict.fromkeys(("fn:time:min", "fn:time:max"), TIME),
}
"""The type that all arguments and the result of a function have."""


@cache
def signature(types: tuple[str, ...]) -> Types:
    """Parse the types in the entry of a built-in."""
    text = ", ".join(types)
    (decl,) = parse(Source("signature", f"Decl p() bound [{text}].")).decls
    return tuple(read_type(term) for term in decl.bounds[0])


class Expressions:
    """Infers the types of terms from the types of their variables."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def type_of(self, term: syntax.Term, state: State) -> Type:
        """Return the type of a term; :data:`EMPTY` for an application that cannot be typed."""
        if isinstance(term, syntax.Variable):
            return state.get(term.name, ANY)
        if not isinstance(term, syntax.Apply):
            return self.vocabulary.constant(term)
        args = [self.type_of(arg, state) for arg in term.args]
        type_ = EMPTY if EMPTY in args else self._application_type(term, args)
        return ANY if is_large(type_) else type_

    def _application_type(self, term: syntax.Apply, args: list[Type]) -> Type:
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
            return self._struct_type(term, args)
        if name == "fn:struct:get":
            return self._field_type(args[0], term.args[1]) if len(args) == 2 else EMPTY
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

    def _struct_type(self, term: syntax.Apply, args: list[Type]) -> Type:
        labels = term.args[::2]
        if len(args) % 2:
            return EMPTY
        if any(isinstance(label, syntax.Variable | syntax.Apply) for label in labels):
            return ANY
        return StructType(tuple(zip(labels, args[1::2], strict=True)))  # type: ignore[arg-type]  # constants only

    def _field_type(self, struct: Type, label: syntax.Term) -> Type:
        if isinstance(label, syntax.Variable | syntax.Apply):
            return EMPTY
        members = struct.members if isinstance(struct, Union) else (struct,)
        if not all(isinstance(m, StructType) for m in members):
            return EMPTY
        return union(t for m in members if isinstance(m, StructType) and (t := m.field(label)) is not None)

    def find_misfit(self, name: str, args: list[Type]) -> tuple[int, Type]:
        """Return the position of the first argument that does not fit a function, and the expected type."""
        exact = EXACT.get(name)
        if exact is not None:
            return next((i for i, arg in enumerate(args) if not _is_exactly(arg, exact)), 0), exact
        binding: Binding = {}
        for position, (param, arg) in enumerate(zip(signature(FUNCTIONS[name].params), args, strict=False)):
            if not shapes_agree(param, arg, binding):
                return position, param
        return 0, StructType(())  # fn:struct:get, which takes a struct

    def type_or_any(self, term: syntax.Term, state: State) -> Type:
        """Return the type of a term, or ``/any`` for a term that cannot be typed, whose error is raised at run time."""
        type_ = self.type_of(term, state)
        return ANY if type_ == EMPTY else type_

    def reducer_type(self, expression: syntax.Apply, state: State) -> Type:
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


def _is_exactly(actual: Type, expected: Type) -> bool:
    """Return whether the type is ``expected``. ANY_ORDERABLE, the type of a value that is only compared, counts."""
    return widen(actual) == expected or (expected == NUMBER and actual == ANY_ORDERABLE)


MAX_STATES: Final = 200  # states of a rule after one premise; a rule with more states is not checked


def check_types(
    predicates: Mapping[syntax.Key, Predicate], rules: Sequence[Rule], facts: Sequence[GivenFact]
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
    """A rule has too many states, or reads a predicate whose types are unknown because of an error."""


class _Checker:
    def __init__(self, predicates: Mapping[syntax.Key, Predicate], rules: Sequence[Rule]) -> None:
        self.predicates = predicates
        self.diagnostics: list[Diagnostic] = []
        self.rules: dict[syntax.Key, list[Rule]] = {}
        for rule in rules:
            self.rules.setdefault(rule.head.key, []).append(rule)
        self.acceptance = FactAcceptor(predicates)
        self.vocabulary = self.acceptance.vocabulary
        self.expressions = Expressions(self.vocabulary)
        self.observed: dict[syntax.Key, dict[Types, None]] = {}  # of facts of undeclared predicates
        self.alternatives: dict[syntax.Key, tuple[Types, ...]] = {}  # only of predicates whose rules were checked
        self.unproven: set[syntax.Key] = set()  # predicates with unknown alternatives

    def complain(self, clause: syntax.Clause, message: str, span: Span | None, fix: str | None = None) -> None:
        where = span or clause.span
        self.diagnostics.append(Diagnostic("analysis", message, where, printer.clause(clause), fix))

    def check_fact(self, fact: GivenFact) -> None:
        predicate = self.predicates[fact.key]
        try:
            args = fact.values(0)
        except ValueFault:
            return  # the fault may depend on the evaluation time; an evaluation reports it
        if predicate.decl is None:
            types = tuple(self.vocabulary.value(arg, exact=False) for arg in args)
            self.observed.setdefault(fact.key, {})[types] = None
            return
        if not self.acceptance.accepts(fact.key, args):
            self.report_misfit(fact.clause, predicate, self.acceptance.types(args))

    def report_misfit(self, clause: syntax.Clause, predicate: Predicate, types: Types) -> None:
        head = clause.head
        if len(predicate.rows) == 1:
            for position, (type_, expected) in enumerate(zip(types, predicate.rows[0], strict=True)):
                if not conforms(type_, expected):
                    message = _misfit_message(head, position, describe_type(expected), type_)
                    fix = _conversion_fix(type_, expected)
                    if isinstance(expected, NameType) and isinstance(head.args[position], Name):
                        fix = f"write a name below {expected}, such as {expected}/x"
                    self.complain(clause, message, argument_span(head, position), fix)
                    return
        expected_rows = " or ".join(map(_row_text, predicate.rows))
        self.complain(clause, f"{predicate.name} takes {expected_rows}, not {_row_text(types)}", head.span)

    def rows(self, key: syntax.Key) -> tuple[Types, ...]:
        """Return the alternatives of a predicate. Raises _NothingProven if they are unknown."""
        predicate = self.predicates[key]
        if predicate.decl is not None:
            return predicate.rows
        if key in self.unproven:
            raise _NothingProven
        # The alternatives of a recursive predicate are unknown at first: any types.
        return self.alternatives.get(key, ((ANY,) * predicate.arity,))

    def infer(self, root: syntax.Key) -> None:
        """Infer the alternatives of a predicate, after those of the undeclared predicates that its rules read."""
        stack = [(root, self._undeclared_premises(root))] if root not in self.alternatives else []
        started = {root}
        while stack:
            key, premises = stack[-1]
            next_key = next((p for p in premises if p not in started and p not in self.alternatives), None)
            if next_key is None:
                stack.pop()
                self.alternatives[key] = self._check_rules(key)
            else:
                started.add(next_key)
                stack.append((next_key, self._undeclared_premises(next_key)))

    def _undeclared_premises(self, key: syntax.Key) -> Iterator[syntax.Key]:
        for rule in self.rules.get(key, []):
            for premise in rule.premises:
                predicate = self.predicates.get(premise.atom.key) if isinstance(premise, syntax.Literal) else None
                if predicate is not None and predicate.decl is None:
                    yield predicate.key

    def _check_rules(self, key: syntax.Key) -> tuple[Types, ...]:
        rows = dict(self.observed.get(key, {}))
        for rule in self.rules.get(key, []):
            try:
                rows.update(dict.fromkeys(_RuleCheck(self, rule).head_types()))
            except _Infeasible as failure:
                self.complain(rule.clause, str(failure), failure.span, failure.fix)
                self.unproven.add(key)
            except _NothingProven:  # no error is reported here, nor for rules that read this predicate
                self.unproven.add(key)
        return _most_general(rows)


def _misfit_message(atom: syntax.Atom, position: int, expected: str, actual: Type) -> str:
    argument = printer.term(atom.args[position])
    return f"argument {position + 1} of {atom.predicate} is {expected}, but {argument} is {describe_type(actual)}"


def _conversion_fix(actual: Type, expected: Type) -> str | None:
    """Return a fix for a text where a time or duration is expected, or for another value where names are expected."""
    if isinstance(expected, NameType) and isinstance(widen(actual), Base) and widen(actual) != NAME:
        return f"{expected} is the type of the names below it; the type of the value is {widen(actual)}"
    if widen(actual) != STRING or widen(expected) not in (TIME, DURATION):
        return None
    function = "fn:time:parse_rfc3339" if expected == TIME else "fn:duration:parse"
    return f"read the text with {function}(…)"


def _row_text(types: Types) -> str:
    return f"({', '.join(map(str, types))})"


def _most_general(rows: Iterable[Types]) -> tuple[Types, ...]:
    """Return the rows, sorted, without rows that differ from another row only by narrower types of names.

    Other narrower types remain, because they permit more than a wider type: arithmetic needs a number, not a union or
    ``/any``; access to a field needs the struct with that field.
    """
    general: dict[Types, list[Types]] = {}  # by row without its names: rows that differ only in names
    for row in rows:
        similar = general.setdefault(tuple(NAME if isinstance(t, NameType) else t for t in row), [])
        if not any(all(map(conforms, row, other)) for other in similar):
            similar[:] = [*(other for other in similar if not all(map(conforms, other, row))), row]
    return tuple(sorted(chain.from_iterable(general.values()), key=str))


class _RuleCheck:
    def __init__(self, checker: _Checker, rule: Rule) -> None:
        self.checker = checker
        self.expressions = checker.expressions
        self.rule = rule
        self.clause = rule.clause
        self.predicate = checker.predicates[rule.head.key]

    def head_types(self) -> list[Types]:
        """Return the types of the head, one tuple per state; report types that do not fit the declaration."""
        states = self._initial_states()
        for premise in self.rule.premises:
            states = self._states_after(premise, states)
        for transform in self.clause.transforms:
            states = [self._apply_transform(transform, state) for state in states]
        heads: dict[Types, None] = {}
        for state in states:
            self._check_head_interval(state)
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
                if isinstance(arg, syntax.Variable) and not isinstance(row[position], TypeVariable):
                    state[arg.name] = meet(state.get(arg.name, ANY), row[position])
            states.append(state)
        return states or [{}]

    def _states_after(self, premise: syntax.Premise, states: list[State]) -> list[State]:
        new_states: list[State] = []
        failure: _Infeasible | None = None
        for state in states:
            try:
                new_states += self._match_premise(premise, state)
            except _Infeasible as reason:
                failure = failure or reason
        if not new_states:
            raise failure or _Infeasible(f"{printer.premise(premise)} can never hold", premise.span)
        if len(new_states) > 1:  # several alternatives may lead to the same state
            new_states = list({frozenset(state.items()): state for state in new_states}.values())
        if len(new_states) > MAX_STATES:
            raise _NothingProven
        return new_states

    def _match_premise(self, premise: syntax.Premise, state: State) -> Iterable[State]:
        if isinstance(premise, syntax.Equality):
            return [self._match_equality(premise, state)]
        name = premise.atom.predicate
        if name in printer.INFIX:
            return [self._match_comparison(premise, state)]
        if name in (":match_field", ":match_entry"):
            return [self._match_entry(premise, state)]
        if name == ":match_prefix":
            return [self._match_prefix(premise, state)]
        if name.startswith(":is_"):
            return [self._match_kind(premise, state)]
        if name.startswith(":"):
            rows: Sequence[Types] = [signature(PREDICATES[name].params)]
        else:
            rows = self.checker.rows(premise.atom.key)
        return self._match_rows(premise, rows, state)

    def _match_rows(self, premise: syntax.Literal, rows: Sequence[Types], state: State) -> list[State]:
        feasible = [new_state for row in rows for new_state in self._match_row(premise.atom, row, state)]
        if rows and not feasible:
            raise self._explain_infeasible(premise, rows, state)
        if premise.negated:
            feasible = [state]  # the premise binds nothing
        for time_part, type_ in ((premise.annotation, TIME), (premise.operator, Union((TIME, DURATION)))):
            for variable in () if time_part is None else syntax.bound_variables(time_part.bounds):
                feasible = [self._narrow(s, variable, type_, premise) for s in feasible]
        return feasible or [state]

    def _explain_infeasible(self, premise: syntax.Literal, rows: Sequence[Types], state: State) -> _Infeasible:
        atom = premise.atom
        for position, arg in enumerate(atom.args):
            if isinstance(arg, syntax.Apply):
                continue
            actual = self.expressions.type_of(arg, state)
            if all(_narrow_argument(actual, arg, row[position], {}) == EMPTY for row in rows):
                expected = " or ".join(dict.fromkeys(describe_type(row[position]) for row in rows))
                fix = _conversion_fix(actual, union(row[position] for row in rows))
                return _Infeasible(
                    _misfit_message(atom, position, expected, actual), argument_span(atom, position), fix
                )
        types = _row_text(tuple(self.expressions.type_of(arg, state) for arg in atom.args))
        expected = " or ".join(map(_row_text, rows))
        return _Infeasible(f"{printer.premise(premise)} can never hold: {expected} never meets {types}", premise.span)

    def _match_row(self, atom: syntax.Atom, row: Types, state: State) -> Iterator[State]:
        """Yield the states after an atom matched this row."""
        if not has_variables(row):
            alternatives = [state]
        else:  # each alternative of a union binds the type variables in its own way
            alternatives = _split_unions(atom, row, state)
        for alternative in alternatives:
            new_state = self._match_alternative(atom, row, alternative)
            if new_state is not None:
                yield new_state

    def _match_alternative(self, atom: syntax.Atom, row: Types, state: State) -> State | None:
        binding: Binding = {}
        new_state = dict(state)
        # Twice, because a later argument may bind a type variable of an earlier one.
        for arg, expected in [*zip(atom.args, row, strict=True)] * (2 if has_variables(row) else 1):
            if isinstance(arg, syntax.Apply):  # the value is compared at run time; the type may bind type variables
                match_type(expected, self.expressions.type_of(arg, new_state), binding)
                continue
            actual = self.expressions.type_of(arg, new_state)
            narrowed = _narrow_argument(actual, arg, expected, binding)
            if narrowed == EMPTY:
                return None
            if isinstance(arg, syntax.Variable) and not arg.anonymous:
                new_state[arg.name] = narrowed
        return new_state

    def _narrow(self, state: State, variable: syntax.Variable, type_: Type, premise: syntax.Premise) -> State:
        if variable.anonymous:
            return state
        actual = state.get(variable.name, ANY)
        narrowed = meet(actual, type_)
        if narrowed == EMPTY:
            expected = describe_type(type_)
            message = f"{variable.name} is {describe_type(actual)}, {printer.premise(premise)} wants {expected}"
            raise _Infeasible(message, variable.span or premise.span)
        return {**state, variable.name: narrowed}

    def _match_equality(self, premise: syntax.Equality, state: State) -> State:
        left = self._body_type(premise.left, state, premise)
        right = self._body_type(premise.right, state, premise)
        variables = [side for side in premise.terms if isinstance(side, syntax.Variable)]
        if not variables and not premise.negated:
            return state
        if premise.negated:  # a value that differs from a constant can be any other value of its kind
            left, right = widen(left), widen(right)
        common = meet(left, right)
        if common == EMPTY:
            verb = "always differ" if premise.negated else "are never equal"
            message = f"{printer.premise(premise)}: {describe_type(left)} and {describe_type(right)} {verb}"
            raise _Infeasible(message, premise.span, _conversion_fix(left, right) or _conversion_fix(right, left))
        return {**state, **{v.name: common for v in variables if not v.anonymous}}

    def _body_type(self, term: syntax.Term, state: State, premise: syntax.Premise) -> Type:
        """Return the type of one side of an equality. Raises _Infeasible for an application that cannot be typed."""
        type_ = self.expressions.type_of(term, state)
        if type_ != EMPTY:
            return type_
        assert isinstance(term, syntax.Apply)
        for arg in term.args:
            self._body_type(arg, state, premise)  # raises for the innermost faulty application
        message, fix = self._explain_untyped(term, [self.expressions.type_of(arg, state) for arg in term.args])
        raise _Infeasible(message, term.span or premise.span, fix)

    def _explain_untyped(self, term: syntax.Apply, types: list[Type]) -> tuple[str, str | None]:
        if term.function == "fn:struct:get" and isinstance(types[0], StructType):
            return f"{describe_type(types[0])} has no field {printer.term(term.args[1])}", None
        position, expected = self.expressions.find_misfit(term.function, types)
        actual, arg = types[position], printer.term(term.args[position])
        message = f"{term.function} takes {describe_type(expected)}, but {arg} is {describe_type(actual)}"
        if actual == ANY or isinstance(actual, Union):
            (kind,) = kinds_of(expected)
            return message, f"test it with :is_{kind}({arg}), or declare a narrower type with Decl … bound […]"
        if isinstance(actual, ListType) and term.function in EXACT:
            return message, "a list is folded in a fact, a head or a let"
        return message, None

    def _match_comparison(self, premise: syntax.Literal, state: State) -> State:
        """Restrict both sides to the orderable kinds that they have in common."""
        types = [self.expressions.type_or_any(arg, state) for arg in premise.atom.args]
        kinds = [kind for kind in ORDERABLE if all(meet(t, kind) != EMPTY for t in types)]
        if not kinds:
            left, right = types
            message = f"{printer.premise(premise)} compares {describe_type(left)} with {describe_type(right)}"
            fix = _conversion_fix(left, right) or _conversion_fix(right, left) or "compare two values of one kind"
            if any(all(meet(t, kind) == EMPTY for kind in ORDERABLE) for t in types):
                fix = f"what has an order is {describe_type(ANY_ORDERABLE)}"
            raise _Infeasible(message, premise.span, fix)
        if premise.negated:
            return state
        common = union(kinds)
        new_state = dict(state)
        for arg in premise.atom.args:
            if isinstance(arg, syntax.Variable) and not arg.anonymous:
                new_state[arg.name] = meet(new_state.get(arg.name, ANY), common)
        return new_state

    def _match_entry(self, premise: syntax.Literal, state: State) -> State:
        """Check ``:match_field`` or ``:match_entry``: the third argument has the type of the entry."""
        container, key, value = premise.atom.args
        container_type = self.expressions.type_of(container, state)
        type_ = self._entry_type(premise, container_type, key, state)
        if type_ is None:
            noun = "field" if premise.atom.predicate == ":match_field" else "entry"
            message = f"{describe_type(container_type)} has no {noun} {printer.term(key)}"
            raise _Infeasible(message, argument_span(premise.atom, 1))
        if premise.negated or not isinstance(value, syntax.Variable):
            return state
        return self._narrow(state, value, type_, premise)

    def _entry_type(self, premise: syntax.Literal, container: Type, key: syntax.Term, state: State) -> Type | None:
        if container in (ANY, EMPTY) or isinstance(container, TypeVariable):
            return ANY
        if isinstance(container, Union):
            entry_types = [t for m in container.members if (t := self._entry_type(premise, m, key, state)) is not None]
            return union(entry_types) if entry_types else None
        if premise.atom.predicate == ":match_field":
            if not isinstance(container, StructType):
                return None
            return ANY if isinstance(key, syntax.Variable | syntax.Apply) else container.field(key)
        if not isinstance(container, MapType):
            return None
        key_type = self.expressions.type_of(key, state)
        if container.key != BOT and key_type != EMPTY and meet(key_type, container.key) == EMPTY:
            return None
        return container.value

    def _match_prefix(self, premise: syntax.Literal, state: State) -> State:
        """Restrict X in ``:match_prefix(X, /p)`` to the names below /p; if negated, to other values."""
        arg, prefix = premise.atom.args
        if not isinstance(prefix, Name):
            raise _Infeasible(":match_prefix takes a name as its second argument", argument_span(premise.atom, 1))
        actual = self.expressions.type_of(arg, state)
        if actual == EMPTY:
            return state
        members = actual.members if isinstance(actual, Union) else (actual,)
        possible = [type_ for m in members if (type_ := _restrict_to_prefix(prefix.text, m)) != EMPTY]
        if not possible:
            message = f"{printer.term(arg)} is {describe_type(actual)}, no such value is below {prefix.text}"
            raise _Infeasible(message, argument_span(premise.atom, 0))
        if premise.negated:
            possible = [m for m in members if not isinstance(m, NameType) or _restrict_to_prefix(prefix.text, m) != m]
            if not possible:
                message = f"{printer.premise(premise)} never holds: {printer.term(arg)} is {describe_type(actual)}"
                raise _Infeasible(message, premise.span)
        if not isinstance(arg, syntax.Variable) or arg.anonymous:
            return state
        return {**state, arg.name: union(possible)}

    def _match_kind(self, premise: syntax.Literal, state: State) -> State:
        """Restrict X in ``:is_list(X)`` to the values of the kind; if negated, to other values."""
        (arg,) = premise.atom.args
        (kind,) = signature(PREDICATES[premise.atom.predicate].params)
        actual = self.expressions.type_or_any(arg, state)
        if premise.negated:
            members = actual.members if isinstance(actual, Union) else (actual,)
            narrowed = union(m for m in members if m == BOT or not conforms(m, kind))
        else:
            narrowed = meet(actual, kind)
        if narrowed == EMPTY:
            message = f"{printer.premise(premise)} never holds: {printer.term(arg)} is {describe_type(actual)}"
            raise _Infeasible(message, premise.span)
        return {**state, arg.name: narrowed} if isinstance(arg, syntax.Variable) and not arg.anonymous else state

    def _apply_transform(self, transform: syntax.Transform, state: State) -> State:
        for let in transform.lets:
            reduces = transform.do is not None and let.expression.function in REDUCERS
            type_of = self.expressions.reducer_type if reduces else self.expressions.type_or_any
            state = {**state, let.variable.name: type_of(let.expression, state)}
        return state

    def _check_head_interval(self, state: State) -> None:
        annotation = self.clause.annotation
        for variable in () if annotation is None else syntax.bound_variables(annotation.bounds):
            actual = state.get(variable.name, ANY)
            if not variable.anonymous and meet(actual, TIME) == EMPTY:
                message = f"{variable.name} is {describe_type(actual)}, an interval is between times"
                raise _Infeasible(message, variable.span)


def _split_unions(atom: syntax.Atom, row: Types, state: State) -> list[State]:
    """Return one state per choice of union members, for each union that has to match a type with type variables."""
    states = [state]
    for arg, expected in zip(atom.args, row, strict=True):
        if isinstance(arg, syntax.Variable) and not isinstance(expected, TypeVariable) and has_variables((expected,)):
            type_ = state.get(arg.name, ANY)
            if isinstance(type_, Union):
                states = [{**s, arg.name: alternative} for s in states for alternative in type_.members]
    return states


def _restrict_to_prefix(prefix: str, type_: Type) -> Type:
    """Return the part of a type that ``:match_prefix`` accepts; it compares texts, so ``/ab`` is below ``/a``."""
    if type_ == ANY or isinstance(type_, TypeVariable):
        return NameType(prefix)
    if isinstance(type_, Singleton | Tag):
        return type_ if conforms(type_, NameType(prefix)) else _restrict_to_prefix(prefix, widen(type_))
    if not isinstance(type_, NameType):
        return type_ if type_ == BOT else EMPTY
    if type_ == NAME or prefix.startswith(f"{type_.prefix}/"):
        return NameType(prefix)
    return type_ if f"{type_.prefix}/".startswith(prefix) else EMPTY


def _narrow_argument(actual: Type, arg: syntax.Term, expected: Type, binding: Binding) -> Type:
    """Return the type of an argument after it matched; EMPTY if it cannot match. Binds type variables."""
    if isinstance(arg, syntax.Variable | syntax.Apply) or has_variables((expected,)):
        return match_type(expected, actual, binding)
    return Singleton(arg) if conforms(Singleton(arg), expected) else EMPTY
