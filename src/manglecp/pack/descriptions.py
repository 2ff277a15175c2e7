"""Validation of the listing of a Python file: its actions, external predicates or fact generators.

A hostile file can forge its listing, so every member is checked: schemas must be small, without references, and valid;
texts must not hold invisible characters. Here, every listed function is called a tool, also a predicate or generator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from manglecp.base.destination import PARAM, canonical_destinations
from manglecp.base.json import Uncanonical, canonical
from manglecp.base.suggestions import closest_match
from manglecp.base.text import find_invisible, find_invisible_in, replace_invisible
from manglecp.pack.diagnostics import Problems
from manglecp.pack.model import ActionDescription, ExternalDescription, GeneratorDescription
from manglecp.pack.secrets import SecretUse
from manglecp.wire import compile_schema

_MAX_SCHEMA: Final = 262_144  # bytes
_MAX_TOOLS: Final = 10_000
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")  # keywords of JSON Schema
_TYPES_WITHOUT_MEMBERS: Final = ("string", "array", "integer", "number", "boolean", "null")  # of JSON Schema
_Word: TypeAlias = Annotated[str, Meta(min_length=1)]
_Identifier: TypeAlias = Annotated[str, Meta(pattern=r"\A[^\W\d]\w{0,127}\Z")]
_Description = TypeVar("_Description", ExternalDescription, GeneratorDescription)


class _Capabilities(msgspec.Struct, frozen=True):
    spawn: tuple[_Word, ...] = ()  # programs that the tool may start
    egress: tuple[_Word, ...] = ()  # destinations that the tool may connect to


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One function of a listing. An absent member has the most cautious value."""

    name: _Identifier
    aid: Annotated[str, Meta(pattern=r"\AAID\.[A-Z0-9_]+\.[A-Z0-9_]+\.v[1-9][0-9]{0,8}\Z")]
    description: Annotated[str, Meta(max_length=10_000)]
    inputs_schema: dict[str, Any] = {}  # no shared state: msgspec copies the default
    outputs_schema: dict[str, Any] = {}
    side_effects: tuple[_Word, ...] = ()
    tier: Annotated[int, Meta(ge=0, le=3)] = 3
    mutates: bool = True
    reversible: bool = False
    idempotent: bool = False
    timeout: Annotated[float, Meta(gt=0, le=86_400)] | None = None  # seconds
    capabilities: _Capabilities = _Capabilities()
    preview: _Identifier | None = None
    tool: bool = True
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 1
    external: dict[str, Any] | None = None
    generator: dict[str, Any] | None = None
    secrets: tuple[SecretUse, ...] = ()


def read_tools(
    params: Mapping[str, str], document: dict[str, Any], file: str, problems: Problems
) -> Iterator[ToolReader]:
    """Yield the valid tools of a listing, with distinct names; ``params`` are the values of the pack's params."""
    tools = document.get("tools")
    if not isinstance(tools, list) or len(tools) > _MAX_TOOLS:
        problems.add(file, "its listing has no tools")
        return
    names: set[str] = set()
    for tool in tools:
        try:
            reader = ToolReader(msgspec.convert(tool, ListedTool), params, file, problems)
        except msgspec.ValidationError as error:
            problems.add(file, f"the listing of a function is invalid: {error}")
            continue
        if reader.tool.name in names:
            reader.report("two functions have that name", "rename one of them")
        names.add(reader.tool.name)
        if reader.valid:
            yield reader


class ToolReader:
    """Checks what the type :class:`ListedTool` cannot express. ``valid`` becomes false when a problem is reported."""

    def __init__(self, tool: ListedTool, params: Mapping[str, str], file: str, problems: Problems) -> None:
        self.tool = tool
        self._file = file
        self._problems = problems
        self.valid = True
        self.egress: tuple[str, ...] = ()
        if (hidden := find_invisible(tool.description, running=True)) is not None:
            self.report(f"its description holds the invisible character {hidden[1]}", "remove it")
        if any(map(find_invisible, (tool.name, *tool.side_effects, *tool.capabilities.spawn))):
            self.report("a word of its listing holds an invisible character", "remove it")
        destinations = []
        for text in tool.capabilities.egress:
            match = PARAM.fullmatch(text)
            if match and match[1] not in params:
                self.report(f"egress: the pack has no param {match[1]}", f"add [params.{match[1]}] to pack.toml")
            else:
                destinations.append(params[match[1]] if match else text)
        try:
            self.egress = canonical_destinations(filter(None, destinations))  # an optional param may be empty
        except ValueError as error:
            self.report(f"egress: {error}")

    def report(self, message: str, fix: str | None = None) -> None:
        self.valid = False
        self._problems.add(self._file, f"{replace_invisible(self.tool.name)}: {message}", fix=fix)

    def read_declaration(
        self, members: dict[str, Any] | None, kind: type[_Description], kind_name: str, fix: str
    ) -> _Description | None:
        """Return the description with these members; None, and report a problem, if they are missing or invalid.

        ``kind_name`` names the kind of tool in messages; ``fix`` is the advice for a tool of another kind.
        """
        if members is None:
            self.report(f"not {kind_name}", fix)
            return None
        tool = self.tool
        common = {"name": tool.name, "aid": tool.aid, "description": tool.description, "spawn": tool.capabilities.spawn}
        try:
            return msgspec.convert({**members, **common, "secrets": tool.secrets, "egress": self.egress}, kind)
        except msgspec.ValidationError:
            self.report(f"its declaration as {kind_name} is invalid")
            return None

    def check_schema(self, name: str, schema: dict[str, Any]) -> None:
        if (reason := _schema_problem(schema)) is not None:
            self.report(f"its {name} {reason}")


def _schema_problem(schema: dict[str, Any]) -> str | None:
    """Return what is wrong with a schema, as the end of a sentence, or None."""
    try:
        schema_bytes = canonical(schema)
    except (Uncanonical, RecursionError):
        return "is not plain JSON"
    if len(schema_bytes) > _MAX_SCHEMA:
        return f"has more than {_MAX_SCHEMA:,} bytes"
    if _has_reference(schema):
        return "refers to another schema"
    if (hidden := find_invisible_in(schema)) is not None:
        return f"holds the invisible character {hidden[1]} at {hidden[0]}"
    try:
        compile_schema(schema_bytes)
    except ValueError:
        return "is not a JSON Schema"
    return None


def _has_reference(schema: object) -> bool:
    """Return whether a reference keyword has a text. A keyword with another value is the name of a property."""
    pending = [schema]
    while pending:
        subschema = pending.pop()
        if isinstance(subschema, dict):
            if any(isinstance(subschema.get(key), str) for key in _REFERENCES):
                return True
            pending += subschema.values()
        elif isinstance(subschema, list):
            pending += subschema
    return False


def read_actions(
    params: Mapping[str, str], document: dict[str, Any], file: str, problems: Problems
) -> dict[str, ActionDescription]:
    """Return the actions by name, in the order of the listing."""
    actions = {}
    for reader in read_tools(params, document, file, problems):
        if reader.tool.external is not None:
            reader.report("an external predicate belongs in externals.py", "move it there")
        if reader.tool.generator is not None:
            reader.report("a fact generator belongs in facts.py", "move it there")
        description = _read_action(reader)
        if reader.valid:
            actions[description.name] = description
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
    if missing_params := sorted(set(preview.input_schema.get("required", ())) - params):
        problems.add(file, f"{subject} requires {missing_params[0]!r}, which {action.name} does not take")
    result = preview.output_schema
    if result.get("type") not in _TYPES_WITHOUT_MEMBERS and result.get("additionalProperties") is not False:
        fix = "let it return a dataclass, a TypedDict or a text"
        problems.add(file, f"{subject} does not declare the members of its result", fix=fix)
    preview_params = set(preview.input_schema.get("properties", {}))
    provided_params = (params & set(result.get("properties", {}))) - preview_params
    if required_params := sorted(provided_params & set(action.input_schema.get("required", ()))):
        fix = f"give {required_params[0]} a default: without an approval there is no preview"
        problems.add(file, f"{subject} provides {required_params[0]!r}, which {action.name} requires", fix=fix)
    return replace(action, previewed=frozenset(provided_params))


def _read_action(reader: ToolReader) -> ActionDescription:
    tool = reader.tool
    reader.check_schema("inputs_schema", tool.inputs_schema)
    reader.check_schema("outputs_schema", tool.outputs_schema)
    schema = tool.inputs_schema
    if schema and not (schema.get("type") == "object" and isinstance(schema.get("properties", {}), dict)):
        reader.report("its inputs_schema does not describe an object")  # an empty schema is valid, too
    return ActionDescription(
        name=tool.name,
        aid=tool.aid,
        description=tool.description,
        input_schema=schema,
        output_schema=tool.outputs_schema,
        effects=tool.side_effects or ("none",),
        tier=tool.tier,
        mutates=tool.mutates,
        reversible=tool.reversible,
        idempotent=tool.idempotent,
        timeout=tool.timeout,
        spawn=tool.capabilities.spawn,
        egress=reader.egress,
        preview=tool.preview,
        tool=tool.tool,
        secrets=tool.secrets,
        concurrency=tool.concurrency,
    )


def read_externals(
    params: Mapping[str, str], document: dict[str, Any], file: str, problems: Problems
) -> dict[str, ExternalDescription]:
    """Return the external predicates by the predicate's name, in the order of the listing."""
    externals: dict[str, ExternalDescription] = {}
    for reader in read_tools(params, document, file, problems):
        fix = "actions belong in actions.py"
        external = reader.read_declaration(reader.tool.external, ExternalDescription, "an external predicate", fix)
        if external is None:
            continue
        if len(external.arguments) != external.arity:
            reader.report("its mode needs a + or - for each argument")
        if external.predicate in externals:
            reader.report(f"{external.predicate} is declared already", "rename one of them")
        if reader.valid:
            externals[external.predicate] = external
    return externals


def read_generators(
    params: Mapping[str, str], document: dict[str, Any], file: str, problems: Problems
) -> dict[str, GeneratorDescription]:
    """Return the generators by name, in the order of the listing."""
    generators: dict[str, GeneratorDescription] = {}
    suppliers: dict[str, str] = {}  # names of generators by predicate
    for reader in read_tools(params, document, file, problems):
        fix = "actions belong in actions.py, external predicates in externals.py"
        generator = reader.read_declaration(reader.tool.generator, GeneratorDescription, "a fact generator", fix)
        if generator is None:
            continue
        for predicate in generator.predicates:
            if predicate in suppliers:
                message = f"{predicate} is supplied by {suppliers[predicate]} already"
                reader.report(message, "remove it from one of them")
            suppliers[predicate] = generator.name
        for name in generator.settings:
            if name not in params:
                similar = closest_match(name, params)
                fix = f"did you mean {similar}?" if similar else f"add [params.{name}] to pack.toml"
                reader.report(f"it takes {name}, and the pack has no param of that name", fix)
        if reader.valid:
            generators[generator.name] = generator
    if not generators and not problems.has_error(file):
        problems.warn(file, "it declares no fact generator", fix='write @facts("PREDICATE") before one')
    return generators
