"""The JSON Schema (draft 2020-12) of a macro-tool's call arguments (TOOL-08).

A call argument comes from the chain or is declared (``macro_param``). Its schema is the declared one, else that of the
action's parameter. It is required unless it has a default, is ``optional_param``, or is optional for the action.
Parameters of several actions under one name need equal schemas, annotations aside. A tool that declares arguments
does not expose optional parameters of its actions unless it declares them (TOOL-09).

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

_TEXTS: Final = frozenset({"title", "description", "examples", "$comment"})  # annotations, which restrict nothing
_DATA: Final = frozenset({"const", "default", "enum", "examples"})  # keywords whose values are data, not schemas
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose members are schemas by name."""
_ELSEWHERE: Final = frozenset({"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"})
_IN_PLACE: Final = ("not", "if", "then", "else")
_DEEPEST: Final = 100
_MAX_LOOKUPS: Final = 1_000  # limit of definitions applied to one value
_ARGUMENT: Final = "argument "
"""Prefix of the owner of a declared argument's definitions; names of actions have no space."""


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
    """Return the schema; arguments in the order of the chain, then those that only rules read. Raises :class:`Flaw`."""
    definitions = _Definitions()
    properties: dict[str, Any] = {}
    required: dict[str, bool] = {}
    origin: dict[str, ExposedParameter] = {}
    for one in exposed:
        if one.name in declared:
            properties.setdefault(one.name, None)
            continue
        schema = definitions.walk(_property(one), one)
        earlier = properties.setdefault(one.name, schema)
        first = origin.setdefault(one.name, one)
        if earlier is not schema and _bare(earlier) != _bare(schema):
            raise Flaw(
                f"{one.action} and {first.action} take {one.name!r} with different schemas",
                f"declare macro_param(Tool, {one.name!r}, Schema), or bind one of them under another name",
            )
        needed = one.param in one.schema.get("required", ()) and "default" not in schema
        required[one.name] = required.get(one.name, False) or needed
    for name, schema in declared.items():
        properties[_seen(name)] = definitions.declared(name, schema)
        required[name] = "default" not in schema
    result: dict[str, Any] = {"type": "object", "properties": properties}
    if names := [name for name in properties if required[name] and name not in optional]:
        result["required"] = names
    result["additionalProperties"] = False
    if definitions.found:
        result["$defs"] = dict(sorted(definitions.found.items()))
    return _checked(result)


def result_schema(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise Flaw("the schema of the result is not an object", 'write a map such as {"type": "object"}')
    definitions = _Definitions()
    result: dict[str, Any] = definitions.walk(_outside(schema), ExposedParameter("result", "result", "result", schema))
    if definitions.found:
        result["$defs"] = dict(sorted(definitions.found.items()))
    return _checked(result)


def _outside(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in schema.items() if key not in ("$defs", "definitions")}


def _property(one: ExposedParameter) -> dict[str, Any]:
    schema = one.schema.get("properties", {}).get(one.param, {})
    return dict(schema) if isinstance(schema, Mapping) else {} if schema is True else {"not": {}}


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in _TEXTS}


class _Definitions:
    """The needed members of ``$defs``, each under a unique name."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._names: dict[tuple[str, str], str] = {}

    def declared(self, name: str, schema: Any) -> Any:
        if not isinstance(schema, dict):
            raise Flaw(f"the schema of {name!r} is not an object", 'write a map such as {"type": "string"}')
        return self.walk(_outside(schema), ExposedParameter(name, name, f"{_ARGUMENT}{name}", schema))

    def walk(self, schema: Any, one: ExposedParameter, depth: int = 0) -> Any:
        """Return a copy with its references leading here."""
        if not isinstance(schema, Mapping):
            return schema
        if depth > _DEEPEST:
            raise Flaw(f"a schema is nested more than {_DEEPEST} deep")
        walked: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _ELSEWHERE:
                raise Flaw(f"a schema has {key}, which a tool's schema cannot take over", "refer to #/$defs/… only")
            if key == "$ref":
                walked[key] = self._reference(value, one, depth)
            elif isinstance(value, str):
                walked[key] = escape_invisible(value) if key in _TEXTS else _seen(value)
            elif key in _DATA:
                walked[key] = _seen(value)
            elif key in _NAMED and isinstance(value, Mapping):
                walked[key] = {_seen(name): self.walk(part, one, depth + 1) for name, part in value.items()}
            elif isinstance(value, (list, tuple)):
                walked[key] = [self.walk(part, one, depth + 1) for part in value]
            else:
                walked[key] = self.walk(value, one, depth + 1)
        return walked

    def _reference(self, reference: Any, one: ExposedParameter, depth: int) -> str:
        place, _, name = str(reference).rpartition("/")
        kept = one.schema.get(place.removeprefix("#/"), {})
        if place not in ("#/$defs", "#/definitions") or name not in kept:
            raise Flaw(f"a schema refers to {reference!r}, which does not come with it", "write the schema in place")
        known = self._names.get((one.action, name))
        if known is None:
            known = self._names[one.action, name] = self._free(name, one.action)
            self.found[known] = None  # before it is walked: it may refer to itself
            self.found[known] = self.walk(kept[name], one, depth + 1)
        return f"#/$defs/{known}"

    def _free(self, name: str, owner: str) -> str:
        if name not in self.found:
            return name
        if not owner.startswith(_ARGUMENT) and (longer := f"{owner}.{name}") not in self.found:
            return longer
        return next(one for n in itertools.count(2) if (one := f"{name}_{n}") not in self.found)


def _seen(data: Any) -> Any:
    """Return the data unless it has invisible characters: escaping them would change what the schema accepts."""
    if has_invisible(data if isinstance(data, str) else msgspec.json.encode(data).decode()):
        raise Flaw("a schema has a name with characters that cannot be seen")
    return data


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        compile_schema(msgspec.json.encode(schema))
    except ValueError as error:
        problem = str(error).partition("\n")[0]
        raise Flaw(f"a schema is no JSON Schema: {problem}") from None
    _refuse_expansions(schema.get("$defs", {}))
    return schema


def _refuse_expansions(definitions: Mapping[str, Any]) -> None:
    """Raise :class:`Flaw` for definitions that refer to themselves for the same value, or expand exponentially."""
    reached = {name: [one for one in _same_value(schema) if one in definitions] for name, schema in definitions.items()}
    weights: dict[str, int] = {}
    try:
        for name in TopologicalSorter(reached).static_order():
            weights[name] = 1 + sum(weights[one] for one in reached[name])
            if weights[name] > _MAX_LOOKUPS:
                raise Flaw(
                    f"the definition {name!r} of a schema refers to others more than {_MAX_LOOKUPS:,} times in all",
                    "describe the value in fewer ways",
                )
    except CycleError as error:
        message = f"the definition {error.args[1][0]!r} of a schema refers to itself without end"
        raise Flaw(message, "describe a value in it") from None


def _same_value(schema: Any) -> Iterator[str]:
    """Yield the definitions that apply to the same value as the schema, not to a part of it."""
    work = [schema]
    while work:
        one = work.pop()
        if isinstance(one, Mapping):
            if "$ref" in one:
                yield one["$ref"].removeprefix("#/$defs/")
            work += [part for key in _IN_PLACE if isinstance(part := one.get(key), Mapping)]
            work += [part for key in ("allOf", "anyOf", "oneOf") for part in one.get(key, ())]
            work += one.get("dependentSchemas", {}).values()
