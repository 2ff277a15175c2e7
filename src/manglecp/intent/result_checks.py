"""Do results have the parts that clauses take from them?

The schema of what an action returns says which parts there can be. A way that leads to none of them leads nowhere in
every run: a step that waits for what it finds can only fail, and anything else gets nothing, silently. A part may be of
a kind that the parameter does not take. Only what a schema rules out is told; where it leaves something open, it counts
as there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from manglecp.base.suggestions import did_you_mean
from manglecp.intent.said import Complaints, Said, Statements
from manglecp.pack import ActionDescription, Pack

__all__ = ["check_results"]

_DEFINITIONS: Final = ("#/$defs/", "#/definitions/")
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_ENTRY: Final = re.compile("0|[1-9][0-9]{0,8}")
_DEEPEST: Final = 32


def check_results(pack: Pack, statements: Statements, complaints: Complaints) -> None:
    """Complain about parts of results that no run has."""
    check = _Check(pack, statements, complaints)
    for said in statements.each("arg_step", 5):
        tool, number, param, source, pointer = said.args
        taking = check.actions(tool, "macro_step", number)
        check.part(said, 4, check.actions(tool, "macro_step", source), pointer, taking, param)
    for said in statements.each("undo_out", 4):
        tool, number, param, pointer = said.args
        taking = check.actions(tool, "undo_step", number)
        check.part(said, 3, check.actions(tool, "macro_step", number), pointer, taking, param)
    for said in statements.each("macro_result", 4):
        tool, _, number, pointer = said.args
        check.part(said, 3, check.actions(tool, "macro_step", number), pointer, error=False)
    for predicate in ("extract", "keep"):
        for said in statements.each(predicate, 3):
            action, _, pointer = said.args
            known = [pack.actions[action]] if isinstance(action, str) and action in pack.actions else []
            check.part(said, 2, known, pointer, error=False)


class _Check:
    def __init__(self, pack: Pack, statements: Statements, complaints: Complaints) -> None:
        self.pack = pack
        self.statements = statements
        self.complaints = complaints

    def actions(self, tool: object, step: str, number: object) -> list[ActionDescription]:
        """The actions that this step can be; none if constants do not tell."""
        if not isinstance(tool, str) or not isinstance(number, int) or not self.statements.complete:
            return []
        names = [one.args[2] for one in self.statements.of(tool, step, 3) if one.args[1] in (number, None)]
        known = [self.pack.actions.get(name) for name in names if isinstance(name, str)]
        return [one for one in known if one is not None] if len(known) == len(names) and None not in known else []

    def part(
        self,
        said: Said,
        column: int,
        actions: Sequence[ActionDescription],
        pointer: object,
        taking: Sequence[ActionDescription] = (),
        param: object = None,
        *,
        error: bool = True,
    ) -> None:
        """There is such a part, and the parameter takes what it is."""
        if not isinstance(pointer, str) or not actions or any(not one.output_schema for one in actions):
            return
        way = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        ends = [_follow(one.output_schema, one.output_schema, way) for one in actions]
        names = " or ".join(one.name for one in actions)
        if not any(ends):
            known = {name for one in actions for name in _members(one.output_schema, way)}
            message = f"nothing that {names} returns has {pointer!r}"
            self.complaints.say(said, column, message, did_you_mean(way[-1], known) if known else None, error=error)
            return
        given = _kinds([kinds for found in ends for kinds in found])
        wanted = _kinds([kinds for one in taking for kinds in self._taken(one, param)])
        if given and wanted and not given & wanted:
            what = f"{pointer!r} of what {names} returns" if pointer else f"what {names} returns"
            message = f"{what} is of type {_told(given)}, and {param!r} takes {_told(wanted)}"
            self.complaints.say(said, column, message, "take another part of the result", error=error)

    def _taken(self, action: ActionDescription, param: object) -> list[Any]:
        return _follow(action.input_schema, action.input_schema, [str(param)])


def _follow(schema: Any, root: Mapping[str, Any], way: Sequence[str], depth: int = 0) -> list[Any]:
    """The schemas of what can be at the end of a way; none if nothing can be there."""
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
    """What a schema can stand for; True for anything, and nothing for what no value fits."""
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
    """What there is where the way was lost last."""
    found = _follow(schema, schema, way[:-1])
    return {name for one in found if isinstance(one, Mapping) for name in one.get("properties", {})}


def _kinds(schemas: Sequence[Any]) -> frozenset[str] | None:
    """The JSON types that values may have; None if they may be anything."""
    found: set[str] = set()
    for one in schemas:
        kind = one.get("type") if isinstance(one, Mapping) else None
        if kind is None:
            return None
        found |= {kind} if isinstance(kind, str) else set(kind)
    if "number" in found:
        found.add("integer")
    return frozenset(found)


def _told(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds - ({"integer"} if "number" in kinds else set())))
