"""A loaded program, ready for evaluation.

Loading has three stages: *parse* all sources, *analyse* the program (packages, declarations, ownership, clauses,
temporal recursion, types), *stratify*. Each stage reports all of its problems before the next stage starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.gc_pause import gc_paused
from manglecp.base.source import Source, Trust
from manglecp.mangle import printer, syntax
from manglecp.mangle.builtins import FUNCTIONS, REDUCERS
from manglecp.mangle.checker import check_types
from manglecp.mangle.clauses import ClauseCheck
from manglecp.mangle.constants import check_constants
from manglecp.mangle.declarations import Predicate, check_ownership, collect, resolve, unknown_predicate
from manglecp.mangle.errors import AnalysisError, ParseError, StratificationError, ValueFault
from manglecp.mangle.matching import evaluate_term, mentions_now
from manglecp.mangle.parser import LONG_TEXT, parse
from manglecp.mangle.stratify import Component, Dependencies, dependencies
from manglecp.mangle.values import Value, part_size

if TYPE_CHECKING:
    from manglecp.mangle.engine import Base
    from manglecp.mangle.engine.profile import RuleProfile
    from manglecp.mangle.explain import Shape
    from manglecp.mangle.externals import Externals
    from manglecp.mangle.facts import Fact
    from manglecp.mangle.model import Limits


_Node = TypeVar("_Node")


@dataclass(frozen=True, slots=True)
class Rule:
    """A clause with a body, and its premises in running order."""

    clause: syntax.Clause
    premises: tuple[syntax.Premise, ...]
    positions: tuple[int, ...]  # the index of each premise in the clause

    @property
    def head(self) -> syntax.Atom:
        return self.clause.head

    @property
    def counts_facts(self) -> bool:
        """Whether an aggregation counts facts and not distinct rows: so if its only premise reads a relation."""
        if len(self.premises) != 1 or not self.clause.aggregates:
            return False
        (premise,) = self.premises
        return isinstance(premise, syntax.Literal) and not premise.negated and not premise.atom.is_builtin


@dataclass(frozen=True, slots=True)
class GivenFact:
    """A fact of the program; ``args`` is None if an argument depends on the evaluation time."""

    clause: syntax.Clause
    args: tuple[Value, ...] | None

    @property
    def key(self) -> syntax.Key:
        return self.clause.head.key

    def values(self, now: int) -> tuple[Value, ...]:
        if self.args is not None:
            return self.args
        return tuple(evaluate_term(arg, {}, now) for arg in self.clause.head.args)


class Program:
    """A loaded program. Immutable; made by :meth:`load`."""

    def __init__(
        self,
        predicates: Mapping[syntax.Key, Predicate],
        rules: Sequence[Rule],
        facts: Sequence[GivenFact],
        components: Sequence[Component],
        warnings: Sequence[Diagnostic],
    ) -> None:
        self.predicates = predicates
        self.rules = tuple(rules)
        self.facts = tuple(facts)
        self.components = tuple(components)
        self.warnings = tuple(warnings)
        self.shapes: Mapping[syntax.Key, list[Shape]] | None = None  # rule shapes for explanations, cached

    @cached_property
    def rules_by_head(self) -> Mapping[syntax.Key, list[Rule]]:
        by_head: dict[syntax.Key, list[Rule]] = {}
        for rule in self.rules:
            by_head.setdefault(rule.head.key, []).append(rule)
        return by_head

    @cached_property
    def component_numbers(self) -> Mapping[syntax.Key, int]:
        """The index in ``components`` of each predicate that has rules or merges."""
        return {key: number for number, component in enumerate(self.components) for key in component.predicates}

    @cached_property
    def dependencies(self) -> DependencyClosure:
        return DependencyClosure(self)

    def __repr__(self) -> str:
        return f"Program({len(self.rules)} rules, {len(self.facts)} facts)"

    @classmethod
    def load(
        cls,
        sources: Iterable[Source | syntax.Unit],
        *,
        bounds: Literal["error", "off"] = "error",
        owners: Mapping[str, Trust] | None = None,
    ) -> Program:
        """Parse, analyse and stratify. Raises the error of the first stage that fails, with all its diagnostics.

        A unit is a source that is already parsed. ``bounds="off"`` skips the type checker. ``owners`` assigns predicate
        names to trust levels, and overrides the owners that declarations and clauses imply.
        """
        sources = list(sources)
        originals = (source.source if isinstance(source, syntax.Unit) else source for source in sources)
        is_long = sum(len(original.text) for original in originals if original is not None) > LONG_TEXT
        with gc_paused(is_long):
            return _Loader(_parse_all(sources)).load(check_bounds=bounds == "error", owners=owners or {})

    @classmethod
    def of_declarations(cls, decls: Iterable[syntax.Decl]) -> Program:
        """Return a program without clauses, with which facts can be read even if the rules are faulty."""
        predicates, _, _ = collect(decls, clauses=())
        return cls(predicates, rules=(), facts=(), components=(), warnings=())

    def affected_by(self, keys: Iterable[syntax.Key]) -> set[syntax.Key]:
        """Return the predicates ``keys``, and all predicates that are derived from them."""
        return self.dependencies.affects(keys)

    def base(
        self,
        facts: Iterable[Fact] = (),
        *,
        check: bool = True,
        limits: Limits | None = None,
        externals: Externals | None = None,
        profile: RuleProfile | None = None,
    ) -> Base:
        """Evaluate the program with ``facts``, and return the result as a base for requests.

        ``check=False`` skips the check against declared bounds. ``externals`` implement external predicates, by name.
        ``profile`` collects the costs of the rules, also for requests on the base.
        """
        from manglecp.mangle.engine import Base  # late: the engine imports this module

        return Base.prepare(self, facts, check=check, limits=limits, externals=externals, profile=profile)


def _parse_all(sources: Iterable[Source | syntax.Unit]) -> list[syntax.Unit]:
    units: list[syntax.Unit] = []
    problems: list[Diagnostic] = []
    for source in sources:
        try:
            units.append(source if isinstance(source, syntax.Unit) else parse(source))
        except ParseError as error:
            problems += error.diagnostics
    if problems:
        raise ParseError(problems)
    return units


class _Loader:
    def __init__(self, units: list[syntax.Unit]) -> None:
        self.units, self.errors = resolve(units)
        self.clauses = [clause for unit in self.units for clause in unit.clauses]
        decls = (decl for unit in self.units for decl in unit.decls)
        self.predicates, problems, self.faulty_decls = collect(decls, self.clauses)
        self.errors += problems
        self.rules: list[Rule] = []
        self.facts: list[GivenFact] = []
        self.faulty_clauses: set[syntax.Clause] = set()

    def load(self, check_bounds: bool, owners: Mapping[str, Trust]) -> Program:
        self.errors += check_ownership(self.predicates, self.clauses, owners)
        self._check_inclusions()
        for clause in self.clauses:
            self._load_clause(clause)
        graph = Dependencies(self.predicates, [rule.clause for rule in self.rules])
        recursion_errors, warnings = graph.temporal_recursion()
        self.errors += recursion_errors
        sound_rules = (rule for rule in self.rules if rule.clause not in self.faulty_clauses)
        self.errors += check_constants(sound_rules, self.facts)
        if check_bounds:
            self.errors += self._check_types()
        if self.errors:
            raise AnalysisError(self._in_order(self.errors))
        unstratifiable = graph.unstratifiable()
        if unstratifiable:
            raise StratificationError(self._in_order(unstratifiable))
        return Program(self.predicates, self.rules, self.facts, graph.components, self._in_order(warnings))

    def _load_clause(self, clause: syntax.Clause) -> None:
        if _is_plain_fact(clause) and not self.predicates[clause.head.key].temporal:
            self.facts.append(GivenFact(clause, clause.head.args))  # type: ignore[arg-type]  # only constants
            return
        check = ClauseCheck(clause, self.predicates)
        ordering = check.run()
        if check.diagnostics:
            self._refuse(clause, check.diagnostics)
        if not clause.is_fact:
            self.rules.append(Rule(clause, ordering.premises, ordering.positions))
        elif not check.diagnostics:
            self._add_fact(clause)

    def _refuse(self, clause: syntax.Clause, diagnostics: Iterable[Diagnostic]) -> None:
        self.errors += diagnostics
        self.faulty_clauses.add(clause)

    def _check_types(self) -> list[Diagnostic]:
        """Check types in the part of the program that earlier errors do not affect."""
        if not self.errors:
            return check_types(self.predicates, self.rules, self.facts)
        untypable = self._untypable()
        rules = [
            rule
            for rule in self.rules
            if rule.clause not in self.faulty_clauses
            and rule.head.key not in self.faulty_decls
            and untypable.isdisjoint(rule.clause.reads)
        ]
        facts = [fact for fact in self.facts if fact.key not in self.faulty_decls]
        return check_types(self.predicates, rules, facts)

    def _untypable(self) -> set[syntax.Key]:
        """Return the predicates whose types are unknown because of an error.

        These have a faulty declaration, or they are undeclared and have a faulty clause or a premise of unknown type.
        """
        undeclared = {key for key, predicate in self.predicates.items() if predicate.decl is None}
        readers: dict[syntax.Key, set[syntax.Key]] = {}
        for rule in (rule for rule in self.rules if rule.head.key in undeclared):
            for key in rule.clause.reads:
                readers.setdefault(key, set()).add(rule.head.key)
        faulty = undeclared.intersection(clause.head.key for clause in self.faulty_clauses)
        return closure(faulty | self.faulty_decls, readers)

    def _add_fact(self, clause: syntax.Clause) -> None:
        if any(map(mentions_now, clause.head.args)):
            self.facts.append(GivenFact(clause, args=None))
            return
        try:
            self.facts.append(GivenFact(clause, tuple(evaluate_term(arg, {}, now=0) for arg in clause.head.args)))
        except ValueFault as fault:
            self._refuse(clause, [Diagnostic("analysis", str(fault), clause.head.span, printer.clause(clause))])

    def _check_inclusions(self) -> None:
        for predicate in self.predicates.values():
            for atom in predicate.inclusion:
                if (problem := self._inclusion_problem(atom)) is not None:
                    decl_text = None if predicate.decl is None else printer.decl(predicate.decl)
                    message, fix = problem
                    self.errors.append(Diagnostic("analysis", message, atom.span, decl_text, fix))

    def _inclusion_problem(self, atom: syntax.Atom) -> tuple[str, str | None] | None:
        """Return the message and the fix; None if there is no problem."""
        if atom.is_builtin:
            return f"an inclusion asks for facts, {atom.predicate} has none", "write a rule that tests it"
        included = self.predicates.get(atom.key)
        if included is None:
            _, fix = unknown_predicate(*atom.key, self.predicates)
            return f"unknown predicate {atom.predicate}/{len(atom.args)} in an inclusion", fix
        inputs = (atom.args[position] for position in included.inputs())
        if included.deferred and any(v.anonymous for v in syntax.term_variables(*inputs)):
            return f"{atom.predicate} needs a value where _ stands", "name an argument of the Decl"
        return None

    def _in_order(self, diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
        """Sort by source and offset; diagnostics without a source come last."""
        source_ranks = {id(unit.source): rank for rank, unit in enumerate(self.units)}
        last = len(source_ranks)

        def source_order(diagnostic: Diagnostic) -> tuple[int, int]:
            span = diagnostic.span
            return (last, 0) if span is None else (source_ranks.get(id(span.source), last), span.start)

        return sorted(diagnostics, key=source_order)


_NOT_CONSTANT: Final = frozenset({syntax.Variable, syntax.Apply})


def _is_plain_fact(clause: syntax.Clause) -> bool:
    if clause.premises or clause.annotation is not None:
        return False
    return not any(map(_NOT_CONSTANT.__contains__, map(type, clause.head.args)))


class DependencyClosure:
    """The transitive dependencies between the predicates of a program."""

    def __init__(self, program: Program) -> None:
        self._reads: dict[syntax.Key, set[syntax.Key]] = {}
        self._readers: dict[syntax.Key, set[syntax.Key]] = {}
        # By head, the body predicates whose new facts can retract facts of the head.
        self._retracting: dict[syntax.Key, set[syntax.Key]] = {}
        for dependency in dependencies(program.predicates, (rule.clause for rule in program.rules)):
            if dependency.body[0].startswith(":"):
                continue
            self._reads.setdefault(dependency.head, set()).add(dependency.body)
            self._readers.setdefault(dependency.body, set()).add(dependency.head)
            if dependency.retracts:
                self._retracting.setdefault(dependency.head, set()).add(dependency.body)
            if dependency.premise is None:  # in a merge, a new fact may replace another fact of the same predicate
                self._retracting.setdefault(dependency.head, set()).add(dependency.head)

    def needs(self, keys: Iterable[syntax.Key]) -> set[syntax.Key]:
        """Return the predicates ``keys``, and all predicates from which they are derived."""
        return closure(keys, self._reads)

    def affects(self, keys: Iterable[syntax.Key]) -> set[syntax.Key]:
        """Return the predicates ``keys``, and all predicates that are derived from them."""
        return closure(keys, self._readers)

    def retracting(self, key: syntax.Key) -> set[syntax.Key]:
        """Return the predicates whose new facts could retract facts of ``key``."""
        return self.needs(body for head in self.needs([key]) for body in self._retracting.get(head, ()))


def closure(start: Iterable[_Node], edges: Mapping[_Node, Iterable[_Node]]) -> set[_Node]:
    """Return all nodes that can be reached from ``start``, including ``start``."""
    reached = set(start)
    stack = list(reached)
    while stack:
        new = set(edges.get(stack.pop(), ())) - reached
        reached |= new
        stack += new
    return reached


# The limit on derived facts does not bound their size: a list that grows by one element per fact takes quadratic
# memory. So the parts of values are counted in *built* columns: a column is built if a rule derives its values by a
# function whose results may have any size. Values that a rule copies are shared, so they are not counted. The count
# depends on the facts only, not on their derivation. The two constants are prefixes of result types.
_ANY_SIZE_RESULTS: Final = ("/string", "fn:List", "fn:Map", "fn:Struct", "fn:Pair", "/any")
_PART_RESULTS: Final = ("V", "X", "Y")  # type variables: the function returns an argument, or a part of an argument


def built_columns(rules: Iterable[Rule]) -> dict[syntax.Key, tuple[int, ...]]:
    """Return the built columns of each predicate with a built column."""
    built: dict[syntax.Key, set[int]] = {}
    for rule in rules:
        variables = _built_variables(rule)
        if columns := {column for column, arg in enumerate(rule.head.args) if _builds(arg, variables)}:
            built.setdefault(rule.head.key, set()).update(columns)
    return {key: tuple(sorted(columns)) for key, columns in built.items()}


def count_parts(facts: Iterable[tuple[Value, ...]], columns: tuple[int, ...]) -> int:
    """Return the sum of :func:`part_size` over the values in these columns."""
    return sum(part_size(fact[column]) for fact in facts for column in columns)


def _built_variables(rule: Rule) -> set[str]:
    built: set[str] = set()
    for premise in rule.premises:
        if isinstance(premise, syntax.Equality):
            pairs = premise.directions
            built |= {side.name for side, other in pairs if isinstance(side, syntax.Variable) and _builds(other, built)}
        elif premise.atom.predicate == ":match_cons":  # the rest of the list is a new list
            built |= {arg.name for arg in premise.atom.args[2:] if isinstance(arg, syntax.Variable)}
    for let in rule.clause.lets:
        if _builds(let.expression, built):
            built.add(let.variable.name)
    return built


def _builds(term: syntax.Term, built: set[str]) -> bool:
    """Return whether the value of the term may have any size; so may the values of the variables ``built``."""
    if isinstance(term, syntax.Variable):
        return term.name in built
    if not isinstance(term, syntax.Apply):
        return False
    function = FUNCTIONS.get(term.function) or REDUCERS.get(term.function)
    if function is None or function.result.startswith(_ANY_SIZE_RESULTS):
        return True
    return function.result.startswith(_PART_RESULTS) and any(_builds(arg, built) for arg in term.args)
