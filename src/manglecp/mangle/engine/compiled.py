"""A compiled program: numbered predicates, planned rules, and functions generated on demand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.mangle import printer
from manglecp.mangle.declarations import FactAcceptor, Predicate, is_text, unknown_predicate
from manglecp.mangle.engine.codegen import CompiledFunction, Generator
from manglecp.mangle.engine.maintenance import MaintainedRule, maintainable
from manglecp.mangle.engine.plan import RuleSteps, relation_premises, split_rule
from manglecp.mangle.engine.profile import RuleProfile
from manglecp.mangle.engine.views import FactTuple, GroupedView, View
from manglecp.mangle.errors import AnalysisError, EvalError, Stage
from manglecp.mangle.facts import Fact, is_nonempty_interval
from manglecp.mangle.matching import mentions_now
from manglecp.mangle.printer import fact_text
from manglecp.mangle.program import GivenFact, Program, Rule, built_columns
from manglecp.mangle.stratify import Component
from manglecp.mangle.syntax import Apply, Key, Now, TimeBound, Variable
from manglecp.mangle.transforms import Aggregation
from manglecp.mangle.values import INT_MAX, INT_MIN, KIND_NAMES, Value

MAX_ERRORS: Final = 100  # diagnostics in one exception
_ALWAYS: Final = (INT_MIN, INT_MAX)


class Intake:
    """Checks and converts given facts. An interval that ends before it starts is an EvalError, as in a program."""

    def __init__(self, predicates: Mapping[Key, Predicate], ids: Mapping[Key, int]) -> None:
        self.predicates = predicates
        self.ids = ids
        self.acceptance = FactAcceptor(predicates)

    def by_predicate(self, facts: Iterable[Fact], check: bool) -> dict[int, set[FactTuple]]:
        """Return the facts by predicate number; a temporal fact has its interval as two more columns.

        Raises AnalysisError or EvalError with all problems, up to MAX_ERRORS.
        """
        given: dict[int, set[FactTuple]] = defaultdict(set)
        analysis_problems: list[Diagnostic] = []
        eval_problems: list[Diagnostic] = []
        ids, predicates, accepts = self.ids, self.predicates, self.acceptance.accepts
        for fact in facts:
            if type(fact) is not Fact:
                raise AnalysisError([_not_a_fact(f"a {type(fact).__name__} is not a fact")])
            if type(fact.args) is not tuple:
                kind = type(fact.args).__name__
                raise AnalysisError([_not_a_fact(f"the arguments of a fact are a {kind}, not a tuple")])
            name, args, interval = fact
            key = (name, len(args))
            i = ids.get(key)
            if i is None or (check and not accepts(key, args)):
                analysis_problems.append(self._diagnose(fact))
            elif not predicates[key].temporal:
                if interval is None:
                    given[i].add(args)
                    continue
                analysis_problems.append(_problem(fact, f"{name} is not temporal, but the fact has an interval"))
            else:
                if interval is not None and not _is_interval(interval):
                    raise AnalysisError([_problem(None, f"the interval of a fact of {name} is not a pair of integers")])
                start, end = interval or _ALWAYS
                if is_nonempty_interval(start, end):
                    given[i].add((*args, start, end))
                else:
                    eval_problems.append(_problem(fact, "the interval ends before it starts", stage="eval"))
            if len(analysis_problems) >= MAX_ERRORS or len(eval_problems) >= MAX_ERRORS:
                break
        if analysis_problems:
            raise AnalysisError(analysis_problems)
        if eval_problems:
            raise EvalError(eval_problems)
        return given

    def _diagnose(self, fact: Fact) -> Diagnostic:
        """Explain why a fact does not match its declaration."""
        name, args, _ = fact
        if fact.key not in self.ids:
            return _problem(fact, *unknown_predicate(*fact.key, self.ids))
        for number, arg in enumerate(args, 1):
            which = f"argument {number} of {name}"
            if type(arg) not in KIND_NAMES:
                return _problem(None, f"{which} is a Python {type(arg).__name__}, not a value")
            if type(arg) is int and not INT_MIN <= arg <= INT_MAX:
                return _problem(None, f"{which} is a number of more than 64 bits")
            if type(arg) is str and not is_text(arg):
                return _problem(None, f"{which} has half a character (a lone surrogate)")
        types = ", ".join(map(str, self.acceptance.types(args)))
        expected = " or ".join(f"({', '.join(map(str, row))})" for row in self.predicates[name, len(args)].rows)
        return _problem(fact, f"{name} takes {expected}, not ({types})")


def _is_interval(interval: object) -> bool:
    return type(interval) is tuple and len(interval) == 2 and all(type(end) is int for end in interval)


def _not_a_fact(message: str) -> Diagnostic:
    return Diagnostic("analysis", message, fix='give facts as Fact("p", (1, "x"))')


def _problem(fact: Fact | None, message: str, fix: str | None = None, stage: Stage = "analysis") -> Diagnostic:
    """Return a diagnostic that shows the fact; ``fact`` is None if it cannot be shown."""
    fact_line = None if fact is None or any(type(arg) not in KIND_NAMES for arg in fact.args) else fact_text(*fact)
    return Diagnostic(stage, message, clause=fact_line, fix=fix)


@dataclass(eq=False)
class CompiledRule:
    head: int  # a predicate number, like the other predicates of this class; see CompiledProgram.ids
    steps: RuleSteps
    aggregation: Aggregation | None
    name: str
    scans: tuple[int, ...]  # predicates of its positive premises
    constants: frozenset[tuple[int, int, Value]]  # of positive premises: predicate, column and value
    reads: tuple[int, ...]  # predicates of all its premises
    is_only: bool  # whether no other rule has this head
    functions: dict[tuple[str, ...], CompiledFunction | None] = field(default_factory=dict)  # by name and layers

    def function(
        self,
        compiled: CompiledProgram,
        views: Sequence[View],
        name: str,
        steps: RuleSteps | None = None,
        **options: Any,
    ) -> CompiledFunction | None:
        """Return the function ``name`` for the layers that hold facts, generated with the ``options`` of a Generator.

        Returns None if the rule derives nothing from these layers.
        """
        variant = (name, *[views[i].layers for i in self.reads])
        if variant not in self.functions:
            options["name"] = f"{self.name}_{name}"
            generator = Generator(compiled.ids, compiled.temporal, views, steps or self.steps, **options)
            self.functions[variant] = generator.compile()
        return self.functions[variant]


@dataclass(frozen=True, slots=True)
class RuleFunction:
    """A compiled rule: over all facts, or over the delta of one predicate."""

    rule: CompiledRule
    source: int | None  # the predicate whose delta the function reads; None for all facts
    compiled: CompiledFunction


Functions: TypeAlias = tuple[RuleFunction, ...]
FEW_RULES: Final = 16
FEW_FACTS: Final = 16


class RuleSelection:
    """The rules of a component, indexed by a constant of a premise, such as the name of an intent.

    A pack has rules for many intents, but a request has one intent: the rules for other intents are not visited.
    """

    def __init__(self, rules: Sequence[CompiledRule], heads: Collection[int]) -> None:
        """``heads`` are the predicates of the component, which gain facts while its rules are applied."""
        self._rules = rules
        values: dict[tuple[int, int], set[Value]] = {}  # the constants, by predicate and column
        for rule in rules:
            for predicate, column, value in rule.constants:
                if predicate not in heads:
                    values.setdefault((predicate, column), set()).add(value)
        # The column with the most constants separates the rules best.
        self._predicate, self._column = max(values, key=lambda column: (len(values[column]), column), default=(-1, 0))
        self._by_value: dict[Value, list[int]] = {}  # positions of rules, by their constant
        self._others: list[int] = []
        for number, rule in enumerate(rules):
            constants = [value for i, column, value in rule.constants if (i, column) == (self._predicate, self._column)]
            (self._by_value.setdefault(constants[0], []) if constants else self._others).append(number)
        self.is_useful = len(self._by_value) > FEW_RULES

    def possible(self, views: Sequence[View]) -> Sequence[CompiledRule]:
        """Return the rules that may have an instance, in the order of the component."""
        if not self.is_useful:
            return self._rules
        view = views[self._predicate]
        if len(view) > FEW_FACTS:
            return self._rules
        numbers = [*self._others]
        for value in {fact[self._column] for fact in view}:
            numbers += self._by_value.get(value, ())
        return [self._rules[number] for number in sorted(numbers)]


class RuleFunctions:
    """The functions of the rules of a component, for inputs with facts in certain layers.

    The functions of a rule are generated when the rule first may have an instance.
    """

    def __init__(self, selection: RuleSelection, generate: Callable[[CompiledRule, Sequence[View]], Functions]) -> None:
        self._selection = selection
        self._generate = generate
        self._by_rule: dict[CompiledRule, Functions] = {}
        self._all: Functions | None = None  # the functions of all rules, if no selection of rules is useful

    def possible(self, views: Sequence[View]) -> Functions:
        """Return the functions of the rules that may have an instance. Raises NotCompiled."""
        if self._all is not None:
            return self._all
        rules = self._selection.possible(views)
        for rule in rules:
            if rule not in self._by_rule:  # two threads may both generate the functions, with the same result
                self._by_rule[rule] = self._generate(rule, views)
        functions = tuple([function for rule in rules for function in self._by_rule[rule]])
        if not self._selection.is_useful:
            self._all = functions
        return functions

    def generated(self) -> Iterator[RuleFunction]:
        for functions in list(self._by_rule.values()):
            yield from functions

    def may_derive(self, views: Sequence[View]) -> bool:
        """Return whether a rule could have an instance with facts in these layers. Raises NotCompiled."""
        return self._selection.is_useful or bool(self.possible(views))


class Method(NamedTuple):
    """How a component is evaluated, for inputs with facts in certain layers."""

    mode: Literal["keep", "full", "insert", "reevaluate"]
    """``keep`` the base; apply the rules to all facts (``full``), or to the facts that the overlay adds (``insert``);
    maintain the component or, if that is not possible, evaluate it again (``reevaluate``)."""
    functions: RuleFunctions | None = None
    in_rounds: bool = False
    """Whether the functions collect facts in rounds, because a new fact may lead to further facts."""
    is_grouped: bool = False
    """Whether the heads are stored as GroupedViews."""


KEEP: Final = Method("keep")
REEVALUATE: Final = Method("reevaluate")


@dataclass(eq=False)
class CompiledComponent:
    component: Component
    recursive: bool
    heads: tuple[int, ...]
    strict_inputs: tuple[int, ...]  # predicates whose finished relation is needed: negated or aggregated
    volatile: bool  # depends on the evaluation time or an external predicate, directly or through its inputs
    rules: tuple[CompiledRule, ...]
    interpreter_reason: str | None  # why the component is interpreted; None if it is compiled
    groupable: frozenset[Key]  # predicates that may be stored as a GroupedView
    inputs: tuple[int, ...]  # predicates that the component reads or defines
    outer_inputs: tuple[int, ...]  # predicates that the component reads, but does not define
    temporal_heads: tuple[int, ...]
    merged_heads: tuple[int, ...]  # heads with a merge
    layers_of: Callable[[Sequence[str]], Any]  # selects the layers of the inputs from the layers of all predicates
    selection: RuleSelection
    maintained_rules: tuple[MaintainedRule, ...] | str | None = None  # see maintainable(), memoised
    methods: dict[tuple[bool, Any], Method] = field(default_factory=dict)  # see Evaluation._choose
    delta_functions: dict[tuple[bool, Any], Functions] = field(default_factory=dict)  # see CompiledProgram.deltas

    def functions(self) -> Iterator[RuleFunction]:
        """Yield all functions that were generated."""
        for method in self.methods.values():
            if method.functions is not None:
                yield from method.functions.generated()
        for functions in self.delta_functions.values():
            yield from functions

    def is_empty_in(self, layers: Sequence[str]) -> bool:
        """Return whether a base with these layers has no facts of the component, and an empty premise of each rule."""
        return not any(layers[i] for i in self.heads) and all(
            not all(layers[i] for i in rule.scans) for rule in self.rules
        )

    def recurs(self, layers: Sequence[str]) -> bool:
        """Return whether, with facts in these layers, facts of the component may lead to further facts in it."""
        return self.recursive and any(
            rule.steps.barriers or all(layers[i] or i in self.heads for i in rule.scans)
            for rule in self.rules
            if any(i in self.heads for i in rule.scans)
        )


class CompiledProgram:
    """A program with numbered predicates and planned rules. Made once, and shared by all evaluations of the program."""

    def __init__(self, program: Program, profile: RuleProfile | None = None) -> None:
        self.program = program
        self.profile = profile
        self.keys: list[Key] = sorted(program.predicates)
        self.ids = {key: i for i, key in enumerate(self.keys)}  # the number of each predicate
        self.temporal = [program.predicates[key].temporal for key in self.keys]
        self.intake = Intake(program.predicates, self.ids)
        self.expiry_rules: Any = None  # made on demand by explain.expiry, which the engine does not import
        self.constrained = [
            key for key in self.keys if program.predicates[key].fundeps or program.predicates[key].inclusion
        ]
        self.ruled = frozenset(self.ids[key] for component in program.components for key in component.predicates)
        self.merged = frozenset(self.ids[key] for key in self.keys if program.predicates[key].merge is not None)
        self.built = {self.ids[key]: columns for key, columns in built_columns(program.rules).items()}
        self.volatile_facts = tuple(f for f in program.facts if self.is_volatile_fact(f))
        self.volatile: set[int] = {self.ids[f.key] for f in self.volatile_facts}
        # External predicates may return other facts for the next request.
        self.volatile |= {i for key, i in self.ids.items() if program.predicates[key].external}
        # The inputs of each deferred predicate. It stores no facts: only its inputs show whether they may change.
        self.deferred_inputs: dict[int, frozenset[int]] = {}
        rules = program.rules_by_head
        self.components = [
            self._component(number, component, [r for key in component.predicates for r in rules.get(key, [])])
            for number, component in enumerate(program.components)
        ]

    @staticmethod
    def is_volatile_fact(fact: GivenFact) -> bool:
        annotation = fact.clause.annotation
        return fact.args is None or (annotation is not None and _has_now(annotation.bounds))

    def _component(self, number: int, component: Component, rules: Sequence[Rule]) -> CompiledComponent:
        reason = self._why_interpreted(component, rules)
        heads = tuple(self.ids[key] for key in component.predicates)
        positive: set[int] = set()
        strict: set[int] = set()
        for rule in rules:
            for premise in relation_premises(rule):
                target = strict if premise.negated or rule.clause.aggregates else positive
                target.add(self.ids[premise.atom.key])
        merges = {key: merge for key in component.predicates if (merge := self.program.predicates[key].merge)}
        strict |= {self.ids[merge.predicate] for merge in merges.values()}
        strict = strict.union(*(self.deferred_inputs.get(i, ()) for i in (*positive, *strict)))
        for key in component.predicates:
            if self.program.predicates[key].deferred:
                self.deferred_inputs[self.ids[key]] = frozenset(positive | strict)
        volatile = any(i in self.volatile for i in (*positive, *strict, *heads)) or any(map(_is_volatile, rules))
        if volatile:
            self.volatile |= set(heads)
        rule_counts = Counter(rule.head.key for rule in rules)
        inputs = tuple(sorted({*heads, *positive, *strict}))
        compiled = () if reason else tuple(self._rule(number, n, rule, rule_counts) for n, rule in enumerate(rules))
        can_group = component.recursive and not reason and all(map(self._can_group, component.predicates))
        return CompiledComponent(
            component,
            recursive=component.recursive,
            heads=heads,
            strict_inputs=tuple(sorted(strict)),
            volatile=volatile,
            rules=compiled,
            interpreter_reason=reason,
            groupable=frozenset(component.predicates if can_group else ()),
            inputs=inputs,
            outer_inputs=tuple(sorted((positive | strict) - set(heads))),
            temporal_heads=tuple(i for i in heads if self.temporal[i]),
            merged_heads=tuple(self.ids[key] for key in merges),
            layers_of=itemgetter(*inputs),
            selection=RuleSelection(compiled, heads),
        )

    def _rule(self, component: int, number: int, rule: Rule, rule_counts: Counter[Key]) -> CompiledRule:
        head = self.ids[rule.head.key]
        aggregation = Aggregation(rule, self.temporal[head]) if rule.clause.aggregates else None
        steps = split_rule(rule, self.program.predicates)
        scans = tuple(self.ids[scan.literal.atom.key] for scan in steps.scans())
        # Only scans before every premise that may raise: to skip a rule must not skip an error.
        safe_scans = (scan for scan in steps.scans() if scan.segment < min(steps.barriers, default=scan.segment + 1))
        constants = frozenset(
            (self.ids[atom.key], column, arg)
            for atom in (scan.literal.atom for scan in safe_scans)
            for column, arg in enumerate(atom.args)
            if not isinstance(arg, Variable | Apply)
        )
        reads = tuple(sorted({self.ids[premise.atom.key] for premise in relation_premises(rule)}))
        name, is_only = f"rule_{component}_{number}", rule_counts[rule.head.key] == 1
        return CompiledRule(head, steps, aggregation, name, scans, constants, reads, is_only)

    def _can_group(self, key: Key) -> bool:
        i = self.ids[key]
        return key[1] == 2 and not self.temporal[i] and i not in self.built  # the size of values in sets is not counted

    def _why_interpreted(self, component: Component, rules: Iterable[Rule]) -> str | None:
        predicates = self.program.predicates
        for key in component.predicates:
            if predicates[key].merge is not None:
                return f"{key[0]} is merged"
            if predicates[key].deferred:
                return f"{key[0]} is deferred"
        for rule in rules:
            for premise in relation_premises(rule):
                predicate = predicates[premise.atom.key]
                if predicate.deferred or predicate.external:
                    return f"{predicate.name} is {'deferred' if predicate.deferred else 'external'}"
        return None

    def deltas(self, component: CompiledComponent, views: Sequence[View]) -> Functions:
        """Return the functions that apply rules to the delta of the component's own predicates, memoised.

        Raises NotCompiled.
        """
        grouped = component.groupable if isinstance(views[component.heads[0]], GroupedView) else ()
        variant = bool(grouped), tuple([views[i].layers for i in component.inputs])
        if variant not in component.delta_functions:
            generate = self._generator(component, "delta", True, grouped)
            component.delta_functions[variant] = tuple(f for rule in component.rules for f in generate(rule, views))
        return component.delta_functions[variant]

    def functions(
        self, component: CompiledComponent, mode: Literal["full", "insert"], recurs: bool, grouped: Collection[Key] = ()
    ) -> RuleFunctions:
        """Return the functions that apply rules to all facts (``full``) or to facts that the overlay adds (``insert``).

        ``recurs``: the heads collect new facts in rounds.
        """
        return RuleFunctions(component.selection, self._generator(component, mode, recurs, grouped))

    def _generator(
        self,
        component: CompiledComponent,
        mode: Literal["full", "insert", "delta"],
        recurs: bool,
        grouped: Collection[Key],
    ) -> Callable[[CompiledRule, Sequence[View]], Functions]:
        """Return a callable that generates the functions of a rule, or raises NotCompiled.

        A rule that derives nothing from the layers that hold facts has no functions. In the mode ``delta``, a function
        applies the rule to the delta of one of the component's own predicates.
        """

        def generate(rule: CompiledRule, views: Sequence[View]) -> Functions:
            functions: list[RuleFunction] = []
            deltas: list[tuple[int | None, int | None]] = [(None, None)]  # premise that reads the delta, its predicate
            if mode != "full":
                heads, inputs = component.heads, component.inputs
                changed = set(heads) if mode == "delta" else {i for i in inputs if views[i].facts}
                scans = ((scan.position, self.ids[scan.literal.atom.key]) for scan in rule.steps.scans())
                deltas = [(position, i) for position, i in scans if i in changed]
            for delta, source in deltas:
                function = Generator(
                    self.ids,
                    self.temporal,
                    views,
                    rule.steps,
                    # In the first round only given facts of the component exist, so its relations are small.
                    growing=() if mode == "full" else component.component.predicates,
                    delta=delta,
                    recursive=recurs,
                    grouped=grouped,
                    ending="row" if rule.aggregation is not None else "head",
                    built=self.built.get(rule.head, ()),
                    name=rule.name if delta is None else f"{rule.name}_{mode}_{delta}",
                ).compile()
                if function is not None:
                    if self.profile is not None:
                        function = self.profile.measured(rule.steps.rule, rule.head, function)
                    functions.append(RuleFunction(rule, source, function))
            return tuple(functions)

        return generate


def _has_now(bounds: Iterable[TimeBound]) -> bool:
    return any(isinstance(bound.value, Now) for bound in bounds)


def _is_volatile(rule: Rule) -> bool:
    literals = list(rule.clause.literals)
    if any(literal.operator is not None for literal in literals) or any(map(mentions_now, rule.clause.terms)):
        return True
    annotations = (rule.clause.annotation, *(literal.annotation for literal in literals))
    return any(annotation is not None and _has_now(annotation.bounds) for annotation in annotations)


def show_plan(compiled: CompiledProgram) -> str:
    """Return the generated source with comments, without the functions that no evaluation has needed yet."""
    return "\n".join(line for component in compiled.components for line in _plan_lines(compiled, component))


def _plan_lines(compiled: CompiledProgram, component: CompiledComponent) -> Iterator[str]:
    names = ", ".join(f"{name}/{arity}" for name, arity in component.component.predicates)
    yield f"# {names}: {'; '.join(_traits(compiled, component))}"
    for rule in component.rules:
        yield f"#   {rule.name}: {printer.clause(rule.steps.rule.clause)}"
    yield from dict.fromkeys(function.compiled.source for function in component.functions())
    yield ""


def _traits(compiled: CompiledProgram, component: CompiledComponent) -> Iterator[str]:
    yield "recursive" if component.recursive else "not recursive"
    if component.volatile:
        yield "evaluated for each request, because it looks at the clock or outside"
    if component.interpreter_reason:
        yield f"interpreted, because {component.interpreter_reason}"
        return
    if component.groupable:
        yield "kept as one set of second values per first value"
    reason = maintainable(compiled, component)
    if not component.volatile and isinstance(reason, str):
        yield f"evaluated again when it may lose facts, because {reason}"
