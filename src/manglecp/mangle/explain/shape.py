"""Static properties of a rule: its id, the written order of its premises, and the head positions that a fact may fix.

To explain a fact, the variables of the head are fixed to the values of the fact before the body runs. That must not
change the meaning of the rule: a variable in a time annotation or operator is never fixed, and in an aggregation only
the group keys are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from manglecp.mangle import printer, syntax
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.engine.plan import relation_premises
from manglecp.mangle.facts import Args
from manglecp.mangle.matching import Row, unify
from manglecp.mangle.printer import term_with_values, value_text
from manglecp.mangle.program import Program, Rule
from manglecp.mangle.values import Value


def premise_text(premise: syntax.Premise, row: Row) -> str:
    """Format a premise with the values of ``row`` in place of variables. Atoms are written like facts."""
    if isinstance(premise, syntax.Equality) or (
        premise.atom.predicate in printer.INFIX and not premise.negated and not premise.timed
    ):
        return printer.premise(premise, lambda term: term_with_values(term, row))
    args = ",".join(term_with_values(arg, row) for arg in premise.atom.args)
    sign = "!" if premise.negated else ""
    operator, annotation = printer.operator(premise.operator), printer.annotation(premise.annotation)
    return f"{sign}{operator}{premise.atom.predicate}({args}){annotation}"


def bindings_json(bindings: Mapping[str, Value]) -> dict[str, str]:
    return {name: value_text(value) for name, value in bindings.items()}


def with_bindings(text: str, bindings: Mapping[str, Value]) -> str:
    """Append the values of variables to a text."""
    values = ", ".join(f"{name} = {value_text(value)}" for name, value in bindings.items())
    return f"{text}  with {values}" if values else text


@dataclass(frozen=True, slots=True)
class RuleRef:
    """A reference to a rule in an explanation."""

    clause: syntax.Clause = field(repr=False)
    id: str
    head: str  # the predicate of the head
    file: str | None
    line: int | None

    @property
    def text(self) -> str:
        return printer.clause(self.clause)

    @property
    def place(self) -> str:
        return "" if self.file is None else f"{self.file}:{self.line}"

    @property
    def text_with_place(self) -> str:
        return f"{self.text}  ({self.place})" if self.place else self.text

    def as_json(self) -> dict[str, object]:
        return {"id": self.id, "head": self.head, "file": self.file, "line": self.line}


def rule_ref(clause: syntax.Clause) -> RuleRef:
    """Return the reference of a rule; its id is a digest of its canonical text."""
    data = printer.clause(clause).encode()
    # Domain separation: with the kind and the length as prefixes, no digest of other data is equal.
    digest = sha256(b"4:rule\n%d:%s\n" % (len(data), data))
    file, line = (None, None) if clause.span is None else (clause.span.source.name, clause.span.line)
    return RuleRef(clause, f"/rule/{digest.hexdigest()[:32]}", clause.head.predicate, file, line)


class Shape:
    """The head positions of a rule that may be fixed before its body runs, and the written order of its premises."""

    def __init__(self, rule: Rule, predicate: Predicate) -> None:
        self.rule = rule
        self.predicate = predicate  # of the head
        self._bound_before: dict[frozenset[str], list[frozenset[str]]] = {}

    @cached_property
    def ref(self) -> RuleRef:
        return rule_ref(self.rule.clause)

    @cached_property
    def sort_key(self) -> tuple[str, str, int]:
        return self.ref.text, self.ref.file or "", self.ref.line or 0

    def as_written(self, position: int) -> syntax.Premise:
        """Return, as the clause has it, the premise at a position of the running order."""
        return self.rule.clause.premises[self.rule.positions[position]]

    @cached_property
    def variables(self) -> tuple[str, ...]:
        clause = self.rule.clause
        occurrences = [*syntax.term_variables(*clause.head.args)]
        occurrences += () if clause.annotation is None else syntax.bound_variables(clause.annotation.bounds)
        occurrences += [v for premise in clause.premises for v in syntax.premise_variables(premise)]
        occurrences += [let.variable for step in clause.transforms for let in step.lets]
        return tuple(dict.fromkeys(v.name for v in occurrences if not v.anonymous))

    def by_first_occurrence(self, row: Row) -> Row:
        """Return the row with its variables in the order in which the rule mentions them."""
        return {name: row[name] for name in self.variables if name in row}

    @cached_property
    def _time_variables(self) -> frozenset[str]:
        return frozenset(
            variable.name
            for premise in self.rule.premises
            if isinstance(premise, syntax.Literal)
            for part in (premise.operator, premise.annotation)
            if part is not None
            for variable in syntax.bound_variables(part.bounds)
        )

    @cached_property
    def _group_keys(self) -> frozenset[str] | None:
        """The variables that every aggregation groups by; None without an aggregation."""
        groups = [
            frozenset(arg.name for arg in step.do.args if isinstance(arg, syntax.Variable))
            for step in self.rule.clause.transforms
            if step.do is not None
        ]
        return frozenset.intersection(*groups) if groups else None

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Head positions that are bound before the body of a deferred rule runs."""
        return tuple(self.predicate.inputs()) if self.predicate.deferred else ()

    @cached_property
    def selective_positions(self) -> tuple[int, ...]:
        """The fixable head positions that narrow look-ups: inputs, constants, and variables of positive premises."""
        premises = (premise for premise in relation_premises(self.rule) if not premise.negated)
        return tuple(self._positions({a.name for p in premises for a in p.atom.args if isinstance(a, syntax.Variable)}))

    @cached_property
    def fixable(self) -> tuple[int, ...]:
        """Head positions that may be fixed without changing the meaning of the body."""
        return tuple(self._positions({v.name for p in self.rule.premises for v in syntax.premise_variables(p)}))

    def _positions(self, names: set[str]) -> Iterator[int]:
        """Yield the head positions of inputs, of constants, and of the variables in ``names`` that may be fixed."""
        names = names - self._time_variables
        if self._group_keys is not None:
            names &= self._group_keys
        for position, arg in enumerate(self.rule.head.args):
            if isinstance(arg, syntax.Apply):
                continue
            if position in self.inputs or not isinstance(arg, syntax.Variable) or arg.name in names:
                yield position

    def leaves_open(self, positions: tuple[int, ...]) -> bool:
        """Return whether the body, with these positions fixed, may derive other facts than the one to be explained."""
        return len(positions) < len(self.rule.head.args) or self.predicate.temporal

    @cached_property
    def needs_head_check(self) -> bool:
        """Whether rows have to be compared with the fact to be explained, because they may derive other facts."""
        return self.leaves_open(self.selective_positions)

    def fix(self, positions: Iterable[int], values: Iterable[object]) -> Row | None:
        """Return the row that gives the head these values at these positions; None if the head cannot have them."""
        patterns: list[syntax.Term] = [self.rule.head.args[i] for i in positions]
        return unify(patterns, tuple(values), row={}, now=0)  # type: ignore[arg-type]

    def bound_before(self, start: frozenset[str]) -> list[frozenset[str]]:
        """Return the variables bound before each premise and after the last one, if ``start`` are bound first."""
        before = self._bound_before.get(start)
        if before is None:
            before = self._bound_before[start] = [start]
            for premise in self.rule.premises:
                before.append(before[-1] | {v.name for v in syntax.premise_variables(premise) if not v.anonymous})
        return before

    @cached_property
    def relation_premises(self) -> list[tuple[int, syntax.Literal]]:
        """The premises that read relations, in written order, each with its position in the running order."""
        by_written_position = zip(self.rule.positions, enumerate(self.rule.premises), strict=True)
        premises = (running for _, running in sorted(by_written_position, key=lambda pair: pair[0]))
        return [(i, p) for i, p in premises if isinstance(p, syntax.Literal) and not p.atom.predicate.startswith(":")]

    @cached_property
    def premise_keys(self) -> frozenset[syntax.Key]:
        return frozenset(premise.atom.key for _, premise in self.relation_premises)


def shapes_of(program: Program) -> Mapping[syntax.Key, list[Shape]]:
    if program.shapes is None:  # two threads may both make the shapes, with the same result
        program.shapes = {
            key: [Shape(rule, program.predicates[key]) for rule in rules]
            for key, rules in program.rules_by_head.items()
        }
    return program.shapes


def unifies(head: syntax.Atom, args: Args) -> bool:
    """Return whether the head may unify with the arguments; a function application unifies with any value."""
    comparable = [
        (term, value) for term, value in zip(head.args, args, strict=True) if not isinstance(term, syntax.Apply)
    ]
    return unify([term for term, _ in comparable], tuple(value for _, value in comparable), row={}, now=0) is not None
