"""Checks of single clauses (names, functions, annotations, transforms, safety) and the running order of premises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Span
from manglecp.base.suggestions import closest_match
from manglecp.mangle import printer
from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS, Function, Reducer
from manglecp.mangle.declarations import Predicate, count_noun, package_of, unknown_predicate, wrong_count
from manglecp.mangle.parser import argument_span
from manglecp.mangle.syntax import (
    Annotation,
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
    premise_variables,
    subterms,
    term_variables,
)
from manglecp.mangle.values import Duration


# The next premise is the first in the text whose inputs are bound. The running order is part of a rule's meaning: it
# decides which variables are bound before a temporal premise. A rule without a running order is unsafe.
@dataclass(frozen=True, slots=True)
class Ordering:
    """Premises in running order, the variables bound after them, and diagnostics of premises that cannot run."""

    premises: tuple[Premise, ...]
    positions: tuple[int, ...]  # the index in the clause of each premise
    bound: frozenset[str]
    diagnostics: tuple[Diagnostic, ...] = ()


def order(clause: Clause, predicates: Mapping[Key, Predicate]) -> Ordering:
    """Return the running order. The variables at input positions of the head are bound at the start."""
    bound = set(_input_variables(clause.head, predicates))
    premises = clause.premises
    names_by_premise = [{v.name for v in premise_variables(premise) if not v.anonymous} for premise in premises]
    premises_by_name: dict[str, list[int]] = {}
    for position, names in enumerate(names_by_premise):
        for name in names:
            premises_by_name.setdefault(name, []).append(position)
    waiting = dict.fromkeys(range(len(premises)))
    ready: list[int] = []  # a heap of positions

    def enqueue_ready(positions: Iterable[int]) -> None:
        for position in positions:
            if position in waiting and not _missing_variables(premises[position], bound, predicates):
                del waiting[position]
                heappush(ready, position)

    enqueue_ready(list(waiting))
    ordered: list[Premise] = []
    positions: list[int] = []
    while ready:
        position = heappop(ready)
        positions.append(position)
        ordered.append(_replace_reflection(premises[position], bound, predicates))
        new_names = names_by_premise[position] - bound
        bound |= new_names
        enqueue_ready(p for name in new_names for p in premises_by_name[name])
    diagnostics = tuple(_unsafe_error(premises[position], clause, bound, predicates) for position in waiting)
    return Ordering(tuple(ordered), tuple(positions), frozenset(bound), diagnostics)


def _input_variables(head: Atom, predicates: Mapping[Key, Predicate]) -> Iterator[str]:
    """Yield the head variables at input positions, which are bound before the body runs."""
    predicate = predicates.get(head.key)
    for position in () if predicate is None else predicate.inputs():
        yield from (v.name for v in term_variables(head.args[position]) if not v.anonymous)


def _unbound(terms: Iterable[Term], bound: AbstractSet[str]) -> list[Variable]:
    return [v for v in term_variables(*terms) if v.anonymous or v.name not in bound]


def _missing_variables(premise: Premise, bound: set[str], predicates: Mapping[Key, Predicate]) -> list[Variable]:
    """Return the variables that have to be bound before the premise can run."""
    if isinstance(premise, Equality):
        return _missing_in_equality(premise, bound)
    missing = [] if premise.operator is None else _unbound(bound_variables(premise.operator.bounds), bound)
    for position, arg in enumerate(premise.atom.args):
        if not _can_bind(premise, position, predicates) or isinstance(arg, Apply):
            missing += _unbound((arg,), bound)
        elif premise.negated:
            missing += [v for v in _unbound((arg,), bound) if not v.anonymous]
    if premise.negated and premise.annotation is not None:
        free = _unbound(bound_variables(premise.annotation.bounds), bound)
        missing += [v for v in free if not v.anonymous]
    return missing


def _missing_in_equality(premise: Equality, bound: set[str]) -> list[Variable]:
    left_unbound, right_unbound = _unbound((premise.left,), bound), _unbound((premise.right,), bound)
    left_is_variable, right_is_variable = isinstance(premise.left, Variable), isinstance(premise.right, Variable)
    if premise.negated or not (left_is_variable or right_is_variable):
        return left_unbound + right_unbound
    if left_is_variable and right_is_variable:
        return left_unbound + right_unbound if left_unbound and right_unbound else []
    return right_unbound if left_is_variable else left_unbound  # the variable takes the value of the other side


def _can_bind(premise: Literal, position: int, predicates: Mapping[Key, Predicate]) -> bool:
    """Return whether an argument may be free, because the premise binds it or, if negated, reads stored facts."""
    if premise.atom.is_builtin:
        builtin = PREDICATES.get(premise.atom.predicate)
        if builtin is None or len(builtin.modes) != len(premise.atom.args):
            return True  # ClauseCheck reports the name or the number of arguments
        return builtin.modes[position] == "-"
    predicate = predicates.get(premise.atom.key)
    if predicate is None or predicate.modes is None:
        return True
    reads_stored_facts = premise.negated and not (predicate.deferred or predicate.external)
    return reads_stored_facts or predicate.modes[position] != "+"


def _replace_reflection(premise: Premise, bound: set[str], predicates: Mapping[Key, Predicate]) -> Premise:
    """Replace an atom of a ``reflects(/p)`` predicate by a prefix test if its argument is bound."""
    if not isinstance(premise, Literal) or premise.negated or premise.timed:
        return premise
    predicate = predicates.get(premise.atom.key)
    if predicate is None or predicate.reflects is None or predicate.arity != 1:
        return premise
    if not isinstance(premise.atom.args[0], Variable) or _unbound(premise.atom.args, bound):
        return premise  # the premise reads the stored facts
    test = Atom(":match_prefix", (premise.atom.args[0], predicate.reflects), premise.atom.span)
    return replace(premise, atom=test)


def _unsafe_error(premise: Premise, clause: Clause, bound: set[str], predicates: Mapping[Key, Predicate]) -> Diagnostic:
    variables = _missing_variables(premise, bound, predicates)
    text = printer.premise(premise)
    first = variables[0]
    if first.anonymous:
        message = f"{text} needs a value where _ stands"
        fix = "name the variable and bind it in another premise"
    else:
        names = ", ".join(dict.fromkeys(v.name for v in variables if not v.anonymous))
        verb = "are" if "," in names else "is"
        message = f"{names} {verb} bound by no premise that could run before {text}"
        if isinstance(premise, Literal) and premise.negated:
            message = f"{names} {verb} bound nowhere outside the negation {text}"
        fix = _binding_fix(first.name, premise, clause)
    return Diagnostic("analysis", message, first.span or premise.span, printer.clause(clause), fix)


def _binding_fix(name: str, premise: Premise, clause: Clause) -> str:
    for other in clause.premises:
        if other is not premise and any(v.name == name for v in premise_variables(other)):
            return f"{name} also occurs in {printer.premise(other)}, which waits too; bind {name} in a positive premise"
    if isinstance(premise, Literal) and premise.negated:
        return f"write _ for 'no such fact at all', or bind {name} in a positive premise"
    return f"add a positive premise that binds {name}"


def _unbound_in_head(clause: Clause, bound: frozenset[str]) -> Iterator[tuple[Variable, Span | None]]:
    """Yield the unbound variables of the head, including ``_``, each with its span in the source."""
    for variable in _unbound(clause.head.args, bound):
        yield variable, variable.span or clause.head.span
    if clause.annotation is not None:
        for variable in bound_variables(clause.annotation.bounds):
            if not variable.anonymous and variable.name not in bound:
                yield variable, variable.span or clause.annotation.span


GROUP_BY = "fn:group_by"


@dataclass
class ClauseCheck:
    """Finds all problems of one clause, and the order of its premises."""

    clause: Clause
    predicates: Mapping[Key, Predicate]
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @cached_property
    def body_variables(self) -> frozenset[str]:
        return frozenset(v.name for premise in self.clause.premises for v in premise_variables(premise))

    def run(self) -> Ordering:
        """Return the running order. Problems are in ``diagnostics``."""
        clause = self.clause
        self._check_head()
        for premise in clause.premises:
            self._check_premise(premise)
        if clause.is_fact:
            self._check_fact()
            return Ordering((), (), frozenset())
        ordering = order(clause, self.predicates)
        self.diagnostics += ordering.diagnostics
        bound = self._check_transforms(ordering.bound)
        if not ordering.diagnostics:
            self._check_head_variables(bound)
        return ordering

    def complain(self, message: str, span: Span | None, fix: str | None = None) -> None:
        where = span or self.clause.span
        self.diagnostics.append(Diagnostic("analysis", message, where, printer.clause(self.clause), fix))

    def _check_head(self) -> None:
        clause = self.clause
        predicate = self.predicates[clause.head.key]
        if predicate.extensional and not clause.is_fact:
            fix = "derive another predicate, or drop extensional() from its Decl"
            self.complain(f"{predicate.name} is extensional: it takes facts, not rules", clause.head.span, fix)
        if predicate.name.startswith(":") and not clause.is_fact:
            self.complain(f"{predicate.name} is the name of a built-in: no rule can define it", clause.head.span)
        if predicate.external and not clause.is_fact:
            self.complain(f"{predicate.name} is external: it is answered from outside, not by rules", clause.head.span)
        annotation = clause.annotation
        if predicate.temporal and annotation is None:
            self.complain(f"{predicate.name} is temporal: say when it holds", clause.head.span, "add @[start, end]")
        elif annotation is not None and not predicate.temporal and not annotation.eternal:
            declare = f"declare it: {_plain_decl(clause.head)} temporal."
            fix = declare if predicate.decl is None else "add temporal to its Decl"
            self.complain(f"{predicate.name} is not temporal and takes no annotation", annotation.span, fix)
        self._refuse_durations(annotation)

    def _refuse_durations(self, annotation: Annotation | None) -> None:
        for bound in () if annotation is None else annotation.bounds:
            if isinstance(bound.value, Duration):
                fix = "durations belong into operators such as <-[5m]"
                self.complain(f"{bound.text} is a duration, an annotation needs instants", bound.span, fix)

    def _check_fact(self) -> None:
        self._check_functions(*self.clause.head.args)
        for variable, span in _unbound_in_head(self.clause, frozenset()):
            self.complain(f"a fact has no variables, found {variable.name}", span, "give a value, or add a body")

    def _check_head_variables(self, bound: frozenset[str]) -> None:
        for variable, span in _unbound_in_head(self.clause, bound):
            if variable.anonymous:
                self.complain("_ in a head has no value", span, "name the variable and bind it in the body")
            elif self.clause.aggregates:
                fix = f"add {variable.name} to fn:group_by(…), or aggregate it with a let"
                self.complain(f"{variable.name} is neither grouped by nor computed", span, fix)
            else:
                fix = f"add a positive premise that binds {variable.name}"
                self.complain(f"{variable.name} in the head is bound by no premise", span, fix)

    def _check_premise(self, premise: Premise) -> None:
        if isinstance(premise, Equality):
            self._check_functions(*premise.terms)
            return
        atom = premise.atom
        if not premise.timed:  # an unknown function in a timed premise is an error of the evaluation, as in a head
            self._check_functions(*atom.args)
        if atom.is_builtin:
            self._check_builtin(premise)
            return
        predicate = self.predicates.get(atom.key)
        if predicate is None:
            self._report_unknown_predicate(atom)
            return
        self._check_visible(predicate, atom)
        if predicate.temporal and not premise.timed and not premise.negated:
            fix = f"write {printer.atom(atom)}@[now], or @[_, _] for any time"
            self.complain(f"{predicate.name} is temporal: say when", premise.span, fix)
        if premise.timed and not predicate.temporal:
            fix = f"drop the annotation, or declare {predicate.name} temporal"
            self.complain(f"{predicate.name} is not temporal: it holds always", premise.span, fix)
        self._refuse_durations(premise.annotation)

    def _report_unknown_predicate(self, atom: Atom) -> None:
        own_package, package = package_of(self.clause.head.predicate), package_of(atom.predicate)
        prefix = f"{own_package}." if own_package else ""
        known = {(name.removeprefix(prefix), arity) for name, arity in self.predicates}  # short names, as in the clause
        fix = f"declare it: {_plain_decl(atom)}."
        if package:
            fix = f"load a unit of package {package} that defines it"
        message, better_fix = unknown_predicate(*atom.key, known, fix)
        self.complain(message, atom.span, better_fix)

    def _check_visible(self, predicate: Predicate, atom: Atom) -> None:
        package = package_of(predicate.name)
        if predicate.private and package != package_of(self.clause.head.predicate):
            owner = f"package {package}" if package else "the units without a package"
            fix = "ask a public predicate instead, or drop private() from its Decl"
            self.complain(f"{predicate.name} is private to {owner}", atom.span, fix)

    def _check_builtin(self, premise: Literal) -> None:
        atom = premise.atom
        builtin = PREDICATES.get(atom.predicate)
        if builtin is None:
            similar = closest_match(atom.predicate, PREDICATES)
            fix = f"did you mean {similar}?" if similar else None
            self.complain(f"unknown built-in predicate {atom.predicate}", atom.span, fix)
            return
        if len(atom.args) != len(builtin.modes):
            self.complain(wrong_count(atom.predicate, [len(builtin.modes)], len(atom.args)), atom.span)
            return
        if premise.timed:
            self.complain(f"{atom.predicate} holds at no particular time", premise.span, "drop the annotation")
        for position, (arg, mode) in enumerate(zip(atom.args, builtin.modes, strict=True)):
            if mode == "-" and not isinstance(arg, Variable) and not premise.negated:
                message = f"argument {position + 1} of {atom.predicate} is an output and takes a variable"
                fix = f"write a variable X here and add X = {printer.term(arg)}"
                self.complain(message, argument_span(atom, position), fix)

    def _check_functions(self, *terms: Term) -> None:
        for apply in subterms(*terms):
            if not isinstance(apply, Apply):
                continue
            function = FUNCTIONS.get(apply.function)
            if function is None:
                self._report_unknown_function(apply)
            elif not function.accepts(len(apply.args)):
                self.complain(_wrong_count_of_entry(function, len(apply.args)), apply.span)

    def _report_unknown_function(self, apply: Apply) -> None:
        if apply.function in REDUCERS or apply.function == GROUP_BY:
            message = f"{apply.function} works on the rows of a group, not here"
            self.complain(message, apply.span, f"write |> do {GROUP_BY}(…), let X = …")
            return
        known = {*FUNCTIONS, *REDUCERS}
        longer = " or ".join(sorted(name for name in known if name.startswith(f"{apply.function}_")))
        similar = longer or closest_match(apply.function, known)
        fix = f"did you mean {similar}?" if similar else None
        self.complain(f"unknown function {apply.function}", apply.span, fix)

    def _check_transforms(self, bound: frozenset[str]) -> frozenset[str]:
        """Check the ``|>`` steps; return the variables bound after the last one."""
        mentioned = {*bound, *self.body_variables}
        for step in self.clause.transforms:
            if step.do is not None:
                bound = self._check_group_by(step, step.do, bound, mentioned)
            else:
                for position, let in enumerate(step.lets):
                    self._check_new_variable(let.variable, mentioned)
                    mentioned.add(let.variable.name)
                    self._check_expression(let.expression, bound, reducers=False)
                    if position and let.expression.function in REDUCERS:
                        fix = f"aggregate behind |> do {GROUP_BY}(…)"
                        self.complain(f"{let.expression.function} reduces many rows to one", let.expression.span, fix)
                    bound |= {let.variable.name}
        return bound - {"_"}

    def _check_new_variable(self, variable: Variable, taken: set[str]) -> None:
        if not variable.anonymous and variable.name in taken:
            message = f"let defines {variable.name}, which already has a value"
            self.complain(message, variable.span, "choose another variable")

    def _check_group_by(self, step: Transform, do: Apply, bound: frozenset[str], mentioned: set[str]) -> frozenset[str]:
        if do.function != GROUP_BY:
            self.complain(f"do takes {GROUP_BY}, not {do.function}", do.span, f"write do {GROUP_BY}(…), let …")
            return bound | {let.variable.name for let in step.lets}
        keys: list[str] = []
        for arg in do.args:
            if not isinstance(arg, Variable) or arg.anonymous:
                self.complain(f"{GROUP_BY} takes variables, not {printer.term(arg)}", do.span)
            elif arg.name in keys:
                self.complain(f"{GROUP_BY} names {arg.name} twice", arg.span)
            elif arg.name not in bound:
                fix = f"group by {', '.join(sorted(bound)) or 'a variable of the body'}"
                self.complain(f"{arg.name} has no value here", arg.span, fix)
            else:
                keys.append(arg.name)
        bound_after = frozenset(keys)
        for let in step.lets:
            self._check_new_variable(let.variable, mentioned)
            mentioned.add(let.variable.name)
            reduces = let.expression.function in REDUCERS
            self._check_expression(let.expression, bound | bound_after if reduces else bound_after, reducers=True)
            bound_after |= {let.variable.name}
        return bound_after

    def _check_expression(self, expression: Apply, bound: frozenset[str], *, reducers: bool) -> None:
        """Check the right side of a ``let``; ``reducers`` is whether it may be a reducer."""
        reducer = REDUCERS.get(expression.function)
        if reducer is not None and reducers:
            if not reducer.accepts(len(expression.args)):
                self.complain(_wrong_count_of_entry(reducer, len(expression.args)), expression.span)
            self._check_functions(*expression.args)
        else:
            self._check_functions(expression)
        for variable in _unbound(expression.args, bound):
            self._report_no_value(variable)

    def _report_no_value(self, variable: Variable) -> None:
        if variable.anonymous:
            message, fix = "_ has no value", "name the variable and bind it in the body"
        elif variable.name in self.body_variables and self.clause.aggregates:
            message = f"{variable.name} has no value here"
            fix = "behind do, only the grouping variables and the results of reducers remain"
        else:
            message, fix = f"{variable.name} has no value here", f"add a premise that binds {variable.name}"
        self.complain(message, variable.span, fix)


def _plain_decl(atom: Atom) -> str:
    arguments = ", ".join(f"X{i + 1}" for i in range(len(atom.args)))
    return f"Decl {atom.predicate}({arguments})"


def _wrong_count_of_entry(entry: Function | Reducer, count: int) -> str:
    minimum = len(entry.params)
    if isinstance(entry, Function) and entry.even:
        return f"{entry.name} takes keys and values in pairs, not {count_noun(count, 'argument')}"
    if entry.rest is not None:
        return f"{entry.name} takes at least {count_noun(minimum, 'argument')}, not {count}"
    return wrong_count(entry.name, [minimum], count)
