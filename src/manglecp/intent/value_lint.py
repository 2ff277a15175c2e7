"""Check the arguments and JSON Pointers of a pack against the schemas of its actions, and chains that facts define."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.suggestions import did_you_mean
from manglecp.intent.chain import PREDICATES, chain
from manglecp.intent.definition import Flaw
from manglecp.intent.kernel_statements import ProblemList, Statement, Statements
from manglecp.intent.redaction import make_redactor, secret_values
from manglecp.mangle import Base, Key, NotPlain, Program, Value, argument_span, order_key, plain_json
from manglecp.mangle.syntax import Apply, Clause, Variable
from manglecp.pack import ActionDescription, Pack
from manglecp.wire import compile_schema

# A JSON Pointer that the output schema of an action rules out fails in every run, or yields nothing silently. Where a
# schema leaves a part open, or is too complex to follow, every pointer is accepted.
_DEFINITIONS: Final = ("#/$defs", "#/definitions")
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_ARRAY_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")
_MAX_DEPTH: Final = 32  # levels of references and nested schemas


def check_results(pack: Pack, statements: Statements, problems: ProblemList) -> None:
    """Report JSON Pointers to which no result of the action can have a value."""
    check = _ResultCheck(pack, statements, problems)
    for statement in statements.each("arg_step", 5):
        tool, number, param, source, pointer = statement.args
        consumers = check.actions("macro_step", tool, number)
        check.check_pointer(statement, 4, check.actions("macro_step", tool, source), pointer, consumers, param)
    for statement in statements.each("undo_out", 4):
        tool, number, param, pointer = statement.args
        consumers = check.actions("undo_step", tool, number)
        check.check_pointer(statement, 3, check.actions("macro_step", tool, number), pointer, consumers, param)
    for statement in statements.each("macro_result", 4):
        tool, _, number, pointer = statement.args
        check.check_pointer(statement, 3, check.actions("macro_step", tool, number), pointer, error=False)
    for predicate in ("extract", "keep"):
        for statement in statements.each(predicate, 3):
            name, _, pointer = statement.args
            actions = [pack.actions[name]] if isinstance(name, str) and name in pack.actions else []
            check.check_pointer(statement, 2, actions, pointer, error=False)


class StatementCheck:
    """A check of the statements about the actions of a pack, which adds to ``problems``."""

    def __init__(self, pack: Pack, statements: Statements, problems: ProblemList) -> None:
        self.pack = pack
        self.statements = statements
        self.problems = problems

    def possible_actions(self, step_predicate: str, tool: object, number: object) -> list[ActionDescription] | None:
        """Return the possible actions of a step (``macro_step`` or ``undo_step``); None if they are not determined."""
        if not isinstance(tool, str) or not isinstance(number, int):
            return None
        actions: dict[str, ActionDescription] = {}
        for statement in self.statements.of(tool, step_predicate, 3):
            _, step_number, name = statement.args
            if step_number not in (number, None):  # None stands for a variable, which may have this number
                continue
            if not isinstance(name, str) or name not in self.pack.actions:
                return None
            actions[name] = self.pack.actions[name]
        return list(actions.values()) if actions or self.statements.is_complete else None


class _ResultCheck(StatementCheck):
    def actions(self, step_predicate: str, tool: object, number: object) -> list[ActionDescription]:
        """Return the possible actions of a step; empty if they are not determined, or a file is unreadable."""
        return (self.possible_actions(step_predicate, tool, number) or []) if self.statements.is_complete else []

    def check_pointer(
        self,
        statement: Statement,
        column: int,
        actions: Sequence[ActionDescription],
        pointer: object,
        consumers: Sequence[ActionDescription] = (),
        param: object = None,
        *,
        error: bool = True,
    ) -> None:
        """Check the pointer in ``column`` of a statement against the results of ``actions``.

        The value becomes the parameter ``param`` of one of ``consumers``.
        """
        if not isinstance(pointer, str) or not actions or any(not action.output_schema for action in actions):
            return
        path = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        targets = [_follow(action.output_schema, action.output_schema, path) for action in actions]
        names = _names(actions)
        if not any(targets):
            members = {name for action in actions for name in _members(action.output_schema, path[:-1])}
            message = f"nothing that {names} returns has {pointer!r}"
            fix = did_you_mean(path[-1], members) if members else None
            self.problems.report(statement, column, message, fix, error=error)
            return
        returned_types = _types([schema for schemas in targets for schema in schemas])
        params = [_follow(action.input_schema, action.input_schema, [str(param)]) for action in consumers]
        accepted_types = _types([schema for schemas in params for schema in schemas])
        if returned_types and accepted_types and not returned_types & accepted_types:
            result_text = f"{pointer!r} of what {names} returns" if pointer else f"what {names} returns"
            takes = f"{param!r} takes {_type_names(accepted_types)}"
            message = f"{result_text} is of type {_type_names(returned_types)}, and {takes}"
            self.problems.report(statement, column, message, "take another part of the result", error=error)


def _follow(schema: Any, root: Mapping[str, Any], path: Sequence[str], depth: int = 0) -> list[Any]:
    """Return the schemas at the end of a path, True for any value; empty if no value can be there.

    ``root`` is the schema that references of ``schema`` start from.
    """
    targets: list[Any] = []
    for alternative in _alternatives(schema, root, depth):
        if not path or alternative is True:
            targets.append(alternative)
            continue
        key, remaining_path = path[0], path[1:]
        types = _types([alternative])
        if types is None or "object" in types:
            properties = alternative.get("properties", {})
            member = properties.get(key, alternative.get("additionalProperties", True))
            is_open = "patternProperties" in alternative and key not in properties
            targets += _follow(True if is_open else member, root, remaining_path, depth + 1)
        if (types is None or "array" in types) and _ARRAY_INDEX.fullmatch(key):
            item = True if "prefixItems" in alternative else alternative.get("items", True)
            targets += _follow(item, root, remaining_path, depth + 1)
    return targets


def _alternatives(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[Any]:
    """Yield the schemas that a schema can stand for; True for any value, nothing if no value is valid."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or "allOf" in schema:
        if schema is not False:
            yield True
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        parent, _, name = reference.rpartition("/")
        definitions = root.get(parent.removeprefix("#/"), {}) if parent in _DEFINITIONS else {}
        yield from _alternatives(definitions.get(name, True), root, depth + 1)
        return
    alternatives = next((schema[name] for name in _ALTERNATIVES if name in schema), None)
    if alternatives is None:
        yield schema
        return
    for alternative in alternatives:
        yield from _alternatives(alternative, root, depth + 1)


def _members(schema: Any, path: Sequence[str]) -> set[str]:
    targets = _follow(schema, schema, path)
    return {name for target in targets if isinstance(target, Mapping) for name in target.get("properties", {})}


def _types(schemas: Sequence[Any]) -> frozenset[str] | None:
    """Return the JSON types of the values that the schemas accept; None if the values may have any type."""
    types: set[str] = set()
    for schema in schemas:
        type_ = schema.get("type") if isinstance(schema, Mapping) else None
        if type_ is None:
            return None
        types |= {type_} if isinstance(type_, str) else set(type_)
    if "number" in types:
        types.add("integer")
    return frozenset(types)


def _type_names(types: frozenset[str]) -> str:
    redundant = {"integer"} if "number" in types else set()  # every integer is a number
    return " or ".join(sorted(types - redundant))


# A parameter is bound once: a clause that is always overridden is an error. A fixed value must match the schema of its
# parameter. A reversible chain needs an undo for each step with an effect.
_BINDINGS: Final = {
    "macro_step": (("arg_value", 4), ("arg_from", 4), ("arg_step", 5), ("arg_kept", 5)),
    "undo_step": (("undo_value", 4), ("undo_in", 4), ("undo_out", 4)),
}
"""By predicate that names the action of a step: the predicates that bind its parameters, in order of precedence."""
_APPROVED_TIER: Final = 3  # a tool with an action of this tier always needs approval
_STEP_SUFFIXES: Final = {"macro_step": "", "undo_step": " with an undo action"}  # how messages end


def check_arguments(pack: Pack, statements: Statements, problems: ProblemList) -> None:
    """Report bindings of missing steps and parameters, values that do not match, double bindings and missing undos."""
    check = _ArgumentCheck(pack, statements, problems)
    for step_predicate, bindings in _BINDINGS.items():
        for predicate, arity in bindings:
            check.check_existence(step_predicate, predicate, arity)
        value_predicate, arity = bindings[0]
        check.check_values(step_predicate, statements.each(value_predicate, arity))
        check.check_single_binding(bindings)
    check.check_reversible(statements.each("reversible", 1))
    check.check_approvable(statements.each("arg_step", 5))


def check_derived_rows(
    pack: Pack, base: Base, clauses: Collection[Clause], changeable: Collection[Key]
) -> list[Diagnostic]:
    """Check the rows of the base that rules derive; requests can change only the predicates in ``changeable``."""
    # Rows of changeable predicates may differ in a request, so ``statements`` has their clauses instead of their rows.
    statements = Statements([clause for clause in clauses if clause.head.key in changeable])
    derived_statements: dict[Key, list[Statement]] = {}
    for key in (("macro_step", 3), ("undo_step", 3), ("arg_value", 4), ("undo_value", 4), ("reversible", 1)):
        rules = [clause for clause in clauses if clause.head.key == key]
        facts = {clause.head.args for clause in rules if clause.is_fact}
        for row in base.rows(key):
            if row not in facts:
                rule = next((rule for rule in rules if _may_derive(rule, row)), None)
                statement = Statement(row, rule, "the base facts")
                derived_statements.setdefault(key, []).append(statement)
                statements.add(key, statement)
            elif key not in changeable:
                statements.add(key, Statement(row, None))
    problems = ProblemList()
    check = _ArgumentCheck(pack, statements, problems)
    for step_predicate, (value_key, *_) in _BINDINGS.items():
        is_certain = (step_predicate, 3) not in changeable and value_key not in changeable
        check.check_values(step_predicate, derived_statements.get(value_key, []), error=is_certain)
    check.check_reversible(derived_statements.get(("reversible", 1), []))
    return problems.items


class _ArgumentCheck(StatementCheck):
    def check_existence(self, step_predicate: str, predicate: str, arity: int) -> None:
        for statement in self.statements.each(predicate, arity):
            tool, number, param = statement.args[:3]
            actions = self.possible_actions(step_predicate, tool, number)
            if actions is None:
                continue
            if not actions:
                message = f"{tool} has no step {number}{_STEP_SUFFIXES[step_predicate]}"
                self.problems.report(statement, 1, message, f"write a {step_predicate} clause for it")
            elif isinstance(param, str) and not any(_takes(action, param) for action in actions):
                params = {name for action in actions for name in action.input_schema.get("properties", {})}
                message = f"{_names(actions)} has no parameter {param!r}"
                self.problems.report(statement, 2, message, did_you_mean(param, params))

    def check_values(self, step_predicate: str, statements: Iterable[Statement], *, error: bool = True) -> None:
        redact = make_redactor(secret_values(self.pack))
        for statement in statements:
            tool, number, param, value = statement.args
            if not isinstance(param, str) or value is None:
                continue
            possible = self.possible_actions(step_predicate, tool, number) or ()
            actions = [action for action in possible if _takes(action, param)]
            problems = [_schema_problem(action, param, value) for action in actions]
            if problems and all(problems):
                message = f"{_names(actions)} does not take this value as {param!r}: {redact(problems[0])}"
                self.problems.report(statement, 3, message, "write a value that its schema allows", error=error)

    def check_single_binding(self, predicates: Iterable[Key]) -> None:
        """Report bindings of a parameter that a binding of an earlier predicate always overrides."""
        bindings: dict[tuple[object, ...], list[tuple[str, Statement]]] = {}  # by tool, step and parameter
        for predicate, arity in predicates:
            bound_params = [(statement.terms[:3], statement) for statement in self.statements.each(predicate, arity)]
            for key, statement in bound_params:
                for overriding, earlier in bindings.get(key, ()):
                    if earlier.premises <= statement.premises:  # where ``statement`` holds, so does ``earlier``
                        message = f"{statement.args[2] or 'the parameter'!r} of step {statement.args[1]} is bound twice"
                        message += f": {overriding} overrides {predicate}, which has no effect"
                        self.problems.report(statement, 2, message, f"remove one of them{_place(earlier)}")
                        break
            for index, (key, statement) in enumerate(bound_params):
                same_key = [other for other_key, other in bound_params[:index] if other_key == key]
                self._check_single_value(predicate, statement, same_key)
                bindings.setdefault(key, []).append((predicate, statement))

    def _check_single_value(self, predicate: str, statement: Statement, rivals: Iterable[Statement]) -> None:
        """Warn about clauses that always hold together and give different values."""
        for rival in rivals:
            hold_together = rival.premises <= statement.premises or statement.premises <= rival.premises
            # Two facts are left to Domain.load, where they are an error.
            if hold_together and (rival.premises or statement.premises) and rival.terms[3:] != statement.terms[3:]:
                param, step = repr(statement.args[2] or "the parameter"), statement.args[1]
                message = f"{predicate} gives {param} of step {step} two values, and the tool is not offered then"
                fix = f"let one of them hold only where the other does not{_place(rival)}"
                self.problems.report(statement, 2, message, fix, error=False)
                return

    def check_approvable(self, statements: Iterable[Statement]) -> None:
        """Warn about effects that need approval and take an argument that is unknown before the first effect."""
        for statement in statements:
            tool, number, param, source, pointer = statement.args
            action = self._action_with_effects(tool, number)
            if action is None or not isinstance(tool, str) or not isinstance(source, int):
                continue
            find = self.statements.of
            keys = (("needs_confirmation", 1), ("needs_approval", 2), ("four_eyes", 1))
            requires_approval = any(rule.args[0] == tool for key in keys for rule in find(tool, *key))
            needs_approval = action.tier >= _APPROVED_TIER or requires_approval
            numbers = [step.args[1] for step in find(tool, "macro_step", 3)]
            in_order = not self.statements.may_have(tool, "step_after", 3)
            before = [n for n in numbers if n == source or (in_order and isinstance(n, int) and n < source)]
            is_known = not any(self._action_with_effects(tool, n) for n in before)
            # A step that undoes the source step may take the same argument as the declared undo of the source step.
            is_undo = (tool, source, action.name) in [undo.args for undo in find(tool, "undo_step", 3)]
            is_undo = is_undo and (tool, source, param, pointer) in [undo.args for undo in find(tool, "undo_out", 4)]
            if needs_approval and not is_known and not is_undo:
                message = f"{tool} cannot be approved: step {number}, {action.name}, takes {param!r} from step {source}"
                message += ", whose result is not known before the first effect"
                fix = "take it from a read-only step before the first effect"
                self.problems.report(statement, 3, message, fix, error=False)

    def _action_with_effects(self, tool: object, number: object) -> ActionDescription | None:
        """Return the action of a step if it is determined and has effects."""
        actions = self.possible_actions("macro_step", tool, number) or []
        return actions[0] if len(actions) == 1 and actions[0].tier > 0 else None

    def check_reversible(self, statements: Iterable[Statement]) -> None:
        """Warn about tools that are declared reversible and have a step with an effect that no clause undoes."""
        for statement in statements:
            (tool,) = statement.args
            if not isinstance(tool, str) or not self.statements.is_complete:
                continue
            undone_numbers = {undo.args[1] for undo in self.statements.of(tool, "undo_step", 3)}
            undone_numbers |= {exempt.args[1] for exempt in self.statements.of(tool, "nothing_to_undo", 2)}
            if None in undone_numbers:  # a rule may undo any step
                continue
            rows = [step.args for step in self.statements.of(tool, "macro_step", 3)]
            steps = [(number, name) for _, number, name in rows if isinstance(number, int)]
            for number, name in sorted(steps, key=lambda step: step[0]):
                action = self.pack.actions.get(name) if isinstance(name, str) else None
                if action is not None and action.tier > 0 and not action.reversible and number not in undone_numbers:
                    message = f"{tool} is declared reversible, and no clause undoes its step {number}, {action.name}"
                    fix = f'write undo_step("{tool}", {number}, "an action"), or nothing_to_undo("{tool}", {number})'
                    self.problems.report(statement, 0, message, fix, error=False)
                    break


def _may_derive(clause: Clause, row: tuple[Value, ...]) -> bool:
    """Return whether the clause is a rule, and the constants in its head are equal to the values of the row."""
    pairs = zip(clause.head.args, row, strict=True)
    return bool(clause.premises) and all(isinstance(term, Variable | Apply) or term == value for term, value in pairs)


def _names(actions: Iterable[ActionDescription]) -> str:
    return " or ".join(action.name for action in actions)


def _place(statement: Statement) -> str:
    """Return the place of the statement as the end of a fix; empty if the place is unknown."""
    if statement.clause is None or statement.clause.head.span is None:
        return f"; the other is in {statement.file}" if statement.file else ""
    span = statement.clause.head.span
    return f"; the other is in {span.source.name}:{span.line}"


def _takes(action: ActionDescription, param: str) -> bool:
    schema = action.input_schema
    return param in schema.get("properties", {}) or schema.get("additionalProperties", True) is not False


def _schema_problem(action: ActionDescription, param: str, value: Value) -> str | None:
    """Return why the schema of the parameter rejects the value, or None."""
    schema = action.input_schema
    param_schema = schema.get("properties", {}).get(param, True)
    try:
        json_value = plain_json(value)
    except NotPlain as error:
        return f"it cannot be written as JSON: {error}"
    if not isinstance(param_schema, Mapping):
        return None if param_schema else "the action takes no value"
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    validator = compile_schema(msgspec.json.encode({**definitions, **param_schema}))
    return next((str(error.message) for error in validator.iter_errors(json_value)), None)


# A tool is static if only facts define its chain: no rule could add a step or an argument. Its flaws are reported when
# the pack is loaded.
_REQUEST_PREDICATES: Final = frozenset(
    {"intent", "intent_param", "client", "client_permission", "client_trust", "stale_source"}
)


def changeable_predicates(program: Program, variable: Iterable[str]) -> set[Key]:
    """Return the predicates that depend on a request or on ``variable``, such as those that clients may state."""
    names = {*variable, *_REQUEST_PREDICATES}
    return program.affected_by(key for key in program.predicates if key[0] in names)


def flawed_tools(pack: Pack, base: Base, clauses: Sequence[Clause]) -> Iterator[Diagnostic]:
    """Yield an error for each static tool whose facts make no chain."""
    # At first the tools that a rule can change, then also the tools that were checked.
    checked_tools = {_tool(clause) for clause in clauses if clause.premises and clause.head.key in PREDICATES.items()}
    if None in checked_tools:
        return  # a rule can change any tool
    for clause in clauses:
        tool = _tool(clause)
        if clause.head.key != ("macro", 2) or not isinstance(tool, str) or tool in checked_tools:
            continue
        checked_tools.add(tool)
        rows = {name: sorted(base.find((name, arity), tool), key=_row_order) for name, arity in PREDICATES.items()}
        if not rows["macro_step"] or any(action not in pack.actions for _, _, action in rows["macro_step"]):
            continue  # a tool that is never offered, which other checks report
        try:
            chain(tool, rows, pack.actions)
        except Flaw as flaw:
            span = argument_span(clause.head, 0)
            message = f"the tool {tool!r} is never offered: {flaw.message}"
            yield Diagnostic("analysis", message, span, fix=flaw.fix)


def _tool(clause: Clause) -> object:
    """Return the first term of the head, where kernel predicates have the tool; None for a variable."""
    first = clause.head.args[0] if clause.head.args else None
    return None if isinstance(first, Variable) else first


def _row_order(row: tuple[Value, ...]) -> list[object]:
    return [order_key(value) for value in row]
