"""Lint of a pack's clauses and fact files: hidden characters, unread predicates, untimed facts, calls, constants.

:func:`cross_check` checks only constants, in heads of clauses and in fact files. :func:`find_constant_context`,
:func:`find_untimed` and :func:`find_call_misuse` run after the analysis; the problems that the other functions find are
reported together with the errors that stop the analysis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal as LiteralType

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.suggestions import did_you_mean
from manglecp.base.text import find_invisible
from manglecp.intent.chain import ON_ERROR, name_fix, name_problem
from manglecp.intent.definition import Flaw
from manglecp.intent.input_schema import input_schema, result_schema
from manglecp.intent.intents import intents_of
from manglecp.intent.kernel import PREDICATES
from manglecp.intent.kernel_statements import ProblemList, Statement, Statements
from manglecp.intent.rendering import uri
from manglecp.intent.value_lint import StatementCheck, check_arguments, check_results
from manglecp.mangle import Duration, Key, NotPlain, Program, Trust, argument_span, closure, plain_json
from manglecp.mangle.syntax import Atom, Clause, Decl, Unit, bound_variables, subterms
from manglecp.pack import Pack, pack_problem
from manglecp.wire import UNTIMED, UNTIMED_MEANINGS, direction_of

# Rule files have no invisible characters (:mod:`manglecp.pack.loader`), but a string can contain one as an escape
# sequence. This is permitted in bodies of rules and in facts of the pack's own predicates: clients read neither.


def find_hidden_texts(units: Iterable[Unit]) -> Iterator[Diagnostic]:
    """Yield an error for each text for clients that has an invisible character."""
    for unit in units:
        heads = (clause.head for clause in unit.clauses if clause.head.predicate in PREDICATES)
        for atom in (*heads, *(descriptor for decl in unit.decls for descriptor in decl.descr)):
            yield from _hidden_texts(atom)


def _hidden_texts(atom: Atom) -> Iterator[Diagnostic]:
    for column, term in enumerate(atom.args):
        if (atom.key, column) == (("macro", 2), 0):
            continue  # names of tools are checked by name_problem
        for text in (part for part in subterms(term) if isinstance(part, str)):
            if (found := find_invisible(text, running=True)) is not None:
                _, code_point = found
                message = f"{atom.predicate} has a text with the invisible character {code_point}"
                yield Diagnostic("analysis", message, argument_span(atom, column), fix="remove it")
                break


# A misspelt predicate, such as ``prohibted``, is valid, but no rule reads it. In policy that is an error, because the
# clause does not forbid what it should; elsewhere it is a warning. Some predicates in the examples of the specification
# have other names here (docs/reference/seed-vocabulary.md); ``_SEED_WORDS`` has the fix for each.
_SEED_WORDS: Final = {
    "macro_tool": "write macro(Tool, Description) and macro_step(Tool, N, Action); a score of relevant sets the level",
    "selected_tool": "write mandatory(Tool) or relevant(Tool, Score)",
    "mandatory_for_intent": "write mandatory(Tool) :- intent(Intent)",
    "intent_type": "read intent(Intent), which the server asserts",
    "needs_file": "write needs_resource(Tool, Uri, Why, Priority)",
    "requires_confirmation": "write needs_confirmation(Tool)",
    "high_risk_effect": "the effects payments, destructive and authentication need an approval; name others in "
    "needs_confirmation(Tool) :- macro_effect(Tool, Effect)",
}


def find_misspelt(decls: Iterable[Decl], clauses: Sequence[Clause]) -> Iterator[Diagnostic]:
    """Yield a problem for each unread predicate that is not declared, or is in the specification's examples."""
    readers: dict[Key, set[Key]] = {}  # by predicate, the heads of the clauses that read it
    for clause in clauses:
        for key in clause.reads:
            readers.setdefault(key, set()).add(clause.head.key)
    checked_names = {*PREDICATES, *_declared(decls)} - _SEED_WORDS.keys()
    for clause in clauses:
        name = clause.head.predicate
        if name in checked_names or clause.span is None:
            continue
        checked_names.add(name)
        seed_fix = _SEED_WORDS.get(name)
        dependents = {key[0] for key in closure([clause.head.key], readers)} - {name}
        if seed_fix:
            dependents &= PREDICATES  # a word of the examples has an effect only through the kernel
        if dependents:
            continue
        is_policy = clause.trust <= Trust.POLICY
        similar = None if seed_fix else _similar_predicate(name.rpartition(".")[2])
        start = f"did you mean {similar}? If not," if similar else "read it, or"
        fix = seed_fix or f"{start} declare it with Decl"
        severity: LiteralType["error", "warning"] = "error" if is_policy and (similar or seed_fix) else "warning"
        yield Diagnostic("analysis", f"nothing reads {name}", clause.head.span, fix=fix, severity=severity)


def _declared(decls: Iterable[Decl]) -> Iterator[str]:
    """Yield the declared predicates, and the texts of their descriptors, which may name others (``merge``)."""
    for decl in decls:
        yield decl.atom.predicate
        for descriptor in decl.descr:
            yield from (term for term in descriptor.args if isinstance(term, str))


def _similar_predicate(name: str) -> str | None:
    import difflib  # imported late: few packs have an unread predicate

    matches = difflib.get_close_matches(name, sorted(PREDICATES), n=1, cutoff=0.8)
    return matches[0] if matches else None


def find_constant_context(clauses: Iterable[Clause], constant: Container[Key]) -> Iterator[Diagnostic]:
    """Yield a warning for each clause that gives a tool the same skill or instruction in every request (SKILL-14).

    No request changes the predicates in ``constant``.
    """
    for clause in clauses:
        if clause.head.key not in (("needs_skill", 2), ("instruction", 3)):
            continue
        if all(literal.atom.key in constant or literal.atom.is_builtin for literal in clause.literals):
            message = f"no fact of a request decides about this {clause.head.predicate}"
            fix = "add the fact or the intent that makes it necessary, or write it into the description of the tool"
            yield Diagnostic("analysis", message, clause.head.span, fix=fix, severity="warning")


# A client's fact without a time holds for ever, and therefore in every window of a temporal operator. The declaration
# has to state whether the pack author wants that.


def find_untimed(program: Program) -> Iterator[Diagnostic]:
    """Yield an error for each window over facts of clients whose declaration does not state how untimed facts count."""
    eternal: dict[Key, Key] = {}  # by predicate with eternal facts, the client's predicate that they come from
    for key, predicate in program.predicates.items():
        descriptors = predicate.decl.descr if predicate.decl else ()
        untimed = [descriptor for descriptor in descriptors if descriptor.predicate == UNTIMED]
        if untimed and not (predicate.temporal and len(untimed) == 1 and untimed[0].args in UNTIMED_MEANINGS):
            message = f'{key[0]}: untimed takes "now" or "always", once, of a temporal predicate'
            yield Diagnostic("analysis", message, untimed[0].span, fix='write untimed("now")')
        if predicate.temporal and not untimed and direction_of(predicate) in ("input", "both"):
            eternal[key] = key
    has_changed = True
    while has_changed:
        has_changed = False
        for rule in program.rules:
            if rule.head.key not in eternal and (source := _eternal_source(rule.clause, eternal)):
                eternal[rule.head.key] = source
                has_changed = True
    reported_sources: set[Key] = set()
    for rule in program.rules:
        for premise in rule.clause.literals:
            if premise.operator is None:
                continue  # a premise without a window
            source = eternal.get(premise.atom.key)
            if source is not None and source not in reported_sources:
                reported_sources.add(source)
                message = f"a client can state {source[0]} without a time, and such a fact is in every window"
                fix = f'add untimed("now") to the descr of {source[0]}: it holds at the evaluation time; or '
                yield Diagnostic("analysis", message, premise.span, fix=fix + 'untimed("always"): it holds for ever')


def _eternal_source(clause: Clause, eternal: Mapping[Key, Key]) -> Key | None:
    """Return the client's predicate whose eternal facts make the head eternal; None if there is none."""
    bounds = () if clause.annotation is None else clause.annotation.bounds
    head_variables = {variable.name for variable in bound_variables(bounds)}
    for premise in clause.literals:
        if premise.annotation is not None and premise.atom.key in eternal:
            variables = {variable.name for variable in bound_variables(premise.annotation.bounds)}
            if head_variables & variables:
                return eternal[premise.atom.key]
    return None


# Rules are evaluated without a call when tools are offered, and again for each call. What policy denies without a call,
# it has to deny for every call. So a rule that reads arguments, or that negates or aggregates facts about a call, must
# have a premise that no fact matches without a call. A rule that permits or selects a tool must not depend on a call:
# the tool would be offered to no client.
_ARGUMENTS: Final = frozenset({("call_arg", 2), ("call_value", 2)})
_CALLS: Final = frozenset({("call", 1), ("run_of", 1), ("ran", 1)})
_CALL_FACTS: Final = frozenset({("call", 1), ("run_of", 1), ("run_arg", 2)}) | _ARGUMENTS
_RUN_FACTS: Final = _CALL_FACTS | _CALLS | {("step_status", 3), ("step_value", 3), ("run_id", 1)}
_OFFERING: Final = (("permitted", 1), ("mandatory", 1), ("relevant", 2))
_JUDGING: Final = (
    *(("prohibited", 2), ("effect_denied", 2), ("intent_denied", 1), ("fact_denied", 2)),
    *(("needs_confirmation", 1), ("needs_approval", 2), ("four_eyes", 1)),
)


def find_call_misuse(program: Program, given: Container[str]) -> Iterator[Diagnostic]:
    """Yield an error for each rule that could hold without a call but not with one, and for offers that need a call.

    ``given`` are the predicates with facts that no rule derives.
    """
    reads: dict[Key, set[Key]] = {}
    readers: dict[Key, set[Key]] = {}
    bodies: dict[Key, list[set[Key]]] = {}  # by predicate, the positive premises of each of its rules
    for rule in program.rules:
        literals = list(rule.clause.literals)
        bodies.setdefault(rule.head.key, []).append({literal.atom.key for literal in literals if not literal.negated})
        for literal in literals:
            reads.setdefault(rule.head.key, set()).add(literal.atom.key)
            readers.setdefault(literal.atom.key, set()).add(rule.head.key)
    dependent, judging = closure(_CALL_FACTS, readers), closure(_JUDGING, reads)
    silent = set(_RUN_FACTS)  # predicates without facts while tools are offered
    while new := {
        key
        for key, rules in bodies.items()
        if key not in silent and key[0] not in given and all(positive & silent for positive in rules)
    }:
        silent |= new
    for rule in program.rules:
        span = rule.clause.span
        if span is not None and span.source.trust == Trust.KERNEL:
            continue
        literals = list(rule.clause.literals)
        positive = {literal.atom.key for literal in literals if not literal.negated}
        may_hold_without = rule.head.key in judging and not positive & silent
        for literal in literals:
            key, name = literal.atom.key, literal.atom.predicate
            if key in _ARGUMENTS and not positive & _CALLS:
                message = f"a rule that reads {name} is about a call, and names none"
            elif may_hold_without and key in dependent and (literal.negated or rule.clause.aggregates):
                verb = "negates" if literal.negated else "aggregates"
                message = f"a rule that {verb} {name} also holds without a call"
            else:
                continue
            fix = 'add the premise call("the tool"), or call(_) for every tool'
            yield Diagnostic("analysis", message, literal.span, fix=fix)
            break
    for key in _OFFERING:
        call = closure([key], reads) & _RUN_FACTS
        if call and (head := next((rule.head for rule in program.rules if rule.head.key == key), None)):
            message = f"{key[0]} depends on {min(call)[0]}, and is also evaluated when tools are offered"
            fix = "permit the tool, and deny calls of it with prohibited(Tool, Reason) :- call(Tool), …"
            yield Diagnostic("analysis", message, head.span, fix=fix)


_TOOL_PARTS: Final = ("macro_step", "macro_param")  # a tool with parameters but no step is called with a permit
_STEPS: Final = (
    ("arg_step", 5, 3),
    ("step_after", 3, 1),
    ("step_after", 3, 2),
    ("macro_result", 4, 2),
    ("nothing_to_undo", 2, 1),
    ("on_error", 3, 1),
)
"""Predicate, arity and column of references to a step of the same tool."""
_POINTERS: Final = (("arg_step", 5, 4), ("macro_result", 4, 3), ("undo_out", 4, 3), ("extract", 3, 2), ("keep", 3, 2))
"""Predicate, arity and column of JSON Pointers."""
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")


def may_have_step(statements: Statements, tool: str, number: int) -> bool:
    """Return False only if all steps of the tool are known and none has this number."""
    steps = statements.of(tool, "macro_step", 3)
    return not statements.is_complete or any(step.args[1] in (number, None) for step in steps)


def cross_check(pack: Pack, clauses: Sequence[Clause], statements: Statements) -> list[Diagnostic]:
    """Return all errors and warnings about the constants of the pack's clauses and fact files."""
    check = _CrossCheck(pack, clauses, statements)
    check.run()
    return check.problems.items


class _CrossCheck(StatementCheck):
    def __init__(self, pack: Pack, clauses: Sequence[Clause], statements: Statements) -> None:
        super().__init__(pack, statements, ProblemList())
        self.clauses = clauses
        self._report = self.problems.report
        self._each = statements.each

    def run(self) -> None:
        self._check_values("relevant", 2, 1, _is_score, "a score is a number from 0 to 100")
        self._check_values("needs_resource", 4, 3, _is_score, "a priority is a number from 0 to 100")
        self._check_durations()
        on_error = ", ".join(f'"{value}"' for value in ON_ERROR)
        self._check_values("on_error", 3, 2, ON_ERROR.__contains__, f"what happens after an error is one of {on_error}")
        check_arguments(self.pack, self.statements, self.problems)
        self._check_steps()
        self._check_pointers()
        self._check_context()
        self._check_optional_params()
        self._check_conflicts()
        check_results(self.pack, self.statements, self.problems)
        self._check_schemas("macro_param", 3)
        self._check_schemas("macro_output", 2)
        self._check_tools()
        self._check_values("macro_step", 3, 1, lambda n: not isinstance(n, int) or n >= 1, "steps are counted from 1")
        self._check_on_error()
        self._check_intents()

    def _check_values(self, predicate: str, arity: int, column: int, valid: Callable[[Any], bool], rule: str) -> None:
        """Report the constants in a column for which ``valid`` is false; ``rule`` begins the message."""
        for statement in self._each(predicate, arity):
            value = statement.args[column]
            if isinstance(value, int | str) and not valid(value):
                self._report(statement, column, f"{rule}, not {value!r}", None)

    def _check_durations(self) -> None:
        for statement in self._each("valid_for", 2):
            duration = statement.args[1]
            if isinstance(duration, Duration) and duration.ns <= 0:
                message = "a tool is valid for some time, or it is never offered"
                self._report(statement, 1, message, "write a longer span")

    def _check_schemas(self, predicate: str, arity: int) -> None:
        """Check the schemas in the last column of ``macro_param`` or ``macro_output``."""
        column = arity - 1
        for statement in self._each(predicate, arity):
            value = statement.args[column]
            if value is None:
                continue
            try:
                if predicate == "macro_param":
                    name = statement.args[1] if isinstance(statement.args[1], str) else "value"
                    input_schema((), {name: plain_json(value)})
                else:
                    result_schema(plain_json(value))
            except (Flaw, NotPlain) as flaw:
                fix = flaw.fix if isinstance(flaw, Flaw) else None
                self._report(statement, column, str(flaw), fix)

    def _check_steps(self) -> None:
        for predicate, arity, column in _STEPS:
            for statement in self._each(predicate, arity):
                tool, number = statement.args[0], statement.args[column]
                if not isinstance(tool, str) or not isinstance(number, int):
                    continue
                if not may_have_step(self.statements, tool, number):
                    self._report(statement, column, f"{tool} has no step {number}", "write a macro_step clause for it")
                elif predicate in ("arg_step", "step_after") and column > 1 and number == statement.args[1]:
                    self._report(statement, column, f"step {number} of {tool} waits for itself", "name an earlier step")

    def _check_pointers(self) -> None:
        for predicate, arity, column in _POINTERS:
            for statement in self._each(predicate, arity):
                text = statement.args[column]
                if isinstance(text, str) and not _POINTER.fullmatch(text):
                    fix = "write '' for the whole, '/a/0' for a part of it, ~0 for ~ and ~1 for / in a name"
                    self._report(statement, column, f"{text!r} is not a JSON Pointer", fix)

    def _check_context(self) -> None:
        for statement in self._each("needs_resource", 4):
            address = statement.args[1]
            if isinstance(address, str) and uri(address) is None:
                message = f"{address!r} is not a path or URI that clients can open"
                self._report(statement, 1, message, "write a path or a URI")
            if isinstance(relevance := statement.args[2], str) and not relevance.strip():
                self._report(statement, 2, "the resource has no relevance", "write why the tool needs it", error=False)
        needed_skills = {statement.args[1] for statement in self._each("needs_skill", 2)}
        for skill in sorted(self.pack.skills.keys() - needed_skills if None not in needed_skills else ()):
            fix = f'write needs_skill(Tool, "{skill}") with the facts that make it necessary'
            file, message = f"skills/{skill}.md", "no rule needs this skill"
            self.problems.add(pack_problem(file, message, fix=fix, severity="warning"))
        for statement in self._each("instruction", 3):
            text = statement.args[2]
            if isinstance(text, str) and not text.strip():
                fix = "write what the model has to observe"
                self._report(statement, 2, "the instruction is empty", fix, error=False)

    def _check_optional_params(self) -> None:
        for statement in self._each("optional_param", 2):
            tool, name = statement.args
            if isinstance(tool, str) and isinstance(name, str) and self.statements.is_complete:
                params = set(self._parameters(tool))
                if name not in params and None not in params:
                    message = f"{tool} has no parameter {name!r} that could be left out"
                    self._report(statement, 1, message, did_you_mean(name, {p for p in params if p}), error=False)

    def _parameters(self, tool: str) -> Iterator[str | None]:
        """Yield the names that call arguments may have; None if one may have any name."""
        names = [statement.args[1] for statement in self.statements.of(tool, "macro_param", 3)]
        names += [statement.args[3] for statement in self.statements.of(tool, "arg_from", 4)]
        yield from (name if isinstance(name, str) else None for name in names)
        for step in self.statements.of(tool, "macro_step", 3):
            action = self.pack.actions.get(step.args[2]) if isinstance(step.args[2], str) else None
            yield from (None,) if action is None else action.input_schema.get("properties", ())

    def _check_conflicts(self) -> None:
        rivals: dict[frozenset[object], list[Statement]] = {}
        for statement in self._each("conflicts", 2):
            if None in statement.args:
                continue
            if statement.args[0] == statement.args[1]:
                message = f"{statement.args[0]} cannot be its own rival"
                self._report(statement, 1, message, "name another tool", error=False)
            rivals.setdefault(frozenset(statement.args), []).append(statement)
        for statement in self._each("requires", 2):
            tool, required_tool = statement.args
            if tool == required_tool:
                continue
            if any(rival.premises <= statement.premises for rival in rivals.get(frozenset(statement.args), ())):
                message = f"{tool} requires {required_tool} and is in conflict with it, so that it is never offered"
                self._report(statement, 1, message, "remove one of the two", error=False)

    def _check_tools(self) -> None:
        for statement in self._each("macro", 2):
            tool = statement.args[0]
            if isinstance(tool, str) and (problem := name_problem(tool)) is not None:
                self._report(statement, 0, f"the name of the tool {problem}", name_fix(tool))
            elif isinstance(statement.args[1], str) and not statement.args[1].strip():
                self._report(statement, 1, "the description of the tool is empty", "write what the tool does")
            elif isinstance(tool, str) and not any(self.statements.may_have(tool, name, 3) for name in _TOOL_PARTS):
                fix = f'write macro_step("{tool}", 1, "an action").'
                self._report(statement, 0, f"the tool {tool!r} has no step and is never offered", fix, error=False)

    def _check_on_error(self) -> None:
        for statement in self._each("on_error", 3):
            tool, number, reaction = statement.args
            if not isinstance(tool, str) or not isinstance(number, int) or reaction != "undo":
                continue
            if may_have_step(self.statements, tool, number) and not self.statements.may_have(tool, "undo_step", 3):
                self._report(statement, 2, f"{tool} has no step that can be undone", "write an undo_step clause")

    def _check_intents(self) -> None:
        """Warn about intents that pack.toml lists and no rule reads."""
        read_intents: set[str] = set()
        for clause in self.clauses:
            for name in intents_of(clause.premises):
                if name is None:
                    return  # a rule that reads every intent
                read_intents.add(name)
        if any(not statement.premises for statement in self._each("mandatory", 1) + self._each("relevant", 2)):
            return  # a tool that is selected for every intent
        lines_by_intent = {intent.name: intent.line for intent in self.pack.settings.intents}
        for name in sorted(set(lines_by_intent) - read_intents):
            message, fix = f"no rule mentions the intent {name!r}", did_you_mean(name, read_intents)
            self.problems.add(pack_problem("pack.toml", message, lines_by_intent[name], fix=fix, severity="warning"))


def _is_score(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= 100
