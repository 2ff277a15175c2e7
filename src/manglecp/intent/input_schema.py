"""The JSON Schema (draft 2020-12) of a macro-tool's call arguments (TOOL-08).

A call argument fills parameters of actions, or is declared (``macro_param``), or both. Its schema is the declared one,
or else that of the action's parameter. The argument is required unless it has a default, is ``optional_param``, or is
optional for the action. If it fills parameters of several actions, their schemas must be equal, annotations aside. If a
tool declares any argument, it exposes an optional parameter of its actions only if it declares that, too (TOOL-09).

Schemas are self-contained: needed ``$defs`` are copied under unique names, other references are flaws.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import msgspec

from manglecp.base.text import escape_invisible, has_invisible
from manglecp.intent.definition import Flaw
from manglecp.wire import compile_schema

_ANNOTATIONS: Final = frozenset({"title", "description", "examples", "$comment"})  # these keywords restrict nothing
_DATA: Final = frozenset({"const", "default", "enum", "examples"})  # keywords whose values are data, not schemas
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose members are schemas by name."""
_UNSUPPORTED: Final = frozenset({"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"})
_IN_PLACE: Final = ("not", "if", "then", "else")  # keywords whose schema applies to the same value
_MAX_DEPTH: Final = 100
_MAX_LOOKUPS: Final = 1_000  # limit of definitions applied to one value
_ARGUMENT: Final = "argument "
"""Stands before the name of a declared argument, where the name of an action stands for a parameter of an action; its
space keeps the two apart."""


@dataclass(frozen=True, slots=True)
class ExposedParameter:
    """A parameter of an action that is filled from the call argument ``name``."""

    name: str
    param: str
    action: str
    schema: Mapping[str, Any]  # the input schema of the action


def input_schema(
    exposed: Sequence[ExposedParameter], declared: Mapping[str, Any], optional: Collection[str] = ()
) -> dict[str, Any]:
    """Return the schema; arguments in the order of the chain, then those that only rules read. Raises :class:`Flaw`.

    ``declared`` are the schemas of declared arguments by name, ``optional`` the names that ``optional_param`` lists.
    """
    definitions = _Definitions()
    properties: dict[str, Any] = {}
    required: dict[str, bool] = {}
    origin: dict[str, ExposedParameter] = {}
    for parameter in exposed:
        name = parameter.name
        if name in declared:
            properties.setdefault(name, None)  # keeps the order of the chain; filled below
            continue
        schema = definitions.copy(_property(parameter), parameter)
        earlier = properties.setdefault(name, schema)
        first = origin.setdefault(name, parameter)
        if earlier is not schema and _without_annotations(earlier) != _without_annotations(schema):
            raise Flaw(
                f"{parameter.action} and {first.action} take {name!r} with different schemas",
                f"declare macro_param(Tool, {name!r}, Schema), or bind one of them under another name",
            )
        is_required = parameter.param in parameter.schema.get("required", ()) and "default" not in schema
        required[name] = required.get(name, False) or is_required
    for name, schema in declared.items():
        properties[_visible(name)] = definitions.copy_declared(name, schema)
        required[name] = "default" not in schema
    result: dict[str, Any] = {"type": "object", "properties": properties}
    if names := [name for name in properties if required[name] and name not in optional]:
        result["required"] = names
    result["additionalProperties"] = False
    return definitions.complete(result)


def result_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's result from that in ``macro_output``. Raises :class:`Flaw`."""
    if not isinstance(schema, dict):
        raise Flaw("the schema of the result is not an object", 'write a map such as {"type": "object"}')
    definitions = _Definitions()
    owner = ExposedParameter(name="result", param="result", action="result", schema=schema)
    return definitions.complete(definitions.copy(_without_definitions(schema), owner))


def _without_definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}


def _property(parameter: ExposedParameter) -> dict[str, Any]:
    schema = parameter.schema.get("properties", {}).get(parameter.param, {})
    boolean_schema: dict[str, Any] = {} if schema is True else {"not": {}}  # the schemas true and false
    return dict(schema) if isinstance(schema, Mapping) else boolean_schema


def _without_annotations(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in _ANNOTATIONS}


class _Definitions:
    """Copies schemas, and collects the members of ``$defs`` that they refer to, each under a unique name."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._names: dict[tuple[str, str], str] = {}  # unique names, by action and name in its ``$defs``

    def copy_declared(self, name: str, schema: Any) -> Any:
        if not isinstance(schema, dict):
            raise Flaw(f"the schema of {name!r} is not an object", 'write a map such as {"type": "string"}')
        return self.copy(_without_definitions(schema), ExposedParameter(name, name, f"{_ARGUMENT}{name}", schema))

    def copy(self, schema: Any, owner: ExposedParameter, depth: int = 0) -> Any:
        """Return a copy whose references lead to ``definitions``; references of ``schema`` lead to ``owner.schema``."""
        if not isinstance(schema, Mapping):
            return schema
        if depth > _MAX_DEPTH:
            raise Flaw(f"a schema is nested more than {_MAX_DEPTH} deep")
        schema_copy: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _UNSUPPORTED:
                raise Flaw(f"a schema has {key}, which a tool's schema cannot take over", "refer to #/$defs/… only")
            if key == "$ref":
                schema_copy[key] = self._reference(value, owner, depth)
            elif isinstance(value, str):
                schema_copy[key] = escape_invisible(value) if key in _ANNOTATIONS else _visible(value)
            elif key in _DATA:
                schema_copy[key] = _visible(value)
            elif key in _NAMED and isinstance(value, Mapping):
                schema_copy[key] = {_visible(name): self.copy(part, owner, depth + 1) for name, part in value.items()}
            elif isinstance(value, (list, tuple)):
                schema_copy[key] = [self.copy(part, owner, depth + 1) for part in value]
            else:
                schema_copy[key] = self.copy(value, owner, depth + 1)
        return schema_copy

    def _reference(self, reference: Any, owner: ExposedParameter, depth: int) -> str:
        place, _, name = str(reference).rpartition("/")
        originals = owner.schema.get(place.removeprefix("#/"), {})
        if place not in ("#/$defs", "#/definitions") or name not in originals:
            raise Flaw(f"a schema refers to {reference!r}, which does not come with it", "write the schema in place")
        new_name = self._names.get((owner.action, name))
        if new_name is None:
            new_name = self._names[owner.action, name] = self._unused_name(name, owner.action)
            self.definitions[new_name] = None  # reserved before the copy, which may refer to it
            self.definitions[new_name] = self.copy(originals[name], owner, depth + 1)
        return f"#/$defs/{new_name}"

    def complete(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema with the collected ``$defs``. Raises :class:`Flaw` if it is not a usable JSON Schema."""
        if self.definitions:
            schema["$defs"] = dict(sorted(self.definitions.items()))
        try:
            compile_schema(msgspec.json.encode(schema))
        except ValueError as error:
            problem = str(error).partition("\n")[0]
            raise Flaw(f"a schema is no JSON Schema: {problem}") from None
        _refuse_expansions(self.definitions)
        return schema

    def _unused_name(self, name: str, action: str) -> str:
        if name not in self.definitions:
            return name
        if not action.startswith(_ARGUMENT) and (longer := f"{action}.{name}") not in self.definitions:
            return longer
        return next(candidate for n in itertools.count(2) if (candidate := f"{name}_{n}") not in self.definitions)


def _visible(data: Any) -> Any:
    """Return the data unless it has invisible characters: escaping them would change what the schema accepts."""
    if has_invisible(data if isinstance(data, str) else msgspec.json.encode(data).decode()):
        raise Flaw("a schema has a name with characters that cannot be seen")
    return data


def _refuse_expansions(definitions: Mapping[str, Any]) -> None:
    """Raise :class:`Flaw` for definitions that refer to themselves for the same value, or expand exponentially."""
    applied_names = {
        name: [target for target in _applied_definitions(schema) if target in definitions]
        for name, schema in definitions.items()
    }
    lookups: dict[str, int] = {}
    try:
        for name in TopologicalSorter(applied_names).static_order():
            lookups[name] = 1 + sum(lookups[target] for target in applied_names[name])
            if lookups[name] > _MAX_LOOKUPS:
                raise Flaw(
                    f"the definition {name!r} of a schema refers to others more than {_MAX_LOOKUPS:,} times in all",
                    "describe the value in fewer ways",
                )
    except CycleError as error:
        message = f"the definition {error.args[1][0]!r} of a schema refers to itself without end"
        raise Flaw(message, "describe a value in it") from None


def _applied_definitions(schema: Any) -> Iterator[str]:
    """Yield the definitions that apply to the same value as the schema, not to a part of it."""
    pending = [schema]
    while pending:
        subschema = pending.pop()
        if isinstance(subschema, Mapping):
            if "$ref" in subschema:
                yield subschema["$ref"].removeprefix("#/$defs/")
            pending += [inner for key in _IN_PLACE if isinstance(inner := subschema.get(key), Mapping)]
            pending += [inner for key in ("allOf", "anyOf", "oneOf") for inner in subschema.get(key, ())]
            pending += subschema.get("dependentSchemas", {}).values()
