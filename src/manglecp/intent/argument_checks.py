"""Do the arguments that a pack binds go with the actions that take them, and does what is called reversible revert?

* A parameter is bound once. A fixed value goes before a call argument and that before the result of a step, so that a
  clause may stand in where another does not hold. One that can never count is a mistake.
* A fixed value is one that the action takes, by the schema of its parameter.
* A chain can be taken back if each step with an effect can.

What only base facts decide is checked by the same rules over the rows of the base (:func:`check_settled`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.suggestions import did_you_mean
from manglecp.intent.plain_json import NotPlain, plain
from manglecp.intent.said import Complaints, Said, Statements
from manglecp.intent.secret_settings import hiding
from manglecp.mangle import Base, Key, Value
from manglecp.mangle.syntax import Apply, Clause, Variable
from manglecp.pack import ActionDescription, Pack

__all__ = ["check_arguments", "check_settled"]

_BINDINGS: Final = {
    "macro_step": (("arg_value", 4), ("arg_from", 4), ("arg_step", 5), ("arg_kept", 5)),
    "undo_step": (("undo_value", 4), ("undo_in", 4), ("undo_out", 4)),
}
"""Predicates that bind a parameter of an action, by the one that says which action it is. The first goes first."""
_UNDOING: Final = {"macro_step": "", "undo_step": " with an undoing action"}
_SETTLED: Final[tuple[Key, ...]] = (("macro_step", 3), ("undo_step", 3), ("arg_value", 4), ("undo_value", 4))


def check_arguments(pack: Pack, statements: Statements, complaints: Complaints) -> None:
    """What constants tell."""
    check = _Check(pack, statements, complaints)
    for step, predicates in _BINDINGS.items():
        for predicate, arity in predicates:
            check.exist(step, predicate, arity)
        check.fit(step, *predicates[0])
        check.bound_once(predicates)
    check.revert(statements.each("reversible", 1))


def check_settled(pack: Pack, base: Base, clauses: Collection[Clause], changing: Collection[Key]) -> list[Diagnostic]:
    """What the rows of the base tell beyond that. ``changing`` are the predicates that a request can add to or take
    from; of the others the base has all rows there are."""
    statements = Statements([clause for clause in clauses if clause.head.key in changing])
    derived: dict[Key, list[Said]] = {}
    for key in (*_SETTLED, ("reversible", 1)):
        rules = [clause for clause in clauses if clause.head.key == key]
        stated = {clause.head.args for clause in rules if clause.is_fact}
        for row in base.layer.facts[base.compiled.ids[key]].facts:
            if row not in stated:
                said = Said(row, next((rule for rule in rules if _may_derive(rule, row)), None), "the base facts")
                derived.setdefault(key, []).append(said)
                statements.add(key, said)
            elif key not in changing:
                statements.add(key, Said(row, None))
    complaints = Complaints()
    check = _Check(pack, statements, complaints)
    for step, ((value, arity), *_) in _BINDINGS.items():
        sure = not {(step, 3), (value, arity)} & set(changing)
        check.fit(step, value, arity, derived.get((value, arity), []), error=sure)
    check.revert(derived.get(("reversible", 1), []))
    return complaints.problems


class _Check:
    def __init__(self, pack: Pack, statements: Statements, complaints: Complaints) -> None:
        self.pack = pack
        self.statements = statements
        self.complaints = complaints
        self.hide = hiding(pack)

    def exist(self, step: str, predicate: str, arity: int) -> None:
        """There is the step, and its action has the parameter."""
        for said in self.statements.each(predicate, arity):
            tool, number, param = said.args[:3]
            possible = self._actions(step, tool, number)
            if possible is None:
                continue
            if not possible:
                message = f"{tool} has no step {number}{_UNDOING[step]}"
                self.complaints.say(said, 1, message, f"write a {step} clause for it")
            elif isinstance(param, str) and not any(_takes(action, param) for action in possible):
                known = {name for action in possible for name in action.input_schema.get("properties", {})}
                message = f"{_names(possible)} has no parameter {param!r}"
                self.complaints.say(said, 2, message, did_you_mean(param, known))

    def _actions(self, step: str, tool: object, number: object) -> list[ActionDescription] | None:
        """The actions that this step can be; None if constants do not tell."""
        if not isinstance(tool, str) or not isinstance(number, int):
            return None
        found: dict[str, ActionDescription] = {}
        for said in self.statements.of(tool, step, 3):
            _, n, action = said.args
            if n not in (number, None):
                continue
            if not isinstance(action, str) or action not in self.pack.actions:
                return None
            found[action] = self.pack.actions[action]
        return list(found.values()) if found or self.statements.complete else None

    def fit(
        self, step: str, predicate: str, arity: int, which: Iterable[Said] | None = None, *, error: bool = True
    ) -> None:
        """A fixed value is one that the action takes."""
        for said in self.statements.each(predicate, arity) if which is None else which:
            tool, number, param, value = said.args
            if not isinstance(param, str) or value is None:
                continue
            possible = [one for one in self._actions(step, tool, number) or () if _takes(one, param)]
            problems = [_misfit(action, param, value) for action in possible]
            if problems and all(problems):
                message = f"{_names(possible)} does not take this value as {param!r}: {self.hide(problems[0])}"
                self.complaints.say(said, 3, message, "write a value that its schema allows", error=error)

    def bound_once(self, predicates: Iterable[Key]) -> None:
        """No clause stands where another always goes before it."""
        first: dict[tuple[object, ...], list[tuple[str, Said]]] = {}
        for predicate, arity in predicates:
            found = [(said.terms[:3], said) for said in self.statements.each(predicate, arity)]
            for terms, said in found:
                for name, earlier in first.get(terms, ()):
                    if earlier.premises <= said.premises:
                        message = f"{said.args[2] or 'the parameter'!r} of step {said.args[1]} is bound twice"
                        message += f": {name} goes before {predicate}, which never counts"
                        self.complaints.say(said, 2, message, f"remove one of them{_place(earlier)}")
                        break
            for number, (terms, said) in enumerate(found):
                self._one_value(predicate, said, [other for same, other in found[:number] if same == terms])
                first.setdefault(terms, []).append((predicate, said))

    def _one_value(self, predicate: str, said: Said, others: Iterable[Said]) -> None:
        """No two clauses always hold together and give different values. What two facts say is told elsewhere."""
        for other in others:
            together = other.premises <= said.premises or said.premises <= other.premises
            if together and (other.premises or said.premises) and other.terms[3:] != said.terms[3:]:
                message = f"{predicate} gives {said.args[2] or 'the parameter'!r} of step {said.args[1]} two values"
                fix = f"let one of them hold only where the other does not{_place(other)}"
                self.complaints.say(said, 2, f"{message}, and the least of them counts", fix, error=False)
                return

    def revert(self, which: Iterable[Said]) -> None:
        """Each step with an effect has an undoing action, or its own action says that it can be taken back."""
        for said in which:
            (tool,) = said.args
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
                    message = f"{tool} is called reversible, and nothing takes back its step {number}, {action.name}"
                    fix = f'write undo_step("{tool}", {number}, "an action"), or nothing_to_undo("{tool}", {number})'
                    self.complaints.say(said, 0, message, fix, error=False)
                    break


def _may_derive(clause: Clause, row: tuple[Value, ...]) -> bool:
    """Could the row be a conclusion of the rule?"""
    return bool(clause.premises) and all(
        isinstance(term, Variable | Apply) or term == value for term, value in zip(clause.head.args, row, strict=True)
    )


def _names(actions: Iterable[ActionDescription]) -> str:
    return " or ".join(action.name for action in actions)


def _place(said: Said) -> str:
    if said.clause is None or said.clause.head.span is None:
        return f"; the other is in {said.file}" if said.file else ""
    span = said.clause.head.span
    return f"; the other is in {span.source.name}:{span.line}"


def _takes(action: ActionDescription, param: str) -> bool:
    schema = action.input_schema
    return param in schema.get("properties", {}) or schema.get("additionalProperties", True) is not False


def _misfit(action: ActionDescription, param: str, value: Value) -> str | None:
    """Why the action would refuse the value."""
    schema = action.input_schema
    taken = schema.get("properties", {}).get(param, True)
    try:
        given = plain(value)
    except NotPlain as error:
        return f"it cannot be written as JSON: {error}"
    if not isinstance(taken, Mapping):
        return None if taken else "the action takes nothing"
    kept = {key: schema[key] for key in ("$defs", "definitions") if key in schema}  # what it refers to
    return next(
        (str(error.message) for error in _validator(msgspec.json.encode({**kept, **taken})).iter_errors(given)), None
    )


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    """Nothing is fetched, and patterns are those that run in linear time."""
    import jsonschema_rs  # only when a pack has such a value

    limits = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
    return jsonschema_rs.Draft202012Validator(schema.decode(), offline=True, pattern_options=limits)
