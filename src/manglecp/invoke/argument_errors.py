"""What is wrong with a value, all of it, in words that repeat nothing of the value.

The path leads to what is wrong: to a member that is missing or too many, as the specification's example has it, and
not to the object around it (seed 004, section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from manglecp.base.json import canonical
from manglecp.base.text import escape_invisible
from manglecp.harness import fitting, looks
from manglecp.invoke.fitting import fits
from manglecp.wire import SchemaError

__all__ = ["MOST", "schema_errors"]

MOST: Final = 50
"""More are not listed."""
_LONGEST: Final = 200
_MOST_LISTED: Final = 2_000
"""How often a validator that lists errors may look at anything, for one answer."""
_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf", "not", "if")
_INSIDE: Final = frozenset(
    {
        *("items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "unevaluatedItems"),
        *("patternProperties", "propertyNames", "unevaluatedProperties", "dependentSchemas", "dependencies"),
        *(*_ALTERNATIVES, "then", "else", "$ref", "$defs", "definitions"),
    }
)
"""Keywords that lead to other schemas; besides the two that name members."""


def schema_errors(value: Any, schema: Mapping[str, Any]) -> list[SchemaError]:
    """Sorted by path; empty if the value fits."""
    if fits(value, schema):
        return []
    found: dict[SchemaError, None] = {}
    for error in _Search(schema).errors(value, schema, ""):
        found[error] = None
        if len(found) >= MOST:
            break
    return sorted(found, key=lambda one: (one.path, one.keyword, one.message))


class _Search:
    """Finds what is wrong, in little time however large the value is.

    A validator that lists errors lists all of them before it gives the first, and for each alternative those of all
    its parts. So it is shown what is small. In what is large, the members and entries that do not fit are looked for
    one by one; and when it has listed enough, it is only said where they are.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        self._left: float = _MOST_LISTED
        self._fitting: dict[int, Callable[[Any], bool]] = {}

    def errors(self, value: Any, schema: Mapping[str, Any], path: str) -> Iterator[SchemaError]:
        """Of a value that does not fit."""
        whole = {**self._shared, **schema}
        effort = looks(value, whole)
        if effort <= self._left:
            self._left -= effort
            for error in _validator(canonical(whole)).iter_errors(value):
                yield from _told(error, path)
            return
        keyword = next((one for one in _ALTERNATIVES if one in schema), "$ref")
        if effort == float("inf"):  # nobody could look at it in reasonable time
            yield _error(path, "The value is too complex to be checked", keyword)
            return
        told = False
        for error in _validator(canonical(_around(schema))).iter_errors(value):
            told = True
            yield from _told(error, path)
        for name, part, under in _parts(value, schema):
            if not self._fits(part, under):
                told = True
                yield from self.errors(part, under, f"{path}/{_escaped(name)}")
        if not told:
            yield _error(path, "The value does not fit", keyword)

    def _fits(self, value: Any, schema: Mapping[str, Any]) -> bool:
        if id(schema) not in self._fitting:  # all of them are parts of one schema, which lasts
            self._fitting[id(schema)] = fitting({**self._shared, **schema})
        return self._fitting[id(schema)](value)


def _around(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema says of a value itself, and not of what is in it."""
    outside = {key: part for key, part in schema.items() if key not in _INSIDE}
    if isinstance(names := outside.get("properties"), Mapping):
        outside["properties"] = dict.fromkeys(names, True)
    if not isinstance(outside.get("additionalProperties"), bool):
        outside.pop("additionalProperties", None)
    return outside


def _parts(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Members and entries whose schemas are told by where they are: the name, the value, the schema."""
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(value, Mapping) and isinstance(properties, Mapping):
        for name, under in properties.items():
            if name in value and isinstance(under, Mapping):
                yield name, value[name], under
    elif isinstance(value, list) and isinstance(items, Mapping) and "prefixItems" not in schema:
        for number, entry in enumerate(value):
            yield str(number), entry, items


def _told(error: Any, above: str) -> Iterator[SchemaError]:
    where, keyword = above + _pointer(error.instance_path), str(error.kind.name)
    if keyword == "required":
        name = error.kind.property
        yield _error(f"{where}/{_escaped(name)}", f"Required property '{name}' is missing", keyword)
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        for name in error.kind.unexpected:
            yield _error(f"{where}/{_escaped(name)}", f"Property '{name}' is not known", keyword)
    elif keyword == "type":
        yield _error(where, f"Expected {_types(error)}, got {_type(error.instance)}", keyword)
    else:
        yield _error(where, error.message, keyword)


def _error(path: str, message: str, keyword: str) -> SchemaError:
    return SchemaError(
        path=escape_invisible(path)[:_LONGEST], message=escape_invisible(message)[:_LONGEST], keyword=keyword
    )


def _types(error: Any) -> str:
    types = error.kind.types
    return " or ".join(types) if types else "another type"


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{_escaped(str(part))}" for part in path)


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


@lru_cache(maxsize=1024)
def _validator(schema: bytes) -> Any:
    import jsonschema_rs  # only who has something to complain about pays for it

    limits = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
    return jsonschema_rs.Draft202012Validator(schema.decode(), offline=True, mask="The value", pattern_options=limits)
