"""Checks that look at one clause at a time: names, functions, annotations, transforms and safety."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Span
from manglecp.base.suggestions import closest_match
from manglecp.mangle import printer
from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS, Function, Reducer
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.packages import Key, package_of
from manglecp.mangle.parser import argument_span
from manglecp.mangle.safety import Ordering, order, unbound_in_head
from manglecp.mangle.syntax import (
    Annotation,
    Apply,
    Atom,
    Clause,
    Equality,
    Literal,
    Premise,
    Term,
    Transform,
    Variable,
    premise_variables,
    term_variables,
)
from manglecp.mangle.values import Duration

GROUP_BY = "fn:group_by"


@dataclass
class ClauseCheck:
    """Everything that is wrong with one clause, and the order of its premises."""

    clause: Clause
    predicates: Mapping[Key, Predicate]
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @cached_property
    def in_body(self) -> frozenset[str]:
        """The names of all variables of its premises."""
        return frozenset(v.name for premise in self.clause.premises for v in premise_variables(premise))

    def run(self) -> Ordering:
        """The order in which its premises can run. What is wrong is in ``diagnostics`` afterwards."""
        clause = self.clause
        self._head()
        for premise in clause.premises:
            self._premise(premise)
        if clause.is_fact:
            self._fact()
            return Ordering((), frozenset())
        ordering = order(clause, self.predicates)
        self.diagnostics += ordering.diagnostics
        known = self._transforms(ordering.bound)
        if not ordering.diagnostics:
            self._head_variables(known)
        return ordering

    def complain(self, message: str, span: Span | None, fix: str | None = None) -> None:
        """Note a mistake, at the whole clause if no place is given."""
        where = span or self.clause.span
        self.diagnostics.append(Diagnostic("analysis", message, where, printer.clause(self.clause), fix))

    # --- head ------------------------------------------------------------------------------------------------------

    def _head(self) -> None:
        clause = self.clause
        predicate = self.predicates[clause.head.key]
        if predicate.extensional and not clause.is_fact:
            self.complain(
                f"{predicate.name} is extensional: it takes facts, not rules",
                clause.head.span,
                "derive another predicate, or drop extensional() from its Decl",
            )
        if predicate.name.startswith(":") and not clause.is_fact:
            self.complain(f"{predicate.name} is the name of a built-in: no rule can define it", clause.head.span)
        if predicate.external and not clause.is_fact:
            self.complain(f"{predicate.name} is external: it is answered from outside, not by rules", clause.head.span)
        annotation = clause.annotation
        if predicate.temporal and annotation is None:
            self.complain(f"{predicate.name} is temporal: say when it holds", clause.head.span, "add @[start, end]")
        elif annotation is not None and not predicate.temporal and not annotation.eternal:
            self.complain(
                f"{predicate.name} is not temporal and takes no annotation",
                annotation.span,
                f"declare it: {_plain_decl(clause.head)} temporal."
                if predicate.decl is None
                else "add temporal to its Decl",
            )
        self._no_durations(annotation)

    def _no_durations(self, annotation: Annotation | None) -> None:
        for bound in () if annotation is None else annotation.bounds:
            if isinstance(bound.value, Duration):
                self.complain(
                    f"{bound.text} is a duration, an annotation needs instants",
                    bound.span,
                    "durations belong into operators such as <-[5m]",
                )

    def _fact(self) -> None:
        self._functions(*self.clause.head.args)
        for variable, span in unbound_in_head(self.clause, frozenset()):
            self.complain(f"a fact has no variables, found {variable.name}", span, "give a value, or add a body")

    def _head_variables(self, known: frozenset[str]) -> None:
        aggregated = self.clause.aggregates
        for variable, span in unbound_in_head(self.clause, known):
            if variable.anonymous:
                self.complain("_ in a head has no value", span, "name the variable and bind it in the body")
            elif aggregated:
                fix = f"add {variable.name} to fn:group_by(…), or aggregate it with a let"
                self.complain(f"{variable.name} is neither grouped by nor computed", span, fix)
            else:
                fix = f"add a positive premise that binds {variable.name}"
                self.complain(f"{variable.name} in the head is bound by no premise", span, fix)

    # --- premises --------------------------------------------------------------------------------------------------

    def _premise(self, premise: Premise) -> None:
        if isinstance(premise, Equality):
            self._functions(premise.left, premise.right)
            return
        atom = premise.atom
        if not premise.timed:  # under an annotation, as in a head, an unknown function is an error when it is called
            self._functions(*atom.args)
        if atom.predicate.startswith(":"):
            self._builtin(premise)
            return
        predicate = self.predicates.get(atom.key)
        if predicate is None:
            self._unknown_predicate(atom)
            return
        self._visible(predicate, atom)
        if predicate.temporal and not premise.timed and not premise.negated:
            self.complain(
                f"{predicate.name} is temporal: say when",
                premise.span,
                f"write {printer.atom(atom)}@[now], or @[_, _] for any time",
            )
        if premise.timed and not predicate.temporal:
            self.complain(
                f"{predicate.name} is not temporal: it holds always",
                premise.span,
                f"drop the annotation, or declare {predicate.name} temporal",
            )
        self._no_durations(premise.annotation)

    def _unknown_predicate(self, atom: Atom) -> None:
        own = package_of(self.clause.head.predicate)
        by_name: dict[str, list[int]] = {}  # as the clause would call them: without its own package
        for name, arity in self.predicates:
            by_name.setdefault(name.removeprefix(f"{own}.") if own else name, []).append(arity)
        if atom.predicate in by_name:
            self.complain(_wrong_count(atom.predicate, sorted(by_name[atom.predicate]), len(atom.args)), atom.span)
            return
        similar = closest_match(atom.predicate, by_name)
        fix = f"did you mean {similar}?" if similar else f"declare it: {_plain_decl(atom)}."
        if not similar and own and package_of(atom.predicate):
            fix = f"load a unit of package {package_of(atom.predicate)} that defines it"
        self.complain(f"unknown predicate {atom.predicate}", atom.span, fix)

    def _visible(self, predicate: Predicate, atom: Atom) -> None:
        package = package_of(predicate.name)
        if predicate.private and package != package_of(self.clause.head.predicate):
            owner = f"package {package}" if package else "the units without a package"
            fix = "ask a public predicate instead, or drop private() from its Decl"
            self.complain(f"{predicate.name} is private to {owner}", atom.span, fix)

    def _builtin(self, premise: Literal) -> None:
        atom = premise.atom
        builtin = PREDICATES.get(atom.predicate)
        if builtin is None:
            similar = closest_match(atom.predicate, PREDICATES)
            fix = f"did you mean {similar}?" if similar else None
            self.complain(f"unknown built-in predicate {atom.predicate}", atom.span, fix)
            return
        if len(atom.args) != len(builtin.modes):
            self.complain(_wrong_count(atom.predicate, [len(builtin.modes)], len(atom.args)), atom.span)
            return
        if premise.timed:
            self.complain(f"{atom.predicate} holds at no particular time", premise.span, "drop the annotation")
        for position, (arg, mode) in enumerate(zip(atom.args, builtin.modes, strict=True)):
            if mode == "-" and not isinstance(arg, Variable) and not premise.negated:
                self.complain(
                    f"argument {position + 1} of {atom.predicate} is an output and takes a variable",
                    argument_span(atom, position),
                    f"write a variable X here and add X = {printer.term(arg)}",
                )

    def _functions(self, *terms: Term) -> None:
        for apply in _applications(*terms):
            function = FUNCTIONS.get(apply.function)
            if function is None:
                self._unknown_function(apply)
            elif not function.accepts(len(apply.args)):
                self.complain(_wrong_number_for(function, len(apply.args)), apply.span)

    def _unknown_function(self, apply: Apply) -> None:
        if apply.function in REDUCERS or apply.function == GROUP_BY:
            message = f"{apply.function} works on the rows of a group, not here"
            self.complain(message, apply.span, f"write |> do {GROUP_BY}(…), let X = …")
            return
        similar = closest_match(apply.function, {*FUNCTIONS, *REDUCERS})
        fix = f"did you mean {similar}?" if similar else None
        self.complain(f"unknown function {apply.function}", apply.span, fix)

    # --- transforms ------------------------------------------------------------------------------------------------

    def _transforms(self, bound: frozenset[str]) -> frozenset[str]:
        """Follow the ``|>`` steps; what is known behind the last one."""
        known = bound
        mentioned = {*bound, *self.in_body}
        for step in self.clause.transforms:
            if step.do is not None:
                known = self._group_by(step, step.do, known, mentioned)
            else:
                for position, let in enumerate(step.lets):
                    self._new_variable(let.variable, mentioned)
                    mentioned.add(let.variable.name)
                    self._expression(let.expression, known, reducers=False)
                    if position and let.expression.function in REDUCERS:
                        fix = f"aggregate behind |> do {GROUP_BY}(…)"
                        self.complain(f"{let.expression.function} reduces many rows to one", let.expression.span, fix)
                    known |= {let.variable.name}
        return known - {"_"}

    def _new_variable(self, variable: Variable, taken: set[str]) -> None:
        if not variable.anonymous and variable.name in taken:
            message = f"let defines {variable.name}, which already has a value"
            self.complain(message, variable.span, "choose another variable")

    def _group_by(self, step: Transform, do: Apply, known: frozenset[str], mentioned: set[str]) -> frozenset[str]:
        if do.function != GROUP_BY:
            self.complain(f"do takes {GROUP_BY}, not {do.function}", do.span, f"write do {GROUP_BY}(…), let …")
            return known | {let.variable.name for let in step.lets}
        keys: list[str] = []
        for arg in do.args:
            if not isinstance(arg, Variable) or arg.anonymous:
                self.complain(f"{GROUP_BY} takes variables, not {printer.term(arg)}", do.span)
            elif arg.name in keys:
                self.complain(f"{GROUP_BY} names {arg.name} twice", arg.span)
            elif arg.name not in known:
                self.complain(f"{arg.name} has no value here", arg.span, f"group by {_one_of(known)}")
            else:
                keys.append(arg.name)
        after = frozenset(keys)
        for let in step.lets:
            self._new_variable(let.variable, mentioned)
            mentioned.add(let.variable.name)
            reduces = let.expression.function in REDUCERS
            self._expression(let.expression, known | after if reduces else after, reducers=True)
            after |= {let.variable.name}
        return after

    def _expression(self, expression: Apply, known: frozenset[str], *, reducers: bool) -> None:
        """A ``let`` of a transform: its function, its arguments and their variables."""
        reducer = REDUCERS.get(expression.function)
        if reducer is not None and reducers:
            if not reducer.accepts(len(expression.args)):
                self.complain(_wrong_number_for(reducer, len(expression.args)), expression.span)
            self._functions(*expression.args)
        else:
            self._functions(expression)
        for variable in term_variables(*expression.args):
            if variable.anonymous or variable.name not in known:
                self._not_known(variable)

    def _not_known(self, variable: Variable) -> None:
        if variable.anonymous:
            message, fix = "_ has no value", "name the variable and bind it in the body"
        elif variable.name in self.in_body and self.clause.aggregates:
            message = f"{variable.name} has no value here"
            fix = "behind do, only the grouping variables and the results of reducers remain"
        else:
            message, fix = f"{variable.name} has no value here", f"add a premise that binds {variable.name}"
        self.complain(message, variable.span, fix)


def _plain_decl(atom: Atom) -> str:
    arguments = ", ".join(f"X{i + 1}" for i in range(len(atom.args)))
    return f"Decl {atom.predicate}({arguments})"


def _one_of(variables: frozenset[str]) -> str:
    return ", ".join(sorted(variables)) or "a variable of the body"


def _wrong_number_for(entry: Function | Reducer, given: int) -> str:
    few = len(entry.params)
    if isinstance(entry, Function) and entry.even:
        return f"{entry.name} takes keys and values in pairs, not {_arguments(given)}"
    if entry.rest is not None:
        return f"{entry.name} takes at least {_arguments(few)}, not {given}"
    return _wrong_count(entry.name, [few], given)


def _wrong_count(name: str, wanted: list[int], given: int) -> str:
    return f"{name} takes {' or '.join([*map(str, wanted[:-1]), _arguments(wanted[-1])])}, not {given}"


def _arguments(count: int) -> str:
    return f"{count} argument{'' if count == 1 else 's'}"


def _applications(*terms: Term) -> Iterator[Apply]:
    stack = list(reversed(terms))
    while stack:
        term = stack.pop()
        if isinstance(term, Apply):
            yield term
            stack.extend(reversed(term.args))
