"""Members of JSON objects that strangers wrote, by the kind that belongs there.

What is absent or null is not there; what is there and of another kind is a :class:`Fault` with the way to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from manglecp.wire import JSON, Fault

__all__ = [
    "array",
    "each_object",
    "entry",
    "identifier",
    "kind_of",
    "mapping",
    "optional_text",
    "texts_of",
    "unwrapped",
]


def entry(value: JSON, *steps: str | int) -> dict[str, Any]:
    """The value, which has to be an object."""
    if type(value) is not dict:
        raise Fault("an object belongs here").inside(*steps)
    return value


def unwrapped(value: JSON) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body of a request or response, which some loggers put under ``body``, and the way to it."""
    outer = entry(value)
    return (entry(outer["body"], "body"), ("body",)) if "body" in outer else (outer, ())


def mapping(holder: dict[str, Any], key: str) -> dict[str, Any] | None:
    """The object under this key, None if there is none."""
    value = holder.get(key)
    return None if value is None else entry(value, key)


def array(holder: dict[str, Any], key: str) -> list[Any]:
    """The list under this key, empty if there is none."""
    value = holder.get(key)
    if value is None:
        return []
    if type(value) is not list:
        raise Fault("a list belongs here").inside(key)
    return value


def each_object(holder: dict[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list and their places in it."""
    for i, value in enumerate(array(holder, key)):
        yield i, entry(value, key, i)


def identifier(holder: dict[str, Any], key: str) -> str:
    """A text that has to be there."""
    value = holder.get(key)
    if type(value) is not str or not value.strip():
        raise Fault(f"{key} is missing, or no text").inside(key)
    return value


def kind_of(holder: dict[str, Any], key: str = "type") -> str | None:
    """The word by which an object says what it is; what is no text says nothing."""
    value = holder.get(key)
    return value if type(value) is str else None


def optional_text(holder: dict[str, Any], key: str) -> str | None:
    """The text under this key, None if there is none."""
    value = holder.get(key)
    if value is not None and type(value) is not str:
        raise Fault("a text belongs here").inside(key)
    return value


def texts_of(value: JSON) -> list[str]:
    """Every text in a value, in order; keys are none of it."""
    if type(value) is str:
        return [value]
    found: list[str] = []
    work: list[Any] = [value]
    while work:
        item = work.pop()
        if type(item) is str:
            found.append(item)
        elif type(item) is dict:
            work += reversed(item.values())
        elif type(item) is list:
            work += reversed(item)
    return found
