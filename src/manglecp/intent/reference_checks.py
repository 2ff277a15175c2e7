"""Does what a pack's clauses refer to exist: steps, parts of results, addresses, and tools that can stand together?

Each of these would otherwise be found when the tool is put together, one flaw at a time, or do nothing silently. Looked
at are constants; a step, a parameter or an intent that a variable may stand for is taken as there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from manglecp.base.suggestions import did_you_mean
from manglecp.intent.context import uri
from manglecp.intent.result_checks import check_results
from manglecp.intent.said import Complaints, Said, Statements
from manglecp.pack import Pack

__all__ = ["check_references", "may_have_step"]

_STEPS: Final = (
    ("arg_step", 5, 3),
    ("step_after", 3, 1),
    ("step_after", 3, 2),
    ("macro_result", 4, 2),
    ("nothing_to_undo", 2, 1),
)
"""Where a clause refers to a step of its tool, arguments of actions aside."""
_POINTERS: Final = (
    *(("arg_step", 5, 4), ("macro_result", 4, 3), ("undo_out", 4, 3), ("extract", 3, 2), ("keep", 3, 2)),
)
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")


def check_references(pack: Pack, statements: Statements, complaints: Complaints) -> None:
    """Complain about whatever is referred to and not there."""
    check = _Check(pack, statements, complaints)
    check.steps()
    check.pointers()
    check.context()
    check.optional()
    check.conflicts()
    check.suggestions()
    check_results(pack, statements, complaints)


def may_have_step(statements: Statements, tool: str, number: int) -> bool:
    """Could the tool have a step of this number? Yes, unless all its steps are known and none has it."""
    steps = statements.of(tool, "macro_step", 3)
    return not statements.complete or any(one.args[1] in (number, None) for one in steps)


class _Check:
    def __init__(self, pack: Pack, statements: Statements, complaints: Complaints) -> None:
        self.pack = pack
        self.statements = statements
        self._say = complaints.say

    def steps(self) -> None:
        for predicate, arity, column in _STEPS:
            for said in self.statements.each(predicate, arity):
                tool, number = said.args[0], said.args[column]
                if not isinstance(tool, str) or not isinstance(number, int):
                    continue
                if not may_have_step(self.statements, tool, number):
                    self._say(said, column, f"{tool} has no step {number}", "write a macro_step clause for it")
                elif predicate != "macro_result" and column > 1 and number == said.args[1]:
                    self._say(said, column, f"step {number} of {tool} waits for itself", "name an earlier step")

    def pointers(self) -> None:
        for predicate, arity, column in _POINTERS:
            for said in self.statements.each(predicate, arity):
                text = said.args[column]
                if isinstance(text, str) and not _POINTER.fullmatch(text):
                    fix = "write '' for the whole, '/a/0' for a part of it, ~0 for ~ and ~1 for / in a name"
                    self._say(said, column, f"{text!r} is no JSON Pointer", fix)

    def context(self) -> None:
        for said in self.statements.each("needs_resource", 4):
            address = said.args[1]
            if isinstance(address, str) and uri(address) is None:
                self._say(said, 1, f"{address!r} is no address that anyone should open", "write a path or a URI")
        for said in self.statements.each("instruction", 3):
            text = said.args[2]
            if isinstance(text, str) and not text.strip():
                self._say(said, 2, "the instruction is empty", "say what to mind", error=False)

    def optional(self) -> None:
        """A parameter that may be left out is one that the tool has."""
        for said in self.statements.each("optional_param", 2):
            tool, name = said.args
            if isinstance(tool, str) and isinstance(name, str) and self.statements.complete:
                known = set(self._parameters(tool))
                if name not in known and None not in known:
                    message = f"{tool} has no parameter {name!r} that could be left out"
                    self._say(said, 1, message, did_you_mean(name, {one for one in known if one}), error=False)

    def _parameters(self, tool: str) -> Iterator[str | None]:
        """What its call arguments may be called; None for one that may be called anything."""
        named = [one.args[1] for one in self.statements.of(tool, "macro_param", 3)]
        named += [one.args[3] for one in self.statements.of(tool, "arg_from", 4)]
        yield from (name if isinstance(name, str) else None for name in named)
        for step in self.statements.of(tool, "macro_step", 3):
            action = self.pack.actions.get(step.args[2]) if isinstance(step.args[2], str) else None
            yield from (None,) if action is None else action.input_schema.get("properties", ())

    def conflicts(self) -> None:
        """Rivals are two tools, of which neither needs the other."""
        rivals: dict[frozenset[object], list[Said]] = {}
        for said in self.statements.each("conflicts", 2):
            if None in said.args:
                continue
            if said.args[0] == said.args[1]:
                self._say(said, 1, f"{said.args[0]} cannot be its own rival", "name another tool", error=False)
            rivals.setdefault(frozenset(said.args), []).append(said)
        for said in self.statements.each("requires", 2):
            tool, needed = said.args
            if tool == needed:
                continue
            if any(other.premises <= said.premises for other in rivals.get(frozenset(said.args), ())):
                message = f"{tool} requires {needed} and is in conflict with it, so that it is never offered"
                self._say(said, 1, message, "remove one of the two", error=False)

    def suggestions(self) -> None:
        listed = {intent.name for intent in self.pack.settings.intents}
        for said in self.statements.each("suggests", 3):
            name = said.args[0]
            if isinstance(name, str) and listed and name not in listed:
                message = f"the intent {name!r} is not listed in pack.toml"
                self._say(said, 0, message, did_you_mean(name, listed), error=False)
