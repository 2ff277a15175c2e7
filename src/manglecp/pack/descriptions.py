"""Validation of the listing of a Python file: its actions, external predicates or fact generators.

A hostile file can forge its listing, so every member is checked: schemas must be small, without references, and valid;
texts must not hold invisible characters. Every listed function is called a tool here, whichever of the three it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from manglecp.base.json import Uncanonical, canonical
from manglecp.base.suggestions import closest_match
from manglecp.base.text import find_invisible, find_invisible_in
from manglecp.pack.diagnostics import Problems
from manglecp.pack.model import ActionDescription, ExternalDescription, GeneratorDescription

_AID: Final = re.compile(r"AID\.[A-Z0-9_]+\.[A-Z0-9_]+\.v[1-9][0-9]{0,8}")  # an action id
_NAME: Final = re.compile(r"[^\W\d]\w{0,127}")  # a Python identifier
_MAX_SCHEMA: Final = 262_144  # bytes
_MAX_TOOLS: Final = 10_000
_MAX_DESCRIPTION: Final = 10_000  # characters
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")  # keywords of JSON Schema
_TYPES_WITHOUT_MEMBERS: Final = ("string", "array", "integer", "number", "boolean", "null")  # in JSON Schema
_HIGHEST_TIER: Final = 3  # of actions with dangerous effects
_MAX_TIMEOUT: Final = 86_400.0  # seconds
_Description = TypeVar("_Description", ExternalDescription, GeneratorDescription)


def read_tools(document: dict[str, Any], file: str, problems: Problems) -> Iterator[ToolListing]:
    """Yield the valid tools of a listing, with distinct names."""
    tools = document.get("tools")
    if not isinstance(tools, list) or len(tools) > _MAX_TOOLS:
        problems.add(file, "its listing has no tools")
        return
    seen: set[str] = set()
    for tool in tools:
        # An empty object is reported as a tool without a name.
        listing = ToolListing(tool if isinstance(tool, dict) else {}, file, problems)
        if not listing.valid:
            continue
        if listing.name in seen:
            problems.add(file, f"{listing.name}: two functions have that name", fix="rename one of them")
            continue
        seen.add(listing.name)
        yield listing


class ToolListing:
    """Reads the members of one tool. ``valid`` becomes false when a problem is reported."""

    def __init__(self, tool: dict[str, Any], file: str, problems: Problems) -> None:
        self._tool = tool
        self._file = file
        self._problems = problems
        self.valid = True
        name, aid = tool.get("name"), tool.get("aid")
        self.name: Final = name if isinstance(name, str) and _NAME.fullmatch(name) and not find_invisible(name) else ""
        self.aid: Final = aid if isinstance(aid, str) and _AID.fullmatch(aid) else ""
        if not self.name or not self.aid:
            self.report("a listed function has no name and id")

    def report(self, message: str, fix: str | None = None) -> None:
        self.valid = False
        self._problems.add(self._file, f"{self.name}: {message}" if self.name else message, fix=fix)

    def member(self, key: str) -> Any:
        return self._tool.get(key)

    def description(self) -> str:
        text = self._tool.get("description")
        if not isinstance(text, str) or len(text) > _MAX_DESCRIPTION:
            self.report(f"its description is not a text of at most {_MAX_DESCRIPTION:,} characters")
            return ""
        if (hidden := find_invisible(text, running=True)) is not None:
            self.report(f"its description holds the invisible character {hidden[1]}", "remove it")
        return text

    def texts(self, value: object, what: str) -> tuple[str, ...]:
        """Return the words of a list; none, and report a problem, if it is invalid. The message calls them ``what``."""
        if isinstance(value, list) and all(
            isinstance(text, str) and text and not find_invisible(text) for text in value
        ):
            return tuple(value)
        self.report(f"its {what} are not a list of words")
        return ()

    def spawn(self) -> tuple[str, ...]:
        """Return the programs that the tool may start."""
        capabilities = self._tool.get("capabilities")
        return self.texts(capabilities.get("spawn", []) if isinstance(capabilities, dict) else [], "programs")

    def preview(self) -> str | None:
        name = self._tool.get("preview")
        if name is None or (isinstance(name, str) and _NAME.fullmatch(name)):
            return name
        self.report("its preview is not the name of an action")
        return None

    def flag(self, key: str, default: bool) -> bool:
        value = self._tool.get(key)
        return value if isinstance(value, bool) else default

    def declared(self, key: str, kind: type[_Description], what: str, fix: str) -> _Description | None:
        """Return the description under ``key``; None, and report a problem, if it is missing or invalid.

        ``what`` names the kind of tool in messages; ``fix`` is the advice for a tool of another kind.
        """
        if not isinstance(self._tool.get(key), dict):
            self.report(f"not {what}", fix)
            return None
        members = {"name": self.name, "aid": self.aid, "description": self.description(), "spawn": self.spawn()}
        try:
            return msgspec.convert({**self._tool[key], **members}, kind)
        except msgspec.ValidationError:
            self.report(f"its declaration as {what} is invalid")
            return None

    def schema(self, key: str) -> dict[str, Any]:
        """Return the JSON Schema under ``key``; an empty one, and report a problem, if it is invalid."""
        schema = self._tool.get(key)
        reason = _schema_problem(schema)
        if reason is None:
            assert isinstance(schema, dict)
            return schema
        self.report(f"its {key} {reason}")
        return {}


def _schema_problem(schema: object) -> str | None:
    """Return what is wrong with a schema, as the end of a sentence, or None."""
    if not isinstance(schema, dict):
        return "is not an object"
    try:
        encoded = canonical(schema)
    except (Uncanonical, RecursionError):
        return "is not plain JSON"
    if len(encoded) > _MAX_SCHEMA:
        return f"has more than {_MAX_SCHEMA:,} bytes"
    if _has_reference(schema):
        return "refers to another schema"
    if (hidden := find_invisible_in(schema)) is not None:
        return f"holds the invisible character {hidden[1]} at {hidden[0]}"
    import jsonschema_rs  # slow to import, and only needed for packs with actions

    try:
        # The patterns of a hostile schema must not exhaust memory.
        options = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
        jsonschema_rs.validator_for(encoded.decode(), offline=True, pattern_options=options)
    except ValueError:
        return "is not a JSON Schema"
    return None


def _has_reference(schema: object) -> bool:
    """Return whether a reference keyword has a text. If it has a schema instead, it is the name of a property."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if any(isinstance(part.get(key), str) for key in _REFERENCES):
                return True
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return False


def read_actions(document: dict[str, Any], file: str, problems: Problems) -> dict[str, ActionDescription]:
    """Return the actions by name, in the order of the listing."""
    actions = {}
    for tool in read_tools(document, file, problems):
        if tool.member("external") is not None:
            tool.report("an external predicate belongs in externals.py", "move it there")
        if tool.member("generator") is not None:
            tool.report("a fact generator belongs in facts.py", "move it there")
        description = _action(tool)
        if tool.valid:
            actions[tool.name] = description
    return {name: _with_preview(action, actions, file, problems) for name, action in actions.items()}


def _with_preview(
    action: ActionDescription, actions: dict[str, ActionDescription], file: str, problems: Problems
) -> ActionDescription:
    """Return the action with the parameters that its preview provides, and report an unusable preview."""
    if action.preview is None:
        return action
    subject = f"{action.name}: its preview {action.preview!r}"
    preview = actions.get(action.preview)
    params = set(action.input_schema.get("properties", {}))
    if preview is None:
        similar = closest_match(action.preview, actions)
        problems.add(file, f"{subject} is not an action", fix=f"did you mean {similar}?" if similar else None)
        return action
    if preview.tier > 0:
        problems.add(file, f"{subject} has effects", fix="name an action that only reads")
    if missing := sorted(set(preview.input_schema.get("required", ())) - params):
        problems.add(file, f"{subject} requires {missing[0]!r}, which {action.name} does not take")
    result = preview.output_schema
    if result.get("type") not in _TYPES_WITHOUT_MEMBERS and result.get("additionalProperties") is not False:
        fix = "let it return a dataclass, a TypedDict or a text"
        problems.add(file, f"{subject} does not declare the members of its result", fix=fix)
    preview_params = set(preview.input_schema.get("properties", {}))
    provided = (params & set(result.get("properties", {}))) - preview_params
    if required := sorted(provided & set(action.input_schema.get("required", ()))):
        fix = f"give {required[0]} a default: without an approval there is no preview"
        problems.add(file, f"{subject} provides {required[0]!r}, which {action.name} requires", fix=fix)
    return replace(action, previewed=frozenset(provided))


def _action(tool: ToolListing) -> ActionDescription:
    input_schema = tool.schema("inputs_schema")
    is_object = input_schema.get("type") == "object" and isinstance(input_schema.get("properties", {}), dict)
    if input_schema and not is_object:  # an empty schema admits every object, or was reported already
        tool.report("its inputs_schema does not describe an object")
    tier, timeout = tool.member("tier"), tool.member("timeout")
    return ActionDescription(
        name=tool.name,
        aid=tool.aid,
        description=tool.description(),
        input_schema=input_schema,
        output_schema=tool.schema("outputs_schema"),
        effects=tool.texts(tool.member("side_effects"), "effects") or ("none",),
        tier=tier if type(tier) is int and 0 <= tier <= _HIGHEST_TIER else _HIGHEST_TIER,  # invalid: be cautious
        mutates=tool.flag("mutates", True),
        reversible=tool.flag("reversible", False),
        idempotent=tool.flag("idempotent", False),
        timeout=float(timeout) if type(timeout) in (int, float) and 0 < timeout <= _MAX_TIMEOUT else None,
        spawn=tool.spawn(),
        preview=tool.preview(),
    )


def read_externals(document: dict[str, Any], file: str, problems: Problems) -> dict[str, ExternalDescription]:
    """Return the external predicates by the predicate's name, in the order of the listing."""
    externals: dict[str, ExternalDescription] = {}
    for tool in read_tools(document, file, problems):
        fix = "actions belong in actions.py"
        external = tool.declared("external", ExternalDescription, "an external predicate", fix)
        if external is None:
            continue
        if len(external.arguments) != external.arity:
            tool.report("its mode needs a + or - for each argument")
        if external.predicate in externals:
            tool.report(f"{external.predicate} is declared already", "rename one of them")
        if tool.valid:
            externals[external.predicate] = external
    return externals


def read_generators(
    params: Collection[str], document: dict[str, Any], file: str, problems: Problems
) -> dict[str, GeneratorDescription]:
    """Return the generators by name, in the order of the listing. ``params`` are the names of the pack's params."""
    generators: dict[str, GeneratorDescription] = {}
    suppliers: dict[str, str] = {}  # names of generators by predicate
    for tool in read_tools(document, file, problems):
        fix = "actions belong in actions.py, external predicates in externals.py"
        generator = tool.declared("generator", GeneratorDescription, "a fact generator", fix)
        if generator is None:
            continue
        for predicate in generator.predicates:
            if predicate in suppliers:
                tool.report(f"{predicate} is supplied by {suppliers[predicate]} already", "remove it from one of them")
            suppliers[predicate] = generator.name
        for name in generator.settings:
            if name not in params:
                similar = closest_match(name, params)
                fix = f"did you mean {similar}?" if similar else f"add [params.{name}] to pack.toml"
                tool.report(f"it takes {name}, and the pack has no param of that name", fix)
        if tool.valid:
            generators[generator.name] = generator
    if not generators and not problems.has_error(file):
        problems.warn(file, "it declares no fact generator", fix='write @facts("PREDICATE") before one')
    return generators
