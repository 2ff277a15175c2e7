"""Code generation: rules as nested loops over hash indexes.

A rule has one function over all facts, and one for each premise that may read the delta. A function reads relations
through views, and adds facts to the view of the head or collects rows for a transform. Each function is specialised for
the layers of its relations that hold facts (base, overlay); variants for other layers are generated on demand.

No value of a program becomes source text: constants, functions and predicates are passed in a namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain
from typing import Any, Final, Literal as OneOf, TypeAlias

from manglecp.mangle import syntax
from manglecp.mangle.builtins import FUNCTIONS, PREDICATES
from manglecp.mangle.engine.plan import (
    AnyStep,
    BoundTest,
    BuiltinCall,
    EqualityStep,
    KindInference,
    Negation,
    RuleSteps,
    Scan,
    WindowTest,
    order,
)
from manglecp.mangle.engine.views import View
from manglecp.mangle.errors import ValueFault
from manglecp.mangle.facts import clamp, is_nonempty_interval
from manglecp.mangle.printer import INFIX
from manglecp.mangle.values import INT_MAX, INT_MIN, Duration, Time, Value, wrap_int64

Ending: TypeAlias = OneOf["head", "fact", "row", "variables", "exists"]
"""What a function does with a row: add the fact of the head to its view; collect in ``rows`` the fact, the row, or the
values of some variables; or append True to ``rows`` for the first row whose head holds at some instant."""

_KnownColumns: TypeAlias = list[tuple[int, str]]  # column, and expression of the value that it must have

GROWING_SIZE: Final = 1_000_000  # assumed size of a relation that is still growing
MAX_LOOPS: Final = 18  # Python refuses more than 20 nested blocks; two are left for other statements

# By kind: the suffix of an expression that gives the attribute by which values are compared.
_SUFFIX: Final = {"number": "", "string": "", "name": ".text", "time": ".ns", "duration": ".ns", "float64": ".value"}
_ARITHMETIC: Final = {"fn:plus": " + ", "fn:minus": " - ", "fn:mult": " * "}


def instant(value: Value) -> int:
    """Return the instant in nanoseconds of a variable's value in an annotation: a time, or a number of nanoseconds."""
    if isinstance(value, Time):
        return value.ns
    if type(value) is int:
        return value
    raise ValueFault("an interval is between times")


def window_end(value: Value, now: int, sign: int) -> int:
    """Return the instant of a bound of an operator; ``sign`` is -1 if the operator looks back."""
    return clamp(now + sign * value.ns) if isinstance(value, Duration) else instant(value)


def live(facts: Iterable[Any], removed: set[Any]) -> list[Any]:
    """Return the facts of the base that are not removed."""
    return [fact for fact in facts if fact not in removed]


_RUNTIME: Final[Mapping[str, Any]] = {  # names in generated source
    "live": live,
    "chain": chain,
    "E": (),  # no facts
    "Time": Time,
    "wrap": wrap_int64,
    "clamp": clamp,
    "instant": instant,
    "window_end": window_end,
    "is_nonempty_interval": is_nonempty_interval,
}


class NotCompiled(Exception):
    """The rule has to be interpreted, for the reason in the message."""


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    source: str
    run: Callable[..., None]


def tuple_text(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


@dataclass(eq=False)
class Code:
    """The source of a function: lines, loops, names, and Python expressions that read relations."""

    ids: Mapping[syntax.Key, int]  # the number of each predicate
    temporal: Sequence[bool]  # whether each predicate is temporal, by number
    views: Sequence[View]  # the view of each predicate, by number
    growing: Collection[syntax.Key] = field(default=(), kw_only=True)  # predicates to which the function may add facts
    either_state: bool = field(default=False, kw_only=True)  # read facts of the old and new state; leave out negations
    lines: list[str] = field(default_factory=list, init=False)
    prologue: dict[str, str] = field(default_factory=dict, init=False)  # assignments before the loops, by name
    namespace: dict[str, Any] = field(default_factory=dict, init=False)  # global names
    open_loops: int = field(default=0, init=False)  # number of loops around the next line
    headers: list[tuple[int, int]] = field(default_factory=list, init=False)  # line and depth of each loop
    temporary_count: int = field(default=0, init=False)

    def is_temporal(self, key: syntax.Key) -> bool:
        return self.temporal[self.ids[key]]

    def layers(self, key: syntax.Key) -> str:
        """Return the layers of a predicate that hold or will hold facts, as :attr:`View.layers`."""
        layers = self.views[self.ids[key]].layers
        return layers if key not in self.growing or "o" in layers else layers + "o"

    def write(self, line: str) -> None:
        self.lines.append("    " * self.open_loops + line)

    def loop(self, header: str) -> None:
        self.headers.append((len(self.lines), self.open_loops))
        self.write(header)
        self.open_loops += 1

    def skip_if(self, condition: str) -> None:
        """Skip this row (or return, outside of loops) if the condition holds."""
        self.write(f"if {condition}:")
        self.write(f"    {'continue' if self.open_loops else 'return'}")

    def global_name(self, value: Any, prefix: str) -> str:
        """Return the name of a value in the namespace of the function; add the value if it is new."""
        for name, other in self.namespace.items():
            if other is value and name.startswith(prefix):
                return name
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def temporary(self, prefix: str = "t") -> str:
        self.temporary_count += 1
        return f"{prefix}{self.temporary_count}"

    def local_name(self, name: str, source: str) -> str:
        """Return ``name``; the function assigns the expression ``source`` to that name before its loops."""
        self.prologue.setdefault(name, f"{name} = {source}")
        return name

    def facts(self, key: syntax.Key, layer: str) -> str:
        """Return a name for the facts of a layer: ``o`` overlay, ``b`` base, ``r`` facts removed from the base."""
        i = self.ids[key]
        attribute = {"o": "facts", "b": "base.facts", "r": "removed"}[layer]
        return self.local_name(f"{layer}{i}", f"views[{i}].{attribute}")

    def index(self, key: syntax.Key, layer: str, columns: tuple[int, ...]) -> str:
        i = self.ids[key]
        owner = f"views[{i}]" if layer == "o" else f"views[{i}].base"
        return self.local_name(f"{layer}{i}_{'_'.join(map(str, columns))}", f"{owner}.index({columns!r})")

    def _read_layers(self, key: syntax.Key) -> str:
        """Return :meth:`layers`; with ``either_state`` the base includes its removed facts."""
        return self.layers(key).replace("x", "b") if self.either_state else self.layers(key)

    def _all_layers(self, key: syntax.Key, read: Callable[[str], str]) -> str:
        """Return an expression for the facts of all layers; ``read`` returns one for a layer."""
        sources = []
        for layer in self._read_layers(key):
            sources.append(f"live({read('b')}, {self.facts(key, 'r')})" if layer == "x" else read(layer))
        return sources[0] if len(sources) == 1 else f"chain({', '.join(sources)})" if sources else "E"

    def everything(self, key: syntax.Key) -> str:
        return self._all_layers(key, lambda layer: self.facts(key, layer))

    def matching(self, key: syntax.Key, columns: tuple[int, ...], values: str) -> str:
        return self._all_layers(key, lambda layer: f"{self.index(key, layer, columns)}.get({values}, E)")

    def contains(self, key: syntax.Key, fact: str) -> str:
        tests = []
        for layer in self._read_layers(key):
            if layer == "x":
                tests.append(f"{fact} in {self.facts(key, 'b')} and {fact} not in {self.facts(key, 'r')}")
            else:
                tests.append(f"{fact} in {self.facts(key, layer)}")
        return " or ".join(tests) or "False"

    def exists(self, key: syntax.Key, columns: tuple[int, ...], values: str) -> str:
        """Return a test for a fact with these values in these columns; without columns, for any fact."""
        tests = []
        for layer in self._read_layers(key):
            if layer == "x":
                bucket = f"{self.index(key, 'b', columns)}.get({values}, E)" if columns else self.facts(key, "b")
                tests.append(f"live({bucket}, {self.facts(key, 'r')})")
            elif columns:
                tests.append(f"{values} in {self.index(key, layer, columns)}")
            else:
                tests.append(self.facts(key, layer))
        return " or ".join(tests) or "False"


@dataclass(eq=False)
class Generator(Code):
    """Generates one function for one rule."""

    rule_steps: RuleSteps
    _: KW_ONLY
    delta: int | None = None  # position of the premise that reads the delta
    recursive: bool = False  # whether facts of the head are collected in rounds
    grouped: Collection[syntax.Key] = ()  # predicates that are stored as a GroupedView
    ending: Ending = "head"
    preset: tuple[str, ...] = ()  # variables whose values the caller passes in the tuple ``known``
    collected: tuple[str, ...] = ()  # variables of the ending ``variables``
    built: tuple[int, ...] = ()  # columns of the head whose size is counted
    name: str = "rule"
    bound: dict[str, str] = field(default_factory=dict, init=False)  # expressions of bound variables
    set_variable: str | None = field(default=None, init=False)  # stands for a set of values; see _find_set_variable
    inference: KindInference = field(init=False)

    def size(self, key: syntax.Key) -> int:
        return GROWING_SIZE if key in self.growing else len(self.views[self.ids[key]])

    def compile(self) -> CompiledFunction | None:
        """Return the function, or None if the rule derives nothing from these layers."""
        planned = order(self.rule_steps, self.delta, self.size, frozenset(self.preset))
        if self.either_state:
            planned = [(step, kinds) for step, kinds in planned if not isinstance(step, Negation)]
        steps = [step for step, _ in planned]
        if self._finds_nothing(steps):
            return None
        for position, name in enumerate(self.preset):
            self.bind(name, f"known[{position}]")
        self.set_variable = self._find_set_variable(steps)
        for step, kinds in planned:
            self.inference = KindInference({}, kinds)
            self._step(step)
        self.inference = KindInference({}, self.rule_steps.kinds)
        self._write_ending()
        if self.open_loops > MAX_LOOPS:
            raise NotCompiled(f"{self.open_loops} nested loops")
        body = [f"    {line}" for line in (*self.prologue.values(), *self.lines)]
        source = "\n".join([f"def {self.name}(views, now, limits, rows, known=None):", *body]) + "\n"
        scope = {**_RUNTIME, **self.namespace}
        exec(compile(source, f"<{self.name}>", "exec"), scope)  # made from names and numbers only
        return CompiledFunction(source, scope[self.name])

    def _finds_nothing(self, steps: Sequence[AnyStep]) -> bool:
        """Return whether a scan of an empty relation runs before every step that may raise."""
        first_barrier = min(self.rule_steps.barriers, default=None)
        for step in steps:
            if isinstance(step, Scan) and step.position != self.delta and not self.layers(step.literal.atom.key):
                return first_barrier is None or step.segment < first_barrier
        return False

    def _find_set_variable(self, steps: Sequence[AnyStep]) -> str | None:
        """Return the variable that one premise passes to the last column of a grouped head, if any; see GroupedView."""
        clause = self.rule_steps.rule.clause
        if clause.head.key not in self.grouped or clause.transforms:
            return None
        last = clause.head.args[1]
        if not isinstance(last, syntax.Variable):
            return None
        occurrences = [v.name for p in self.rule_steps.rule.premises for v in syntax.premise_variables(p)]
        occurrences += [v.name for v in syntax.term_variables(clause.head.args[0])]
        if occurrences.count(last.name) != 1:
            return None
        scan = next((s for s in steps if isinstance(s, Scan) and last in s.literal.atom.args), None)
        if scan is None or scan.temporal or self.layers(scan.literal.atom.key) not in ("", "o"):
            return None
        key, args = scan.literal.atom.key, scan.literal.atom.args
        if len(args) != 2 or (args[0] == last and (key in self.grouped or scan.position == self.delta)):
            return None
        return last.name

    def expression(self, term: syntax.Term) -> str:
        """Translate a term to Python. Raises :class:`NotCompiled` if a variable is unbound."""
        if isinstance(term, syntax.Variable):
            if term.name not in self.bound:
                raise NotCompiled(f"{term.name} has no value")
            return self.bound[term.name]
        if not isinstance(term, syntax.Apply):
            return self.global_name(term, "K")
        if term.function == "fn:time:now" and not term.args:
            return self.local_name("clock", "Time(now)")
        all_numbers = all(self.inference.of(arg) == {"number"} for arg in term.args)
        if term.function in _ARITHMETIC and all_numbers and len(term.args) > 1:
            return f"wrap({_ARITHMETIC[term.function].join(self.expression(arg) for arg in term.args)})"
        function = FUNCTIONS.get(term.function)
        if function is None or not function.accepts(len(term.args)):
            raise NotCompiled(f"{term.function} is unknown")
        return f"{self.global_name(function.call, 'F')}({tuple_text([self.expression(a) for a in term.args])}, now)"

    def bind(self, name: str, expression: str) -> None:
        """Write an assignment to a variable; for ``_`` write the expression alone, because its evaluation may raise."""
        if name == "_":
            self.write(expression)
            return
        local = f"v_{name}"
        if local != expression:
            self.write(f"{local} = {expression}")
        self.bound[name] = local

    def _step(self, step: AnyStep) -> None:
        if isinstance(step, Scan):
            self._scan(step)
        elif isinstance(step, BoundTest):
            self.skip_if(f"not s{step.position} <= {self._instant(step.bound)} <= e{step.position}")
        elif isinstance(step, WindowTest):
            self._window(step)
        elif isinstance(step, Negation):
            self._negation(step.literal)
        elif isinstance(step, BuiltinCall):
            self._builtin_call(step.literal)
        else:
            self._equate(step)

    def _scan(self, step: Scan) -> None:
        key = step.literal.atom.key
        if not self.layers(key) and step.position != self.delta:
            self._evaluate_args(step.literal)
        known_columns: _KnownColumns = []
        targets: list[str] = []  # targets of the loop, one per column
        new_variables: list[tuple[str, str]] = []  # names and targets
        checks: list[tuple[str, str]] = []  # pairs of expressions that have to be equal
        for column, arg in enumerate(step.literal.atom.args):
            target = "_"
            if isinstance(arg, syntax.Variable) and arg.anonymous:
                pass
            elif isinstance(arg, syntax.Variable) and arg.name not in self.bound:
                if any(name == arg.name for name, _ in new_variables):
                    target = self.temporary()
                    checks.append((target, f"v_{arg.name}"))
                else:
                    target = f"v_{arg.name}"
                    new_variables.append((arg.name, target))
            else:
                known_columns.append((column, self.expression(arg)))
            targets.append(target)
        is_ground = len(known_columns) == len(targets)
        if step.temporal:
            targets += [f"s{step.position}", f"e{step.position}"]
        columns = tuple(column for column, _ in known_columns)
        values = known_columns[0][1] if len(known_columns) == 1 else tuple_text([value for _, value in known_columns])
        if self.set_variable is not None and any(name == self.set_variable for name, _ in new_variables):
            self._scan_set(step, known_columns, new_variables, targets)
            return
        if key in self.grouped:
            self._scan_grouped(step, known_columns, targets, checks)
        elif step.position == self.delta:
            for column, value in known_columns:
                targets[column] = self.temporary()
                checks.append((targets[column], value))
            self.loop(f"for {tuple_text(targets)} in views[{self.ids[key]}].delta:")
        elif is_ground and not step.temporal:
            self.skip_if(f"not ({self.contains(key, tuple_text([value for _, value in known_columns]))})")
        elif not new_variables and not checks and not step.temporal and not self.rule_steps.rule.counts_facts:
            self.skip_if(f"not ({self.exists(key, columns, values)})")
        else:
            if columns:
                source = self.matching(key, columns, values)
            else:
                source = self._timeline_facts(step) or self.everything(key)
            self.loop(f"for {tuple_text(targets)} in {source}:")
        for name, target in new_variables:
            self.bound[name] = target
        for left, right in checks:
            self.skip_if(f"{left} != {right}")
        for role, bound in step.roles:
            self._bind_role(role, bound, step.position)

    def _scan_grouped(self, step: Scan, known_columns: _KnownColumns, targets: list[str], checks: list[Any]) -> None:
        """Scan a relation that is stored as one set of second values per first value."""
        key = step.literal.atom.key
        i = self.ids[key]
        source = "delta" if step.position == self.delta else "groups"
        groups = f"views[{i}].delta" if source == "delta" else self.local_name(f"g{i}", f"views[{i}].groups")
        values = dict(known_columns)
        first, second = targets
        if source == "groups" and 0 in values and 1 in values:
            self.skip_if(f"{values[1]} not in {groups}.get({values[0]}, E)")
        elif source == "groups" and 0 in values:
            if second == "_":
                self.skip_if(f"{values[0]} not in {groups}")
            else:
                self.loop(f"for {second} in {groups}.get({values[0]}, E):")
        elif source == "groups" and 1 in values:
            self.loop(f"for {tuple_text(targets)} in {self.index(key, 'o', (1,))}.get({values[1]}, E):")
        else:
            seconds = self.temporary("seconds")
            if 0 in values:
                first = self.temporary()
                checks.append((first, values[0]))
            self.loop(f"for {first}, {seconds} in {groups}.items():")
            if 1 in values:
                self.skip_if(f"{values[1]} not in {seconds}")
            elif second != "_":
                self.loop(f"for {second} in {seconds}:")

    def _scan_set(self, step: Scan, known_columns: _KnownColumns, new_variables: list[Any], targets: list[str]) -> None:
        """Bind the set variable to a set of values of one column, for each value of the other column."""
        key = step.literal.atom.key
        i = self.ids[key]
        set_column = 1 if targets[1] == f"v_{self.set_variable}" else 0
        other = targets[1 - set_column]
        if key in self.grouped and (step.position == self.delta or not known_columns):
            source = "delta" if step.position == self.delta else "groups"
            other = self.temporary() if known_columns else other
            self.loop(f"for {other}, column in views[{i}].{source}.items():")
            if known_columns:
                self.skip_if(f"{other} != {known_columns[0][1]}")
        elif step.position == self.delta:
            raise NotCompiled("the delta is not grouped")
        else:
            read_index = f"views[{i}].set_index({(1 - set_column,)!r}, {set_column})"
            index = self.local_name(f"w{i}_{set_column}", read_index)
            if known_columns:
                self.write(f"column = {index}.get({known_columns[0][1]})")
                self.skip_if("not column")
            else:
                self.loop(f"for {other}, column in {index}.items():")
        for name, target in new_variables:
            self.bound[name] = "column" if name == self.set_variable else target

    def _timeline_facts(self, step: Scan) -> str | None:
        """Return an expression that reads facts by the timeline index; None if the window differs between rows."""
        key = step.literal.atom.key
        if not step.temporal or self.layers(key)[:1] not in ("b", "x"):
            return None
        tests = [
            s for s in self.rule_steps.steps if isinstance(s, BoundTest | WindowTest) and s.position == step.position
        ]
        test = next((test for test in tests if not test.needs), None)
        if test is None:
            return None
        if isinstance(test, BoundTest):
            first = last = self._instant(test.bound)
        else:
            first, last = self._window_ends(test.operator, test.position)
        in_base = f"views[{self.ids[key]}].base.during({first}, {last})"
        return self._all_layers(key, lambda layer: in_base if layer == "b" else self.facts(key, layer))

    def _bind_role(self, role: str, bound: syntax.TimeBound, position: int) -> None:
        """Bind or compare a variable that takes an end of the interval of the scan of premise ``position``."""
        if role == "within":
            return  # a BoundTest tests this bound
        assert isinstance(bound.value, syntax.Variable)
        start, end = f"s{position}", f"e{position}"
        if role == "point":
            self.skip_if(f"{start} != {end}")
        instant_name = end if role == "end" else start
        name = bound.value.name
        if name in self.bound:
            self.skip_if(f"{self.bound[name]} is not Time({instant_name})")
        else:
            self.bind(name, f"Time({instant_name})")

    def _instant(self, bound: syntax.TimeBound) -> str:
        value = bound.value
        if isinstance(value, syntax.Now):
            return "now"
        if isinstance(value, syntax.Variable):
            local = self.bound[value.name]
            return f"{local}.ns" if self.inference.of(value) == {"time"} else f"instant({local})"
        if isinstance(value, Time):
            return self.global_name(value.ns, "K")
        raise NotCompiled("a duration is not an instant")

    def _window_ends(self, operator: syntax.Operator, suffix: int | str) -> tuple[str, str]:
        """Return the names of the ends of a window; ``suffix`` makes them unique."""
        sign = 1 if operator.is_future else -1
        first, last = f"first{suffix}", f"last{suffix}"
        offsets = [sign * bound.value.ns for bound in operator.bounds if isinstance(bound.value, Duration)]
        if len(offsets) == len(operator.bounds):
            offsets += [0] if len(offsets) == 1 else []  # the other end is now
            self.local_name(first, f"clamp(now + {self.global_name(min(offsets), 'K')})")
            self.local_name(last, f"clamp(now + {self.global_name(max(offsets), 'K')})")
            return first, last
        ends = ["now"] if len(operator.bounds) == 1 else []
        is_fixed = True  # whether the window is the same for all rows
        for bound in operator.bounds:
            if isinstance(bound.value, Duration):
                ends.append(f"window_end({self.global_name(bound.value, 'K')}, now, {sign})")
            elif isinstance(bound.value, syntax.Variable):
                ends.append(f"window_end({self.bound[bound.value.name]}, now, {sign})")
                is_fixed = False
            else:
                ends.append(self._instant(bound))
        pair = ", ".join(ends)
        if is_fixed:
            self.local_name(first, f"min({pair})")
            self.local_name(last, f"max({pair})")
        else:
            self.write(f"{first} = min({pair})")
            self.write(f"{last} = max({pair})")
        return first, last

    def _window(self, step: WindowTest) -> None:
        ends = self._window_ends(step.operator, step.position)
        self.skip_if(self._outside(step.operator.is_box, f"s{step.position}", f"e{step.position}", *ends))

    @staticmethod
    def _outside(box: bool, start: str, end: str, first: str, last: str) -> str:
        return f"not ({start} <= {first} and {last} <= {end})" if box else f"{start} > {last} or {first} > {end}"

    def _evaluate_args(self, literal: syntax.Literal) -> None:
        """Write function applications as statements, because they may raise even if the predicate has no facts."""
        for arg in literal.atom.args:
            if isinstance(arg, syntax.Apply):
                self.write(self.expression(arg))

    def _negation(self, literal: syntax.Literal) -> None:
        key = literal.atom.key
        if not self.layers(key):
            self._evaluate_args(literal)
            return
        args = literal.atom.args
        named = [(i, arg) for i, arg in enumerate(args) if not isinstance(arg, syntax.Variable) or not arg.anonymous]
        known_columns = [(i, self.expression(arg)) for i, arg in named]
        columns = tuple(i for i, _ in known_columns)
        values = known_columns[0][1] if len(known_columns) == 1 else tuple_text([value for _, value in known_columns])
        if literal.timed:
            self._timed_negation(literal, columns, values)
        elif len(columns) == len(args) and not self.is_temporal(key):
            self.skip_if(self.contains(key, tuple_text([value for _, value in known_columns])))
        else:
            self.skip_if(self.exists(key, columns, values))

    def _timed_negation(self, literal: syntax.Literal, columns: tuple[int, ...], values: str) -> None:
        key = literal.atom.key
        targets = tuple_text(["_"] * len(literal.atom.args) + ["s", "e"])
        source = self.matching(key, columns, values) if columns else self.everything(key)
        tests = []
        if literal.operator is not None:
            ends = self._window_ends(literal.operator, self.temporary("_"))
            tests.append(f"not ({self._outside(literal.operator.is_box, 's', 'e', *ends)})")
        if literal.annotation is not None:
            for bound in dict.fromkeys(literal.annotation.bounds):
                if not (isinstance(bound.value, syntax.Variable) and bound.value.anonymous):
                    tests.append(f"s <= {self._instant(bound)} <= e")
        condition = " and ".join(tests) or "True"
        self.skip_if(f"any({condition} for {targets} in {source})")

    def _builtin_call(self, literal: syntax.Literal) -> None:
        atom = literal.atom
        predicate = PREDICATES[atom.predicate]
        quick_test = self._quick_test(literal)
        if quick_test is not None:
            self.skip_if(quick_test if literal.negated else f"not ({quick_test})")
            return
        inputs = [arg for arg, mode in zip(atom.args, predicate.modes, strict=True) if mode == "+"]
        outputs = [arg for arg, mode in zip(atom.args, predicate.modes, strict=True) if mode == "-"]
        call = f"{self.global_name(predicate.solve, 'P')}({tuple_text([self.expression(arg) for arg in inputs])})"
        if not outputs:
            self.skip_if(call if literal.negated else f"not {call}")
            return
        targets = ["_" if isinstance(arg, syntax.Variable) and arg.anonymous else self.temporary() for arg in outputs]
        named_outputs = [(target, arg) for target, arg in zip(targets, outputs, strict=True) if target != "_"]
        if literal.negated:
            tests = " and ".join(f"{target} == {self.expression(arg)}" for target, arg in named_outputs) or "True"
            self.skip_if(f"any({tests} for {tuple_text(targets)} in {call})")
            return
        self.loop(f"for {tuple_text(targets)} in {call}:")
        for target, arg in named_outputs:
            if isinstance(arg, syntax.Variable) and arg.name not in self.bound:
                self.bind(arg.name, target)
            else:
                self.skip_if(f"{target} != {self.expression(arg)}")

    def _quick_test(self, literal: syntax.Literal) -> str | None:
        """Return a Python expression for a comparison or a test of strings whose kinds are known."""
        name, args = literal.atom.predicate, literal.atom.args
        kinds = [self.inference.of(arg) for arg in args]
        if name in INFIX and kinds[0] == kinds[1] and len(kinds[0]) == 1:
            suffix = _SUFFIX.get(next(iter(kinds[0])))
            if suffix is not None:
                left, right = (f"{self._operand(arg)}{suffix}" for arg in args)
                return f"{left} {INFIX[name]} {right}"
        if name.startswith(":string:") and all(kind == {"string"} for kind in kinds):
            text, pattern = (self._operand(arg) for arg in args)
            if name == ":string:contains":
                return f"{pattern} in {text}"
            if name in (":string:starts_with", ":string:ends_with"):
                return f"{text}.{name.removeprefix(':string:').replace('_', '')}({pattern})"
        return None

    def _operand(self, term: syntax.Term) -> str:
        text = self.expression(term)
        return text if text.isidentifier() else f"({text})"

    def _equate(self, step: EqualityStep) -> None:
        equality = step.equality
        if not equality.negated:
            for side, other in equality.directions:
                if isinstance(side, syntax.Variable) and side.name not in self.bound:
                    self.bind(side.name, self.expression(other))
                    return
        left, right = self.expression(equality.left), self.expression(equality.right)
        self.skip_if(f"{left} {'==' if equality.negated else '!='} {right}")

    def _write_ending(self) -> None:
        rule = self.rule_steps.rule
        if self.ending == "row":
            self._write_row()
            return
        if self.ending == "head":
            self._write_lets()
            self._write_head()
            return
        if self.ending == "exists":
            if self.is_temporal(rule.head.key):
                self._write_lets()
                self._write_head_interval()
            self.write("rows.append(True)")
            self.write("return")
        elif self.ending == "variables":
            self.write(f"rows.add({tuple_text([self.bound[name] for name in self.collected])})")
        else:
            self.write(f"rows.add({tuple_text([self.expression(arg) for arg in rule.head.args])})")
        self._write_limit_check("limits.max_facts < 0", "limits.too_many_facts()")

    def _write_lets(self) -> None:
        for let in self.rule_steps.rule.clause.lets:
            self.bind(let.variable.name, self.expression(let.expression))

    def _write_head(self) -> None:
        clause = self.rule_steps.rule.clause
        i = self.ids[clause.head.key]
        parts = [self.expression(arg) for arg in clause.head.args]
        if self.is_temporal(clause.head.key):
            if any(isinstance(arg, syntax.Apply) for arg in clause.head.args):  # these may raise, for any interval
                self.write(f"head = {tuple_text(parts)}")
                parts = [f"head[{column}]" for column in range(len(parts))]
            parts += ["start", "end"]
            self._write_head_interval()
        if clause.head.key in self.grouped:
            self._write_grouped_head(i, parts)
            return
        fact = tuple_text(parts)
        known_facts = [self.facts(clause.head.key, "b")] if self.layers(clause.head.key)[:1] in ("b", "x") else []
        if self.recursive:
            known_facts.append(self.facts(clause.head.key, "o"))
        add = self.local_name("add", f"views[{i}].{'new' if self.recursive else 'facts'}.add")
        target = self.local_name("out", f"views[{i}].{'new' if self.recursive else 'facts'}")
        if self.built:
            known_facts.append(target)  # so that the parts of a repeated fact are counted once
        if known_facts:
            self.write(f"fact = {fact}")
            self.write(f"if {' and '.join(f'fact not in {facts}' for facts in known_facts)}:")
            self.write(f"    {add}(fact)")
            for column in self.built:
                self.write(f"    {self.local_name('weigh', 'limits.weigh')}(fact[{column}])")
        else:
            self.write(f"{add}({fact})")
        self._write_limit_check(f"len({target}) > limits.max_facts", "limits.too_many_facts()")

    def _write_head_interval(self) -> None:
        """Bind the ends of the head's interval; skip the row if it holds at no instant."""
        annotation = self.rule_steps.rule.clause.annotation
        assert annotation is not None
        self.write(f"start = {self._head_bound(annotation.start, INT_MIN)}")
        self.write(f"end = {self._head_bound(annotation.end, INT_MAX)}")
        self.skip_if("not is_nonempty_interval(start, end)")

    def _write_grouped_head(self, i: int, parts: list[str]) -> None:
        groups = self.local_name(f"g{i}", f"views[{i}].groups")
        new = self.local_name("new", f"views[{i}].new")
        self.write(f"first = {parts[0]}")
        self.write(f"own = {groups}.get(first)")
        if self.set_variable is not None:
            self.write("more = column - own if own else column")
            self.write("if more:")
            self.write(f"    fresh = {new}.get(first)")
            self.write("    if fresh is None:")
            self.write(f"        {new}[first] = set(more) if more is column else more")
            self.write("    else:")
            self.write("        fresh |= more")
            self.write("    limits.pending += len(more)")
        else:
            self.write(f"second = {parts[1]}")
            self.write("if own is None or second not in own:")
            self.write(f"    fresh = {new}.get(first)")
            self.write("    if fresh is None:")
            self.write(f"        {new}[first] = {{second}}")
            self.write("    else:")
            self.write("        fresh.add(second)")
            self.write("    limits.pending += 1")
        self._write_limit_check("limits.pending > limits.max_facts", "limits.recount_pending()")

    def _head_bound(self, bound: syntax.TimeBound, infinite: int) -> str:
        if isinstance(bound.value, syntax.Variable) and bound.value.anonymous:
            return self.global_name(infinite, "K")
        return self._instant(bound)

    def _write_limit_check(self, condition: str, call: str) -> None:
        """Write a check into the loops: if ``condition`` holds, a limit or deadline has passed, and ``call`` raises.

        The check runs after the innermost loop and in each outer loop, because rows may never reach the innermost loop.
        """
        if self.open_loops:
            self.lines.append("    " * (self.open_loops - 1) + f"if {condition}:")
            self.lines.append("    " * (self.open_loops - 1) + f"    {call}")
        for number, (header, depth) in enumerate(self.headers[:-2]):  # the check above is in the last loop but one
            first_line = header + 1 + 2 * number  # of the loop body; each earlier check added two lines
            check = ["    " * (depth + 1) + f"if {condition}:", "    " * (depth + 1) + f"    {call}"]
            self.lines[first_line:first_line] = check

    def _write_row(self) -> None:
        """Collect the row for transforms: every named variable of the body, sorted by name."""
        names = sorted(
            {v.name for p in self.rule_steps.rule.premises for v in syntax.premise_variables(p) if not v.anonymous}
        )
        row = tuple_text([self.bound[name] for name in names])
        add = self.local_name("add", "rows.append" if self.rule_steps.rule.counts_facts else "rows.add")
        self.write(f"{add}({row})")
        self._write_limit_check("len(rows) > limits.max_rows", "limits.too_many_rows()")
