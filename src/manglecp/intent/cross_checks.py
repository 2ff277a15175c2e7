"""What a pack's parts say about each other: names of actions, skills, parameters and intents that have to exist.

Looked at are constants in the heads of clauses, where they have a place to point at; what a variable stands for is
known only when a request comes. Nothing here needs a program that was analysed, so that these problems are told
together with those of the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from manglecp.intent.definition import Flaw
from manglecp.intent.input_schema import input_schema, result_schema
from manglecp.intent.kernel import PREDICATES
from manglecp.intent.plain_json import NotPlain, plain
from manglecp.intent.visible import name_problem
from manglecp.mangle.errors import Diagnostic, ValueFault
from manglecp.mangle.packages import Key
from manglecp.mangle.parser import argument_span
from manglecp.mangle.syntax import Apply, Clause, Literal, Premise, Term, Unit, Variable
from manglecp.mangle.terms import evaluate, mentions_now
from manglecp.mangle.values import Duration, Value
from manglecp.pack.model import ActionDescription, Pack
from manglecp.pack.problems import Problem, meant

__all__ = ["cross_check"]

ON_ERROR: Final = ("stop", "continue", "undo")
_MOST: Final = 100
_BINDINGS: Final = {
    "arg_value": ("macro_step", 4),
    "arg_from": ("macro_step", 4),
    "arg_step": ("macro_step", 5),
    "undo_value": ("undo_step", 4),
    "undo_out": ("undo_step", 4),
    "undo_in": ("undo_step", 4),
}
"""Predicates that bind a parameter of an action, by the predicate that says which action it is."""
_Heads: TypeAlias = dict[Key, list[tuple[Clause, list[Value | None]]]]


def cross_check(pack: Pack, units: Iterable[Unit]) -> list[Problem]:
    """Everything that is wrong, and what is doubtful, with the constants of the pack's clauses."""
    check = _Check(pack, [clause for unit in units for clause in unit.clauses])
    check.run()
    return check.found


class _Check:
    def __init__(self, pack: Pack, clauses: list[Clause]) -> None:
        self.pack = pack
        self.clauses = clauses
        self.found: list[Problem] = []
        self.heads: _Heads = {}
        for clause in clauses:
            if clause.head.predicate in PREDICATES:
                known = [_constant(arg) for arg in clause.head.args]
                self.heads.setdefault(clause.head.key, []).append((clause, known))

    def run(self) -> None:
        actions = self.pack.actions
        for predicate, arity, column in _ACTIONS:
            self._names(predicate, arity, column, actions, "action")
        self._names("needs_skill", 2, 1, self.pack.skills, "skill")
        self._values("relevant", 2, 1, _score, "a score is a number from 0 to 100")
        self._values("needs_resource", 4, 3, _score, "a priority is a number from 0 to 100")
        self._spans()
        on_error = ", ".join(f'"{value}"' for value in ON_ERROR)
        self._values("on_error", 3, 2, ON_ERROR.__contains__, f"what happens after an error is one of {on_error}")
        for predicate, (step, arity) in _BINDINGS.items():
            self._bindings(predicate, arity, step)
        self._schemas("macro_param", 3)
        self._schemas("macro_output", 2)
        self._tools()
        self._numbers()
        self._errors()
        self._intents()

    def _say(self, clause: Clause, column: int | None, message: str, fix: str | None, *, error: bool = True) -> None:
        span = clause.head.span if column is None else argument_span(clause.head, column) or clause.head.span
        severity: Any = "error" if error else "warning"
        self.found.append(Problem.of(Diagnostic("analysis", message, span, None, fix, severity)))

    def _each(self, predicate: str, arity: int) -> list[tuple[Clause, list[Value | None]]]:
        return self.heads.get((predicate, arity), [])

    def _names(self, predicate: str, arity: int, column: int, known: Mapping[str, object], what: str) -> None:
        for clause, args in self._each(predicate, arity):
            name = args[column]
            if isinstance(name, str) and name not in known:
                self._say(clause, column, f"the pack has no {what} {name!r}", meant(name, known))

    def _values(self, predicate: str, arity: int, column: int, good: Callable[[Any], bool], rule: str) -> None:
        for clause, args in self._each(predicate, arity):
            value = args[column]
            if isinstance(value, int | str) and not good(value):
                self._say(clause, column, f"{rule}, not {value!r}", None)

    def _spans(self) -> None:
        for clause, args in self._each("valid_for", 2):
            span = args[1]
            if isinstance(span, Duration) and span.ns <= 0:
                self._say(clause, 1, "a tool is valid for some time, or it is never offered", "write a longer span")

    # --- parameters ------------------------------------------------------------------------------------------------

    def _bindings(self, predicate: str, arity: int, step: str) -> None:
        for clause, args in self._each(predicate, arity):
            tool, number, param = args[:3]
            if not isinstance(tool, str) or not isinstance(number, int):
                continue
            possible = self._step_actions(step, tool, number)
            if possible is None:
                continue
            if not possible:
                self._say(clause, 1, f"{tool} has no step {number}" + _UNDOING[step], f"write a {step} clause for it")
            elif isinstance(param, str) and all(not _takes(action, param) for action in possible):
                names = " or ".join(action.name for action in possible)
                known = {name for action in possible for name in action.input_schema.get("properties", {})}
                self._say(clause, 2, f"{names} has no parameter {param!r}", meant(param, known))

    def _step_actions(self, step: str, tool: str, number: int) -> list[ActionDescription] | None:
        """The actions that this step can be; None if constants do not tell."""
        found: dict[str, ActionDescription] = {}
        for _, (of, n, action) in self._each(step, 3):
            if of not in (tool, None) or n not in (number, None):
                continue
            if not isinstance(action, str) or action not in self.pack.actions:
                return None
            found[action] = self.pack.actions[action]
        return list(found.values())

    def _schemas(self, predicate: str, arity: int) -> None:
        column = arity - 1
        for clause, args in self._each(predicate, arity):
            value = args[column]
            if value is None:
                continue
            name = args[1] if isinstance(args[1], str) else "value"
            try:
                if arity > 2:
                    input_schema((), {name: plain(value)})
                else:
                    result_schema(plain(value))
            except (Flaw, NotPlain) as flaw:
                fix = flaw.fix if isinstance(flaw, Flaw) else None
                self._say(clause, column, str(flaw), fix)

    # --- tools and intents -----------------------------------------------------------------------------------------

    def _tools(self) -> None:
        """Tools that could be offered and cannot be made."""
        told: set[str] = set()
        for predicate, arity, column in _TOOLS:
            for clause, args in self._each(predicate, arity):
                tool = args[column]
                if isinstance(tool, str) and tool not in told and not self._said_of(tool, "macro", 2):
                    told.add(tool)
                    fix = meant(tool, {a[0] for _, a in self._each("macro", 2) if isinstance(a[0], str)})
                    self._say(clause, column, f"nothing says that there is a tool {tool!r}", fix, error=False)
        for clause, args in self._each("macro", 2):
            tool = args[0]
            problem = name_problem(tool) if isinstance(tool, str) else None
            if problem is not None:
                self._say(clause, 0, f"the name of the tool {problem}", None)
            elif isinstance(args[1], str) and not args[1].strip():
                self._say(clause, 1, "the description of the tool is empty", "say what the tool does")
            elif isinstance(tool, str) and not self._said_of(tool, "macro_step", 3):
                fix = f'write macro_step("{tool}", 1, "an action").'
                self._say(clause, 0, f"the tool {tool!r} has no step and is never offered", fix, error=False)

    def _numbers(self) -> None:
        for clause, args in self._each("macro_step", 3):
            if isinstance(args[1], int) and args[1] < 1:
                self._say(clause, 1, f"steps are counted from 1, not {args[1]}", None)

    def _errors(self) -> None:
        """What happens after the error of a step needs the step, and undoing needs something that can be undone."""
        for clause, (tool, number, what) in self._each("on_error", 3):
            if not isinstance(tool, str) or not isinstance(number, int) or self.pack.fact_files:
                continue
            if self._step_actions("macro_step", tool, number) == []:
                self._say(clause, 1, f"{tool} has no step {number}", "write a macro_step clause for it")
            elif what == "undo" and not self._said_of(tool, "undo_step", 3):
                self._say(clause, 2, f"{tool} has no step that can be undone", "write an undo_step clause")

    def _said_of(self, tool: str, predicate: str, arity: int) -> bool:
        """Could some clause, or a fact file, say this of the tool?"""
        if self.pack.fact_files:
            return True
        return any(args[0] in (tool, None) for _, args in self._each(predicate, arity))

    def _intents(self) -> None:
        """Intents that the manifest names and no rule knows, and the other way round."""
        mentioned: dict[str, Clause] = {}
        for clause in self.clauses:
            for name in _intents_of(clause):
                if name is None:
                    return  # it may be any
                mentioned.setdefault(name, clause)
        if any(not _reads_anything(clause) for clause, _ in self._each("mandatory", 1) + self._each("relevant", 2)):
            return  # some tool speaks to all of them
        listed = {intent.name: intent.line for intent in self.pack.settings.intents}
        for name in sorted(set(listed) - set(mentioned)):
            message = f"no rule mentions the intent {name!r}"
            self.found.append(Problem("pack.toml", message, listed[name], None, meant(name, mentioned), "warning"))
        for name in sorted(set(mentioned) - set(listed)) if listed else ():
            message = f"the intent {name!r} is not listed in pack.toml"
            self._say(mentioned[name], None, message, meant(name, listed), error=False)


_ACTIONS: Final = (("macro_step", 3, 2), ("undo_step", 3, 2), ("effect_denied", 2, 0), ("extract", 3, 0))
_TOOLS: Final = (
    *(("mandatory", 1, 0), ("relevant", 2, 0), ("requires", 2, 1), ("requires", 2, 0)),
    *(("prohibited", 2, 0), ("permitted", 1, 0), ("conflicts", 2, 0), ("conflicts", 2, 1)),
    *(("reversible", 1, 0), ("idempotent", 1, 0), ("instruction", 3, 0), ("needs_skill", 2, 0)),
    *(("needs_resource", 4, 0), ("needs_confirmation", 1, 0), ("valid_for", 2, 0), ("valid_until", 2, 0)),
)
"""Where clauses name tools. A name that is mistyped there does nothing, silently."""
_UNDOING: Final = {"macro_step": "", "undo_step": " with an undoing action"}


def _constant(term: Term) -> Value | None:
    """The value of a term without variables."""
    if isinstance(term, Variable) or mentions_now(term):
        return None
    if not isinstance(term, Apply):
        return term
    with suppress(ValueFault):  # a variable somewhere inside, or a mistake that the language reports
        return evaluate(term, {}, 0)
    return None


def _score(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= 100


def _takes(action: ActionDescription, param: str) -> bool:
    schema = action.input_schema
    return param in schema.get("properties", {}) or schema.get("additionalProperties", True) is not False


def _intents_of(clause: Clause) -> Iterable[str | None]:
    """The intents that a clause asks for; None for one that takes any."""
    for premise in clause.premises:
        if isinstance(premise, Literal) and premise.atom.key == ("intent", 1):
            (name,) = premise.atom.args
            if isinstance(name, str):
                yield name
            elif not (isinstance(name, Variable) and name.anonymous):
                yield from _equal_to(name, clause.premises)


def _equal_to(term: Term, premises: Iterable[Premise]) -> Iterable[str | None]:
    found: list[str | None] = []
    for premise in premises:
        if not isinstance(premise, Literal) and not premise.negated and term in (premise.left, premise.right):
            found += [side for side in (premise.left, premise.right) if isinstance(side, str)]
    return found or [None]


def _reads_anything(clause: Clause) -> bool:
    return bool(clause.premises)
