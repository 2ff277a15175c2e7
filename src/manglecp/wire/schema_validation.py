"""Validation against JSON Schema, with bounded work and with errors that do not quote the value.

Schemas are not trusted: references are not fetched, patterns run in linear time, and a schema that does not compile
accepts no value. References that double at every step and large unions could still keep a validator busy, so
:func:`validation_cost` bounds its visits before it runs; above the bound, the value is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from manglecp.base.cache import LruCache
from manglecp.base.json import canonical, escape_token, resolve_pointer
from manglecp.base.text import escape_invisible
from manglecp.wire.errors import SchemaError

MAX_VISITS: Final = 4_000_000
_MAX_REFERENCE_VISITS: Final = 1_000_000
_MAX_PAIRS: Final = 100_000
_NARROW: Final = 2  # up to this breadth the cost is not computed: messages are limited in size

_SAME_VALUE: Final = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_ONE: Final = ("not", "if", "then", "else")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_ANY_ENTRY: Final = ("items", "additionalItems", "contains", "unevaluatedItems")
_UNKNOWN: Final = object()


def validator_of(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """Return a predicate for valid values. The schema must not be changed afterwards."""
    encoded = canonical(schema)
    breadth = _breadth(encoded)
    accepts: Callable[[Any], bool] | None = None

    def validate(value: Any) -> bool:
        nonlocal accepts
        if (breadth is None or breadth > _NARROW) and validation_cost(value, schema) > MAX_VISITS:
            return False
        if accepts is None:
            try:
                accepts = compile_schema(encoded).is_valid
            except ValueError:
                accepts = lambda _: False  # noqa: E731
        try:
            return accepts(value)
        except ValueError:  # nested too deep
            return False

    return validate


# By identity, which is cheaper than by content. The entry holds the schema, so that its id is not reused.
_validators: Final = LruCache[int, tuple[Mapping[str, Any], Callable[[Any], bool]]](4_096)


def is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a value is valid; the validator is cached by the identity of the schema."""
    entry = _validators.get(id(schema))
    if entry is None:
        entry = (schema, validator_of(dict(schema)))
        _validators.put(id(schema), entry)
    return entry[1](value)


@lru_cache(maxsize=1024)
def compile_schema(schema: bytes, mask: str | None = None) -> Any:
    """Compile a schema; its errors show ``mask`` instead of the value. Raises ``ValueError`` for one that is invalid.

    References are not fetched, and patterns run in linear time.
    """
    import jsonschema_rs  # imported late: slow

    limits = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
    return jsonschema_rs.validator_for(schema.decode(), offline=True, mask=mask, pattern_options=limits)


def validation_cost(value: Any, schema: dict[str, Any]) -> float:
    """Return an upper bound of a validator's visits; infinity if that is too many, or unknown."""
    breadth = _breadth(canonical(schema))
    if breadth is None:
        visits = _reference_visits(value, schema)
        return visits if visits <= _MAX_REFERENCE_VISITS else float("inf")
    most = MAX_VISITS // max(breadth, 1)
    size = value_size(value, most)
    return size * breadth if size <= most else float("inf")


@lru_cache(maxsize=256)
def _breadth(encoded: bytes) -> int | None:
    """Return the breadth of a schema; None for one with references, whose cost depends on the value."""
    return None if b'Ref"' in encoded or b'$ref"' in encoded else schema_breadth(msgspec.json.decode(encoded))


def _reference_visits(value: Any, schema: dict[str, Any]) -> float:
    """Return an upper bound of the (schema, value) pairs that a validator visits; infinity if unknown.

    Memoised: a pair that is reached on several paths counts for each, but is computed once.
    """
    counts: dict[tuple[int, int], int] = {}
    waiting: list[tuple[Any, Any, list[tuple[Any, Any]] | None]] = [(schema, value, None)]
    while waiting:
        part, inner, below = waiting.pop()
        pair = (id(part), id(inner))
        if below is not None:
            counts[pair] = min(1 + sum(counts[id(a), id(b)] for a, b in below), _MAX_REFERENCE_VISITS + 1)
            continue
        if pair in counts:
            continue
        if len(counts) > _MAX_PAIRS:
            return float("inf")
        below = list(_pairs_below(part, inner, schema))
        if any(a is _UNKNOWN for a, _ in below):
            return float("inf")
        counts[pair] = 0  # a cycle adds nothing
        waiting.append((part, inner, below))
        waiting += [(a, b, None) for a, b in below]
    return counts[id(schema), id(value)]


def _pairs_below(part: Any, value: Any, root: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    if not isinstance(part, dict):
        return
    for name in _REFERENCES:
        if name in part:
            yield _resolve(part[name], root), value
    for name in (*_SAME_VALUE, "dependentSchemas", "dependencies"):
        yield from ((one, value) for one in _parts(part.get(name)))
    for name in _SAME_VALUE_ONE:
        if name in part:
            yield part[name], value
    if isinstance(value, dict):
        properties = part.get("properties")
        for name, one in properties.items() if isinstance(properties, dict) else ():
            if name in value:
                yield one, value[name]
        for one in (*_parts(part.get("patternProperties")), *(part[name] for name in _ANY_MEMBER if name in part)):
            yield from ((one, entry) for entry in value.values())
    elif isinstance(value, list):
        for one in (*_parts(part.get("prefixItems")), *(part[name] for name in _ANY_ENTRY if name in part)):
            for each in _parts(one) if isinstance(one, list) else (one,):
                yield from ((each, entry) for entry in value)


def _resolve(reference: Any, root: dict[str, Any]) -> Any:
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return _UNKNOWN
    try:
        return resolve_pointer(root, reference[1:])
    except LookupError:
        return _UNKNOWN


_CHARACTERS: Final = 32  # of a text that count as one value: a pattern reads all of them
_MAX_DEPTH: Final = 200


def schema_breadth(schema: Any) -> int:
    """Return the largest number of nodes of a schema without references that visit one value.

    It is 1 for a list of numbers, and 41 for a list of forty alternatives. Breadth times value size bounds the visits.
    """
    widest, waiting = 0, [([schema], 0)]
    while waiting:
        schemas, depth = waiting.pop()
        nodes = _nodes_of_value(schemas)
        widest = max(widest, len(nodes))
        if depth < _MAX_DEPTH:
            waiting += [(below, depth + 1) for below in _children(nodes) if below]
        else:
            widest = max(widest, sum(map(_count_nodes, nodes)))
    return widest


def _nodes_of_value(schemas: Iterable[Any]) -> list[Mapping[str, Any]]:
    """Return these schemas, and those in them that visit the same value."""
    nodes: list[Mapping[str, Any]] = []
    waiting = list(schemas)
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        nodes.append(one)
        for name in (*_SAME_VALUE, "dependentSchemas", "dependencies"):
            waiting += _parts(one.get(name))
        waiting += [one[name] for name in (*_SAME_VALUE_ONE, "propertyNames") if name in one]
    return nodes


def _children(nodes: list[Mapping[str, Any]]) -> Iterable[list[Any]]:
    """Yield the schemas that visit the same member, for each that is named; any other member; an entry."""
    named: dict[str, list[Any]] = {}
    anywhere: list[Any] = []
    entries: list[Any] = []
    for one in nodes:
        properties = one.get("properties")
        for name, part in properties.items() if isinstance(properties, Mapping) else ():
            named.setdefault(name, []).append(part)
        anywhere += _parts(one.get("patternProperties"))
        anywhere += [one[name] for name in _ANY_MEMBER if name in one]
        entries += _parts(one.get("prefixItems"))
        for name in _ANY_ENTRY:
            part = one.get(name)
            entries += part if isinstance(part, list) else [part]
    yield anywhere
    yield entries
    for parts in named.values():
        yield [*parts, *anywhere] if anywhere else parts


def _count_nodes(schema: Any) -> int:
    count, waiting = 0, [schema]
    while waiting:
        one = waiting.pop()
        count += 1
        waiting += _parts(one)
    return count


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []


def value_size(value: Any, most: int) -> int:
    """Count the values in a value, itself among them; not much further than ``most``."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        one = waiting.pop()
        count += 1
        if isinstance(one, str):
            count += len(one) // _CHARACTERS
        elif one is None or isinstance(one, (int, float)):
            continue  # the most frequent case, before the slow check of an abstract class
        elif isinstance(one, list):
            count += max(0, len(one) - most)
            waiting += one[:most]
        elif isinstance(one, (dict, Mapping)):
            waiting += one.values()
            waiting += one
    return count


MAX_ERRORS: Final = 50
_MASK: Final = "The value"
_MAX_TEXT: Final = 200
_TYPES: Final = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
_MAX_LISTED: Final = 2_000  # visits of validators that list errors, per call
_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf", "not", "if")
_INSIDE: Final = frozenset(  # keywords that lead to other schemas, besides properties and additionalProperties
    {
        *("items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "unevaluatedItems"),
        *("patternProperties", "propertyNames", "unevaluatedProperties", "dependentSchemas", "dependencies"),
        *(*_ALTERNATIVES, "then", "else", "$ref", "$defs", "definitions"),
    }
)


def schema_errors(value: Any, schema: Mapping[str, Any]) -> list[SchemaError]:
    """Return the errors of a value, sorted by path; empty if it is valid. Raises ``ValueError`` for a bad schema.

    A path leads to the member that is missing or not allowed, not to the object around it (seed 004, section 4.2).
    """
    if is_valid(value, schema):
        return []
    errors: dict[SchemaError, None] = {}
    for error in _ErrorSearch(schema).errors(value, schema, ""):
        errors[error] = None
        if len(errors) >= MAX_ERRORS:
            break
    return sorted(errors, key=lambda one: (one.path, one.keyword, one.message))


class _ErrorSearch:
    """Finds errors in bounded time.

    A validator lists all errors, with those of all alternatives, before it yields the first. So only small values are
    listed. In a large one, members and entries are searched one by one; without budget, only their paths are reported.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        self._left: float = _MAX_LISTED
        self._validators: dict[int, Callable[[Any], bool]] = {}

    def errors(self, value: Any, schema: Mapping[str, Any], path: str) -> Iterator[SchemaError]:
        whole = {**self._shared, **schema}
        cost = validation_cost(value, whole)
        if cost <= self._left:
            self._left -= cost
            for error in compile_schema(canonical(whole), _MASK).iter_errors(value):
                yield from _convert(error, path)
            return
        keyword = next((one for one in _ALTERNATIVES if one in schema), "$ref")
        if cost == float("inf"):
            yield _error(path, "The value is too complex to be checked", keyword)
            return
        listed = False
        for error in compile_schema(canonical(_shallow(schema)), _MASK).iter_errors(value):
            listed = True
            yield from _convert(error, path)
        for name, part, under in _members(value, schema):
            if not self._is_valid(part, under):
                listed = True
                yield from self.errors(part, under, f"{path}/{escape_token(name)}")
        if not listed:
            yield _error(path, "The value does not fit", keyword)

    def _is_valid(self, value: Any, schema: Mapping[str, Any]) -> bool:
        if id(schema) not in self._validators:  # parts of one schema, which outlives this
            self._validators[id(schema)] = validator_of({**self._shared, **schema})
        return self._validators[id(schema)](value)


def _shallow(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without its requirements on parts of the value."""
    outside = {key: part for key, part in schema.items() if key not in _INSIDE}
    if isinstance(names := outside.get("properties"), Mapping):
        outside["properties"] = dict.fromkeys(names, True)
    if not isinstance(outside.get("additionalProperties"), bool):
        outside.pop("additionalProperties", None)
    return outside


def _members(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(value, Mapping) and isinstance(properties, Mapping):
        for name, under in properties.items():
            if name in value and isinstance(under, Mapping):
                yield name, value[name], under
    elif isinstance(value, list) and isinstance(items, Mapping) and "prefixItems" not in schema:
        for number, entry in enumerate(value):
            yield str(number), entry, items


def _convert(error: Any, above: str) -> Iterator[SchemaError]:
    path = above + "".join(f"/{escape_token(str(part))}" for part in error.instance_path)
    keyword = str(error.kind.name)
    if keyword == "required":
        name = error.kind.property
        yield _error(f"{path}/{escape_token(name)}", f"Required property '{name}' is missing", keyword)
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        for name in error.kind.unexpected:
            yield _error(f"{path}/{escape_token(name)}", f"Property '{name}' is not known", keyword)
    elif keyword == "type":
        expected = " or ".join(error.kind.types) or "another type"
        yield _error(path, f"Expected {expected}, got {_TYPES.get(type(error.instance), 'object')}", keyword)
    else:
        yield _error(path, error.message, keyword)


def _error(path: str, message: str, keyword: str) -> SchemaError:
    path, message = escape_invisible(path)[:_MAX_TEXT], escape_invisible(message)[:_MAX_TEXT]
    return SchemaError(path=path, message=message, keyword=keyword)
