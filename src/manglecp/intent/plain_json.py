"""Values as the plain JSON that actions and JSON Schema understand.

Facts on the wire keep every kind apart, because a value has to come back as it went out. What is frozen into a chain or
a schema goes one way only, to readers that know nothing of Mangle: a name is its text, ``/true`` and ``/false`` are
booleans, instants and durations are text, labels of structs lose their slash.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Final

from manglecp.mangle import (
    FALSE,
    TRUE,
    Bytes,
    Duration,
    Float,
    List,
    Map,
    Name,
    Pair,
    Struct,
    Time,
    Value,
    duration_text,
    instant_text,
)

__all__ = ["NotPlain", "plain"]

DEEPEST: Final = 100


class NotPlain(ValueError):
    """A value that no plain JSON stands for."""


def plain(value: Value, depth: int = 0) -> Any:
    """The JSON of a value; an object's members stand in the order of the value."""
    if isinstance(value, (int, str)):
        return value
    if value is TRUE or value is FALSE:
        return value is TRUE
    if isinstance(value, Name):
        return value.text
    if isinstance(value, Float):
        if not math.isfinite(value.value):
            raise NotPlain(f"{value.value} is no number in JSON")
        return value.value
    if isinstance(value, Time):
        return instant_text(value.ns)
    if isinstance(value, Duration):
        return duration_text(value.ns)
    if isinstance(value, Bytes):
        return base64.b64encode(value.data).decode()
    if depth >= DEEPEST:
        raise NotPlain(f"it is nested more than {DEEPEST} deep")
    if isinstance(value, Pair):
        return [plain(value.first, depth + 1), plain(value.second, depth + 1)]
    if isinstance(value, List):
        return [plain(item, depth + 1) for item in value.items]
    return _object(value, depth)


def _object(value: Map | Struct, depth: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, entry in value.entries:
        if isinstance(key, Name):
            name = key.text[1:] if isinstance(value, Struct) else key.text
        elif isinstance(key, str):
            name = key
        else:
            raise NotPlain("an object in JSON has keys that are text")
        if name in members:
            raise NotPlain(f"two keys are both written {name!r} in JSON")
        members[name] = plain(entry, depth + 1)
    return members
