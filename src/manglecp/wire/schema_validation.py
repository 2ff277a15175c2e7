"""Validation against JSON Schema, with bounded work and with errors that do not quote the value.

Schemas are not trusted: references are not fetched, patterns run in linear time, and a schema that does not compile
accepts no value. References that double at every step, and large unions, could still keep a validator busy. Therefore
:func:`validation_cost` estimates the work before the validation, in visits: a visit is the check of one value against
one subschema. A value that needs too many visits is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from manglecp.base.cache import LruCache
from manglecp.base.json import canonical, escape_token, resolve_pointer, value_size
from manglecp.base.text import escape_invisible
from manglecp.wire.errors import SchemaError

MAX_VISITS: Final = 4_000_000
_MAX_REFERENCE_VISITS: Final = 1_000_000  # instead of MAX_VISITS, for schemas with references
_MAX_PAIRS: Final = 100_000  # pairs of subschema and value that the estimate of these visits may compute
_NARROW: Final = 2  # up to this breadth the cost is not computed, because the size of messages is limited

# Keywords whose subschemas apply to the value itself (many subschemas, or one), to any member, or to any entry.
_SAME_VALUE_MANY: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_SAME_VALUE_ONE: Final = ("not", "if", "then", "else")
_ANY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_ANY_ENTRY: Final = ("items", "additionalItems", "contains", "unevaluatedItems")
_MANY: Final = (*_SAME_VALUE_MANY, "patternProperties", "prefixItems")
_COUNTED: Final = (*_MANY, *_SAME_VALUE_ONE, *_ANY_MEMBER, *_ANY_ENTRY, "propertyNames")  # not ``properties``
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_UNRESOLVED: Final = object()


def validator_of(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """Return a function that returns whether a value is valid. The schema must not be changed afterwards."""
    encoded = canonical(schema)
    breadth = _find_breadth(encoded)
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
        except ValueError:  # the value is nested too deeply
            return False

    return validate


# The key is the id() of a schema, because hashing its content is slow. Each entry keeps the schema, and so its id.
_validators: Final = LruCache[int, tuple[Mapping[str, Any], Callable[[Any], bool]]](4_096)


def is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a value is valid. The validator is cached: the schema must not be changed afterwards."""
    entry = _validators.get(id(schema))
    if entry is None:
        entry = (schema, validator_of(dict(schema)))
        _validators.put(id(schema), entry)
    return entry[1](value)


@lru_cache(maxsize=1024)
def compile_schema(schema: bytes, mask: str | None = None) -> Any:
    """Compile an encoded schema; errors show ``mask`` instead of the value. Raises ``ValueError`` if it is invalid."""
    import jsonschema_rs  # late: slow to import

    limits = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
    return jsonschema_rs.validator_for(schema.decode(), offline=True, mask=mask, pattern_options=limits)


def validation_cost(value: Any, schema: dict[str, Any]) -> float:
    """Return an upper bound of a validator's visits; infinity if the bound is too high, or unknown."""
    breadth = _find_breadth(canonical(schema))
    if breadth is None:
        visits = _reference_visits(value, schema)
        return visits if visits <= _MAX_REFERENCE_VISITS else float("inf")
    max_size = MAX_VISITS // max(breadth, 1)
    size = value_size(value, max_size)
    return size * breadth if size <= max_size else float("inf")


@lru_cache(maxsize=256)
def _find_breadth(encoded: bytes) -> int | None:
    """Return the breadth of a schema; None for a schema with references, whose cost depends on the value."""
    return None if b'Ref"' in encoded or b'$ref"' in encoded else schema_breadth(msgspec.json.decode(encoded))


def _reference_visits(value: Any, schema: dict[str, Any]) -> float:
    """Return an upper bound of the (subschema, value) pairs that a validator visits; infinity if unknown.

    A pair that is reached on several paths counts for each path, but is computed once.
    """
    visits: dict[tuple[int, int], int] = {}  # by the ids of a pair, with its children
    # Pairs to compute. A pair gets its child pairs when these are pushed on the stack above it.
    stack: list[tuple[Any, Any, list[tuple[Any, Any]] | None]] = [(schema, value, None)]
    while stack:
        node, part, children = stack.pop()
        pair = (id(node), id(part))
        if children is not None:  # all child pairs are computed
            visits[pair] = min(1 + sum(visits[id(n), id(p)] for n, p in children), _MAX_REFERENCE_VISITS + 1)
            continue
        if pair in visits:
            continue
        if len(visits) > _MAX_PAIRS:
            return float("inf")
        children = list(_child_pairs(node, part, schema))
        if any(child is _UNRESOLVED for child, _ in children):
            return float("inf")
        visits[pair] = 0  # so that a cycle adds no visits
        stack.append((node, part, children))
        stack += [(child, child_part, None) for child, child_part in children]
    return visits[id(schema), id(value)]


def _child_pairs(node: Any, value: Any, root: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the (subschema, value) pairs that a validator visits directly from this pair."""
    if not isinstance(node, dict):
        return
    for name in _REFERENCES:
        if name in node:
            yield _resolve(node[name], root), value
    for name in _SAME_VALUE_MANY:
        yield from ((child, value) for child in _parts(node.get(name)))
    for name in _SAME_VALUE_ONE:
        if name in node:
            yield node[name], value
    if isinstance(value, dict):
        properties = node.get("properties")
        for name, child in properties.items() if isinstance(properties, dict) else ():
            if name in value:
                yield child, value[name]
        for child in (*_parts(node.get("patternProperties")), *(node[name] for name in _ANY_MEMBER if name in node)):
            yield from ((child, member) for member in value.values())
    elif isinstance(value, list):
        for items in (*_parts(node.get("prefixItems")), *(node[name] for name in _ANY_ENTRY if name in node)):
            for child in items if isinstance(items, list) else (items,):
                yield from ((child, entry) for entry in value)


def _resolve(reference: Any, root: dict[str, Any]) -> Any:
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return _UNRESOLVED
    try:
        return resolve_pointer(root, reference[1:])
    except LookupError:
        return _UNRESOLVED


def schema_breadth(schema: Any) -> int:
    """Return the breadth of a schema without references: how many subschemas, at most, apply to the same value.

    It is 1 for a list of numbers, and 41 for a list of forty alternatives. Breadth times value size bounds the visits.
    """
    breadth, stack = 1, [(schema, False)]  # subschemas, and whether another subschema may apply to the same value
    while stack:
        node, is_shared = stack.pop()
        breadth += is_shared
        if isinstance(node, Mapping):
            stack += [(child, is_shared) for child in _parts(node.get("properties"))]
            others = [child for name in _COUNTED if name in node for child in _children(name, node[name])]
            is_alone = len(others) == 1 and "items" in node
            stack += [(child, is_shared or not is_alone) for child in others]
    return breadth


def _children(keyword: str, value: Any) -> list[Any]:
    return _parts(value) if keyword in _MANY or isinstance(value, list) else [value]


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []


MAX_ERRORS: Final = 50
_MASK: Final = "The value"  # in messages, in place of the value
_MAX_TEXT_LENGTH: Final = 200
_TYPES: Final = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
_MAX_LISTING_VISITS: Final = 2_000  # visits by validators that list errors, per call of schema_errors
_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf", "not", "if")
_SUBSCHEMA_KEYWORDS: Final = frozenset(  # except ``properties`` and ``additionalProperties``
    {
        *("items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "unevaluatedItems"),
        *("patternProperties", "propertyNames", "unevaluatedProperties", "dependentSchemas", "dependencies"),
        *(*_ALTERNATIVES, "then", "else", "$ref", "$defs", "definitions"),
    }
)


def schema_errors(value: Any, schema: Mapping[str, Any]) -> list[SchemaError]:
    """Return the errors of a value, sorted by path; empty if it is valid. Raises ``ValueError`` for an invalid schema.

    The path of an error leads to the member that is missing or not allowed, not to its object.
    """
    if is_valid(value, schema):
        return []
    errors: dict[SchemaError, None] = {}
    for error in _ErrorSearch(schema).search(value, schema, ""):
        errors[error] = None
        if len(errors) >= MAX_ERRORS:
            break
    return sorted(errors, key=lambda error: (error.path, error.keyword, error.message))


class _ErrorSearch:
    """A search for errors in bounded time.

    A validator collects all errors, including the errors of all alternatives, before it yields the first. Therefore a
    validator is used only if its cost is within the budget. Otherwise each member and entry is searched on its own; if
    these searches find no error, only the path is reported.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        self._visits_left: float = _MAX_LISTING_VISITS
        self._validators: dict[int, Callable[[Any], bool]] = {}

    def search(self, value: Any, schema: Mapping[str, Any], path: str) -> Iterator[SchemaError]:
        complete_schema = {**self._definitions, **schema}
        cost = validation_cost(value, complete_schema)
        if cost <= self._visits_left:
            self._visits_left -= cost
            for error in compile_schema(canonical(complete_schema), _MASK).iter_errors(value):
                yield from _convert(error, path)
            return
        keyword = next((name for name in _ALTERNATIVES if name in schema), "$ref")
        if cost == float("inf"):
            yield _error(path, "The value is too complex to be checked", keyword)
            return
        has_errors = False
        for error in compile_schema(canonical(_shallow(schema)), _MASK).iter_errors(value):
            has_errors = True
            yield from _convert(error, path)
        for name, part, subschema in _parts_with_schemas(value, schema):
            if not self._is_valid(part, subschema):
                has_errors = True
                yield from self.search(part, subschema, f"{path}/{escape_token(name)}")
        if not has_errors:
            yield _error(path, "The value does not fit", keyword)

    def _is_valid(self, value: Any, schema: Mapping[str, Any]) -> bool:
        if id(schema) not in self._validators:  # the id stays valid: the whole schema outlives this search
            self._validators[id(schema)] = validator_of({**self._definitions, **schema})
        return self._validators[id(schema)](value)


def _shallow(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without its requirements on parts of the value."""
    shallow = {key: part for key, part in schema.items() if key not in _SUBSCHEMA_KEYWORDS}
    if isinstance(names := shallow.get("properties"), Mapping):
        shallow["properties"] = dict.fromkeys(names, True)
    if not isinstance(shallow.get("additionalProperties"), bool):
        shallow.pop("additionalProperties", None)
    return shallow


def _parts_with_schemas(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Yield the name or index, the part and its subschema for each member or entry of a value."""
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(value, Mapping) and isinstance(properties, Mapping):
        for name, subschema in properties.items():
            if name in value and isinstance(subschema, Mapping):
                yield name, value[name], subschema
    elif isinstance(value, list) and isinstance(items, Mapping) and "prefixItems" not in schema:
        for index, entry in enumerate(value):
            yield str(index), entry, items


def _convert(error: Any, base_path: str) -> Iterator[SchemaError]:
    path = base_path + "".join(f"/{escape_token(str(step))}" for step in error.instance_path)
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
    path, message = escape_invisible(path)[:_MAX_TEXT_LENGTH], escape_invisible(message)[:_MAX_TEXT_LENGTH]
    return SchemaError(path=path, message=message, keyword=keyword)
