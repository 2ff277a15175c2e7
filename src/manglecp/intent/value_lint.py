"""Check the values that a pack binds against the schemas of its actions: arguments, parts of results, static tools."""

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
from manglecp.mangle import Base, Key, NotPlain, Program, Value, argument_span, order_key, plain
from manglecp.mangle.syntax import Apply, Clause, Variable
from manglecp.pack import ActionDescription, Pack
from manglecp.wire import compile_schema

# A JSON Pointer that the output schema of an action rules out fails in every run, or yields nothing silently. Only what
# a schema rules out is reported.
_DEFINITIONS: Final = ("#/$defs/", "#/definitions/")
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_ENTRY: Final = re.compile("0|[1-9][0-9]{0,8}")
_DEEPEST: Final = 32


def check_results(pack: Pack, statements: Statements, problems: ProblemList) -> None:
    """Report JSON Pointers into results that no result can have."""
    check = _ResultCheck(pack, statements, problems)
    for statement in statements.each("arg_step", 5):
        tool, number, param, source, pointer = statement.args
        taking = check.actions(tool, "macro_step", number)
        check.part(statement, 4, check.actions(tool, "macro_step", source), pointer, taking, param)
    for statement in statements.each("undo_out", 4):
        tool, number, param, pointer = statement.args
        taking = check.actions(tool, "undo_step", number)
        check.part(statement, 3, check.actions(tool, "macro_step", number), pointer, taking, param)
    for statement in statements.each("macro_result", 4):
        tool, _, number, pointer = statement.args
        check.part(statement, 3, check.actions(tool, "macro_step", number), pointer, error=False)
    for predicate in ("extract", "keep"):
        for statement in statements.each(predicate, 3):
            action, _, pointer = statement.args
            known = [pack.actions[action]] if isinstance(action, str) and action in pack.actions else []
            check.part(statement, 2, known, pointer, error=False)


class _ResultCheck:
    def __init__(self, pack: Pack, statements: Statements, problems: ProblemList) -> None:
        self.pack = pack
        self.statements = statements
        self.problems = problems

    def actions(self, tool: object, step: str, number: object) -> list[ActionDescription]:
        """Return the possible actions of a step; empty if constants do not determine them."""
        if not self.statements.complete:
            return []
        return _possible_actions(self.pack, self.statements, step, tool, number) or []

    def part(
        self,
        statement: Statement,
        column: int,
        actions: Sequence[ActionDescription],
        pointer: object,
        taking: Sequence[ActionDescription] = (),
        param: object = None,
        *,
        error: bool = True,
    ) -> None:
        if not isinstance(pointer, str) or not actions or any(not one.output_schema for one in actions):
            return
        way = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        ends = [_follow(one.output_schema, one.output_schema, way) for one in actions]
        names = " or ".join(one.name for one in actions)
        if not any(ends):
            known = {name for one in actions for name in _members(one.output_schema, way)}
            message = f"nothing that {names} returns has {pointer!r}"
            self.problems.report(
                statement, column, message, did_you_mean(way[-1], known) if known else None, error=error
            )
            return
        given = _kinds([kinds for found in ends for kinds in found])
        taken = [_follow(one.input_schema, one.input_schema, [str(param)]) for one in taking]
        wanted = _kinds([kinds for found in taken for kinds in found])
        if given and wanted and not given & wanted:
            what = f"{pointer!r} of what {names} returns" if pointer else f"what {names} returns"
            message = f"{what} is of type {_type_names(given)}, and {param!r} takes {_type_names(wanted)}"
            self.problems.report(statement, column, message, "take another part of the result", error=error)


def _follow(schema: Any, root: Mapping[str, Any], way: Sequence[str], depth: int = 0) -> list[Any]:
    """Return the schemas at the end of a path; empty if no value can be there."""
    found: list[Any] = []
    for one in _alternatives(schema, root, depth):
        if not way or one is True:
            found.append(one)
            continue
        first, rest = way[0], way[1:]
        kinds = _kinds([one])
        if kinds is None or "object" in kinds:
            inside = one.get("properties", {}).get(first, one.get("additionalProperties", True))
            open_ = "patternProperties" in one and first not in one.get("properties", {})
            found += _follow(True if open_ else inside, root, rest, depth + 1)
        if (kinds is None or "array" in kinds) and _ENTRY.fullmatch(first):
            open_ = "prefixItems" in one
            found += _follow(True if open_ else one.get("items", True), root, rest, depth + 1)
    return found


def _alternatives(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[Any]:
    """Yield the schemas a schema can stand for; True for any value, none if no value is valid."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST or "allOf" in schema:
        if schema is not False:
            yield True
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        start = next((one for one in _DEFINITIONS if reference.startswith(one)), None)
        name = "" if start is None else reference.removeprefix(start)
        yield from _alternatives(root.get((start or "").strip("#/"), {}).get(name, True), root, depth + 1)
        return
    several = next((schema[name] for name in _ALTERNATIVES if name in schema), None)
    if several is None:
        yield schema
        return
    for one in several:
        yield from _alternatives(one, root, depth + 1)


def _members(schema: Any, way: Sequence[str]) -> set[str]:
    found = _follow(schema, schema, way[:-1])
    return {name for one in found if isinstance(one, Mapping) for name in one.get("properties", {})}


def _kinds(schemas: Sequence[Any]) -> frozenset[str] | None:
    """Return the JSON types of values; None if they may be any."""
    found: set[str] = set()
    for one in schemas:
        kind = one.get("type") if isinstance(one, Mapping) else None
        if kind is None:
            return None
        found |= {kind} if isinstance(kind, str) else set(kind)
    if "number" in found:
        found.add("integer")
    return frozenset(found)


def _type_names(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds - ({"integer"} if "number" in kinds else set())))


# A parameter is bound once: a clause that another one always overrides is an error. A fixed value must match the schema
# of its parameter. A reversible chain needs an undo for each step with an effect.
_BINDINGS: Final = {
    "macro_step": (("arg_value", 4), ("arg_from", 4), ("arg_step", 5), ("arg_kept", 5)),
    "undo_step": (("undo_value", 4), ("undo_in", 4), ("undo_out", 4)),
}
"""Predicates that bind a parameter, by the predicate of the action, in order of precedence."""
_STEP_KINDS: Final = {"macro_step": "", "undo_step": " with an undo action"}
_CHECKED: Final[tuple[Key, ...]] = (("macro_step", 3), ("undo_step", 3), ("arg_value", 4), ("undo_value", 4))


def check_arguments(pack: Pack, statements: Statements, problems: ProblemList) -> None:
    check = _ArgumentCheck(pack, statements, problems)
    for step, predicates in _BINDINGS.items():
        for predicate, arity in predicates:
            check.exist(step, predicate, arity)
        check.fit(step, *predicates[0])
        check.bound_once(predicates)
    check.revert(statements.each("reversible", 1))


def check_derived_rows(
    pack: Pack, base: Base, clauses: Collection[Clause], changeable_predicates: Collection[Key]
) -> list[Diagnostic]:
    """Check rows of the base that are not constants; requests change only the predicates in ``changing``."""
    statements = Statements([clause for clause in clauses if clause.head.key in changeable_predicates])
    derived: dict[Key, list[Statement]] = {}
    for key in (*_CHECKED, ("reversible", 1)):
        rules = [clause for clause in clauses if clause.head.key == key]
        stated = {clause.head.args for clause in rules if clause.is_fact}
        for row in base.rows(key):
            if row not in stated:
                statement = Statement(
                    row, next((rule for rule in rules if _may_derive(rule, row)), None), "the base facts"
                )
                derived.setdefault(key, []).append(statement)
                statements.add(key, statement)
            elif key not in changeable_predicates:
                statements.add(key, Statement(row, None))
    problems = ProblemList()
    check = _ArgumentCheck(pack, statements, problems)
    for step, ((value, arity), *_) in _BINDINGS.items():
        is_static = not {(step, 3), (value, arity)} & set(changeable_predicates)
        check.fit(step, value, arity, derived.get((value, arity), []), error=is_static)
    check.revert(derived.get(("reversible", 1), []))
    return problems.items


class _ArgumentCheck:
    def __init__(self, pack: Pack, statements: Statements, problems: ProblemList) -> None:
        self.pack = pack
        self.statements = statements
        self.problems = problems
        self.hide = make_redactor(secret_values(pack))

    def exist(self, step: str, predicate: str, arity: int) -> None:
        for statement in self.statements.each(predicate, arity):
            tool, number, param = statement.args[:3]
            possible = self._actions(step, tool, number)
            if possible is None:
                continue
            if not possible:
                message = f"{tool} has no step {number}{_STEP_KINDS[step]}"
                self.problems.report(statement, 1, message, f"write a {step} clause for it")
            elif isinstance(param, str) and not any(_takes(action, param) for action in possible):
                known = {name for action in possible for name in action.input_schema.get("properties", {})}
                message = f"{_names(possible)} has no parameter {param!r}"
                self.problems.report(statement, 2, message, did_you_mean(param, known))

    def _actions(self, step: str, tool: object, number: object) -> list[ActionDescription] | None:
        return _possible_actions(self.pack, self.statements, step, tool, number)

    def fit(
        self, step: str, predicate: str, arity: int, which: Iterable[Statement] | None = None, *, error: bool = True
    ) -> None:
        for statement in self.statements.each(predicate, arity) if which is None else which:
            tool, number, param, value = statement.args
            if not isinstance(param, str) or value is None:
                continue
            possible = [one for one in self._actions(step, tool, number) or () if _takes(one, param)]
            problems = [_schema_problem(action, param, value) for action in possible]
            if problems and all(problems):
                message = f"{_names(possible)} does not take this value as {param!r}: {self.hide(problems[0])}"
                self.problems.report(statement, 3, message, "write a value that its schema allows", error=error)

    def bound_once(self, predicates: Iterable[Key]) -> None:
        first: dict[tuple[object, ...], list[tuple[str, Statement]]] = {}
        for predicate, arity in predicates:
            found = [(statement.terms[:3], statement) for statement in self.statements.each(predicate, arity)]
            for terms, statement in found:
                for name, earlier in first.get(terms, ()):
                    if earlier.premises <= statement.premises:
                        message = f"{statement.args[2] or 'the parameter'!r} of step {statement.args[1]} is bound twice"
                        message += f": {name} overrides {predicate}, which has no effect"
                        self.problems.report(statement, 2, message, f"remove one of them{_place(earlier)}")
                        break
            for number, (terms, statement) in enumerate(found):
                self._one_value(predicate, statement, [other for same, other in found[:number] if same == terms])
                first.setdefault(terms, []).append((predicate, statement))

    def _one_value(self, predicate: str, statement: Statement, others: Iterable[Statement]) -> None:
        """Warn about clauses that always hold together and give different values."""
        for other in others:
            together = other.premises <= statement.premises or statement.premises <= other.premises
            if together and (other.premises or statement.premises) and other.terms[3:] != statement.terms[3:]:
                message = (
                    f"{predicate} gives {statement.args[2] or 'the parameter'!r} of step {statement.args[1]} two values"
                )
                fix = f"let one of them hold only where the other does not{_place(other)}"
                self.problems.report(statement, 2, f"{message}, and the tool is not offered then", fix, error=False)
                return

    def revert(self, which: Iterable[Statement]) -> None:
        for statement in which:
            (tool,) = statement.args
            if not isinstance(tool, str) or not self.statements.complete:
                continue
            undone = {one.args[1] for one in self.statements.of(tool, "undo_step", 3)}
            undone |= {one.args[1] for one in self.statements.of(tool, "nothing_to_undo", 2)}
            if None in undone:
                continue
            steps = [one.args for one in self.statements.of(tool, "macro_step", 3)]
            for _, number, name in sorted((row for row in steps if isinstance(row[1], int)), key=lambda row: row[1:2]):
                action = self.pack.actions.get(name) if isinstance(name, str) else None
                if action is not None and action.tier and not action.reversible and number not in undone:
                    message = f"{tool} is declared reversible, and no clause undoes its step {number}, {action.name}"
                    fix = f'write undo_step("{tool}", {number}, "an action"), or nothing_to_undo("{tool}", {number})'
                    self.problems.report(statement, 0, message, fix, error=False)
                    break


def _possible_actions(
    pack: Pack, statements: Statements, step: str, tool: object, number: object
) -> list[ActionDescription] | None:
    """Return the possible actions of a step; None if constants do not determine them."""
    if not isinstance(tool, str) or not isinstance(number, int):
        return None
    found: dict[str, ActionDescription] = {}
    for statement in statements.of(tool, step, 3):
        _, n, action = statement.args
        if n not in (number, None):
            continue
        if not isinstance(action, str) or action not in pack.actions:
            return None
        found[action] = pack.actions[action]
    return list(found.values()) if found or statements.complete else None


def _may_derive(clause: Clause, row: tuple[Value, ...]) -> bool:
    return bool(clause.premises) and all(
        isinstance(term, Variable | Apply) or term == value for term, value in zip(clause.head.args, row, strict=True)
    )


def _names(actions: Iterable[ActionDescription]) -> str:
    return " or ".join(action.name for action in actions)


def _place(statement: Statement) -> str:
    if statement.clause is None or statement.clause.head.span is None:
        return f"; the other is in {statement.file}" if statement.file else ""
    span = statement.clause.head.span
    return f"; the other is in {span.source.name}:{span.line}"


def _takes(action: ActionDescription, param: str) -> bool:
    schema = action.input_schema
    return param in schema.get("properties", {}) or schema.get("additionalProperties", True) is not False


def _schema_problem(action: ActionDescription, param: str, value: Value) -> str | None:
    schema = action.input_schema
    taken = schema.get("properties", {}).get(param, True)
    try:
        given = plain(value)
    except NotPlain as error:
        return f"it cannot be written as JSON: {error}"
    if not isinstance(taken, Mapping):
        return None if taken else "the action takes no value"
    kept = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return next(
        (str(error.message) for error in compile_schema(msgspec.json.encode({**kept, **taken})).iter_errors(given)),
        None,
    )


# A tool is static if only facts define its chain: no rule could add a step or an argument. Its flaws are reported when
# the pack is loaded.
_OF_REQUEST: Final = frozenset({"intent", "intent_param", "client", "client_permission", "client_trust"})


def changeable_predicates(program: Program, readable: Iterable[str]) -> set[Key]:
    """Return the predicates that a request can change; clients may state ``readable``."""
    names = {*readable, *_OF_REQUEST}
    return program.affected_by(key for key in program.predicates if key[0] in names)


def flawed_tools(pack: Pack, base: Base, clauses: Sequence[Clause]) -> Iterator[Diagnostic]:
    """Yield an error for each static tool whose facts make no chain."""
    open_tools = {_tool(clause) for clause in clauses if clause.premises and clause.head.key in PREDICATES.items()}
    if None in open_tools:
        return  # a rule may define any tool
    for clause in clauses:
        tool = _tool(clause)
        if clause.head.key != ("macro", 2) or not isinstance(tool, str) or tool in open_tools:
            continue
        open_tools.add(tool)  # once is enough
        rows = {name: sorted(base.find((name, arity), tool), key=_order) for name, arity in PREDICATES.items()}
        if not rows["macro_step"] or any(action not in pack.actions for _, _, action in rows["macro_step"]):
            continue  # never offered, and reported elsewhere
        try:
            chain(tool, rows, pack.actions)
        except Flaw as flaw:
            span = argument_span(clause.head, 0)
            message = f"the tool {tool!r} is never offered: {flaw.message}"
            yield Diagnostic("analysis", message, span, None, flaw.fix)


def _tool(clause: Clause) -> object:
    first = clause.head.args[0] if clause.head.args else None
    return None if isinstance(first, Variable) else first


def _order(row: tuple[Value, ...]) -> list[object]:
    return [order_key(value) for value in row]
