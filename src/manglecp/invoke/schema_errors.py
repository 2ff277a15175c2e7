"""What is wrong with a value, all of it, in words that repeat nothing of the value.

The path leads to what is wrong: to a member that is missing or too many, as the specification's example has it, and
not to the object around it (seed 004, section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from manglecp.harness.canonical import canonical
from manglecp.harness.schemas import tractable
from manglecp.intent.visible import shown
from manglecp.invoke.fitting import fits
from manglecp.wire.errors import SchemaError

__all__ = ["MOST", "schema_errors"]

MOST: Final = 50
"""More are not listed."""
_LONGEST: Final = 200


def schema_errors(value: Any, schema: Mapping[str, Any]) -> list[SchemaError]:
    """Sorted by path; empty if the value fits."""
    if fits(value, schema):
        return []
    found: dict[SchemaError, None] = {}
    for error in _validator(canonical(schema)).iter_errors(value) if tractable(value, dict(schema)) else ():
        found.update(dict.fromkeys(_told(error)))
        if len(found) >= MOST:
            break
    if not found:  # it does not fit because nobody could look at it in reasonable time
        found[SchemaError(path="", message="The value is too complex to be checked", keyword="$ref")] = None
    return sorted(found, key=lambda one: (one.path, one.keyword, one.message))[:MOST]


def _told(error: Any) -> Iterator[SchemaError]:
    where, keyword = _pointer(error.instance_path), str(error.kind.name)
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
    return SchemaError(path=shown(path)[:_LONGEST], message=shown(message)[:_LONGEST], keyword=keyword)


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
