"""What a pack's parts say about each other: names of actions, skills, parameters and intents that have to exist.

Looked at are constants in the heads of clauses, where they have a place to point at, and in fact files; what a variable
stands for is known only when a request comes. Nothing here needs a program that was analysed, so that these problems
are told together with those of the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.suggestions import did_you_mean
from manglecp.intent.argument_checks import check_arguments
from manglecp.intent.definition import Flaw
from manglecp.intent.input_schema import input_schema, result_schema
from manglecp.intent.plain_json import NotPlain, plain
from manglecp.intent.reference_checks import check_references, may_have_step
from manglecp.intent.said import Complaints, Said, Statements
from manglecp.intent.tool_names import name_problem
from manglecp.mangle import Duration
from manglecp.mangle.syntax import Clause, Literal, Premise, Term, Variable
from manglecp.pack import Pack, pack_problem

__all__ = ["cross_check"]

ON_ERROR: Final = ("stop", "continue", "undo")
_WHERE: Final = {"action": "write it in actions.py, under @action", "skill": "write it in skills/NAME.md"}
"""What would fix a name in a pack that has nothing of the kind."""


def cross_check(pack: Pack, clauses: Sequence[Clause], statements: Statements) -> list[Diagnostic]:
    """Everything that is wrong, and what is doubtful, with the constants of the pack's clauses and fact files."""
    check = _Check(pack, clauses, statements)
    check.run()
    return check.complaints.problems


class _Check:
    def __init__(self, pack: Pack, clauses: Sequence[Clause], statements: Statements) -> None:
        self.pack = pack
        self.clauses = clauses
        self.statements = statements
        self.complaints = Complaints()
        self._say = self.complaints.say
        self._each = statements.each

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
        check_arguments(self.pack, self.statements, self.complaints)
        check_references(self.pack, self.statements, self.complaints)
        self._schemas("macro_param", 3)
        self._schemas("macro_output", 2)
        self._tools()
        self._numbers()
        self._errors()
        self._intents()

    def _names(self, predicate: str, arity: int, column: int, known: Mapping[str, object], what: str) -> None:
        for said in self._each(predicate, arity):
            name = said.args[column]
            if isinstance(name, str) and name not in known:
                fix = did_you_mean(name, known) if known else _WHERE[what]
                self._say(said, column, f"the pack has no {what} {name!r}", fix)

    def _values(self, predicate: str, arity: int, column: int, good: Callable[[Any], bool], rule: str) -> None:
        for said in self._each(predicate, arity):
            value = said.args[column]
            if isinstance(value, int | str) and not good(value):
                self._say(said, column, f"{rule}, not {value!r}", None)

    def _spans(self) -> None:
        for said in self._each("valid_for", 2):
            span = said.args[1]
            if isinstance(span, Duration) and span.ns <= 0:
                self._say(said, 1, "a tool is valid for some time, or it is never offered", "write a longer span")

    def _schemas(self, predicate: str, arity: int) -> None:
        column = arity - 1
        for said in self._each(predicate, arity):
            value = said.args[column]
            if value is None:
                continue
            name = said.args[1] if isinstance(said.args[1], str) else "value"
            try:
                if arity > 2:
                    input_schema((), {name: plain(value)})
                else:
                    result_schema(plain(value))
            except (Flaw, NotPlain) as flaw:
                fix = flaw.fix if isinstance(flaw, Flaw) else None
                self._say(said, column, str(flaw), fix)

    # --- tools and intents -----------------------------------------------------------------------------------------

    def _tools(self) -> None:
        """Tools that could be offered and cannot be made."""
        told: set[str] = set()
        made = {one.args[0] for one in self._each("macro", 2) if isinstance(one.args[0], str)}
        for predicate, arity, column in _TOOLS:
            for said in self._each(predicate, arity):
                tool = said.args[column]
                if isinstance(tool, str) and tool not in told and not self.statements.could_be(tool, "macro", 2):
                    told.add(tool)
                    fix = did_you_mean(tool, made)
                    self._say(said, column, f"nothing says that there is a tool {tool!r}", fix, error=False)
        for said in self._each("macro", 2):
            tool = said.args[0]
            problem = name_problem(tool) if isinstance(tool, str) else None
            if problem is not None:
                self._say(said, 0, f"the name of the tool {problem}", None)
            elif isinstance(said.args[1], str) and not said.args[1].strip():
                self._say(said, 1, "the description of the tool is empty", "say what the tool does")
            elif isinstance(tool, str) and not self.statements.could_be(tool, "macro_step", 3):
                fix = f'write macro_step("{tool}", 1, "an action").'
                self._say(said, 0, f"the tool {tool!r} has no step and is never offered", fix, error=False)

    def _numbers(self) -> None:
        for said in self._each("macro_step", 3):
            if isinstance(said.args[1], int) and said.args[1] < 1:
                self._say(said, 1, f"steps are counted from 1, not {said.args[1]}", None)

    def _errors(self) -> None:
        """What happens after the error of a step needs the step, and undoing needs something that can be undone."""
        for said in self._each("on_error", 3):
            tool, number, what = said.args
            if not isinstance(tool, str) or not isinstance(number, int):
                continue
            if not may_have_step(self.statements, tool, number):
                self._say(said, 1, f"{tool} has no step {number}", "write a macro_step clause for it")
            elif what == "undo" and not self.statements.could_be(tool, "undo_step", 3):
                self._say(said, 2, f"{tool} has no step that can be undone", "write an undo_step clause")

    def _intents(self) -> None:
        """Intents that the manifest names and no rule knows, and the other way round."""
        mentioned: dict[str, Clause] = {}
        for clause in self.clauses:
            for name in _intents_of(clause):
                if name is None:
                    return  # it may be any
                mentioned.setdefault(name, clause)
        if any(not one.premises for one in self._each("mandatory", 1) + self._each("relevant", 2)):
            return  # some tool speaks to all of them
        listed = {intent.name: intent.line for intent in self.pack.settings.intents}
        for name in sorted(set(listed) - set(mentioned)):
            message = f"no rule mentions the intent {name!r}"
            self.complaints.add(
                pack_problem("pack.toml", message, listed[name], fix=did_you_mean(name, mentioned), severity="warning")
            )
        for name in sorted(set(mentioned) - set(listed)) if listed else ():
            message = f"the intent {name!r} is not listed in pack.toml"
            self._say(Said((), mentioned[name]), None, message, did_you_mean(name, listed), error=False)


_ACTIONS: Final = (
    *(("macro_step", 3, 2), ("undo_step", 3, 2), ("effect_denied", 2, 0), ("extract", 3, 0), ("keep", 3, 0)),
)
_TOOLS: Final = (
    *(("mandatory", 1, 0), ("relevant", 2, 0), ("requires", 2, 1), ("requires", 2, 0)),
    *(("prohibited", 2, 0), ("permitted", 1, 0), ("conflicts", 2, 0), ("conflicts", 2, 1)),
    *(("reversible", 1, 0), ("idempotent", 1, 0), ("instruction", 3, 0), ("needs_skill", 2, 0)),
    *(("needs_resource", 4, 0), ("needs_confirmation", 1, 0), ("valid_for", 2, 0), ("valid_until", 2, 0)),
)
"""Where clauses name tools. A name that is mistyped there does nothing, silently."""


def _score(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= 100


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
