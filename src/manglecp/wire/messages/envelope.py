"""What every message has: a type, an id, the protocol's version and a payload (companion, section 2.1)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

VERSION: Final = "2026-02-draft"
SUPPORTED_VERSIONS: Final = (VERSION,)

Object: TypeAlias = dict[str, Any]
Time: TypeAlias = str | int
"""RFC 3339 text or milliseconds since 1970; in requests also ``"now"``."""
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Percent: TypeAlias = Annotated[int, Meta(ge=0, le=100)] | Annotated[float, Meta(ge=0, le=100)]
RequestId: TypeAlias = Annotated[str, Meta(min_length=1)]
"""Chosen by the client, repeated in the answer (WIRE-03, WIRE-04)."""
FactObject: TypeAlias = Annotated[Object, Meta(extra_json_schema={"$ref": "#/$defs/Fact"})]
"""One fact as it travels; :mod:`manglecp.wire.facts` knows what it states."""
FactObjects: TypeAlias = Annotated[list[Any], Meta(extra_json_schema={"items": {"$ref": "#/$defs/Fact"}})]
"""The facts of a request. What is wrong with them is found later, all at once."""
Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Level: TypeAlias = Literal["full", "condensed", "minimal"]


def one_of(*names: str) -> Meta:
    """For a text that is one of these."""
    return Meta(pattern=rf"^(?:{'|'.join(names)})$(?![\s\S])", extra_json_schema={"enum": list(names)})


def one_of_or_own(*names: str) -> Meta:
    """For a text that is one of these, or begins with ``x-``."""
    either = [{"enum": list(names)}, {"pattern": r"^x-[\s\S]"}]
    return Meta(pattern=rf"^(?:{'|'.join(names)})$(?![\s\S])|^x-[\s\S]", extra_json_schema={"anyOf": either})


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message of any type; each type is a subclass with its payload. Their docstrings are descriptions in schemas."""

    id: str | None
    manglecp: str = VERSION


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a payload. Members that are not known are skipped (OPEN-58); those that are unset are not written."""


def given(value: Any) -> bool:
    """Was the member sent, and not as null?"""
    return value is not UNSET and value is not None


__all__ = [
    "SUPPORTED_VERSIONS",
    "UNSET",
    "VERSION",
    "Count",
    "FactObject",
    "FactObjects",
    "Level",
    "Message",
    "Name",
    "Object",
    "Part",
    "Percent",
    "RequestId",
    "Time",
    "UnsetType",
    "given",
    "one_of",
    "one_of_or_own",
]
