"""Any message of any type, drawn from its struct."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Literal

import msgspec
from hypothesis import strategies as st

from manglecp.wire.json_schemas import TYPES
from manglecp.wire.messages import (
    LEVEL_MEMBERS,
    SUPPORTED_VERSIONS,
    Auth,
    ErrorPayload,
    FactObject,
    FactObjects,
    MacroTool,
    Message,
    Safety,
)
from manglecp.wire.vocabulary import SCHEMES

__all__ = ["json_values", "message_of", "messages", "texts"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_integers = st.integers(0, 2**63 - 1)
_floats = st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), _floats, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
_objects = st.dictionaries(texts, json_values, max_size=3)
_facts = st.fixed_dictionaries(
    {"pred": texts, "args": st.lists(json_values, max_size=3)},
    optional={"t": st.sampled_from([None, {"at": 5}, {"start": "_", "end": "now"}]), "category": st.just("session")},
)


_NARROWER = {
    "manglecp": st.sampled_from(SUPPORTED_VERSIONS),
    "time_formats": st.sampled_from([("rfc3339",), ("rfc3339", "epoch_ms")]),
    "extensions": st.dictionaries(texts.map(lambda text: f"x-a{text}"), json_values, max_size=2),
    "schemes": st.lists(st.sampled_from(SCHEMES), min_size=1, max_size=2).map(tuple),
}
"""Members of which more is asked than their types say."""


def _of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint, as structs use them."""
    if hint is FactObject:
        return _facts
    if hint is FactObjects:
        return st.lists(_facts, max_size=3)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _limited(args[0], next(arg for arg in args[1:] if isinstance(arg, msgspec.Meta)))
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_of(arg) for arg in args if arg is not msgspec.UnsetType])
    if origin is tuple:
        return st.lists(_of(args[0]), max_size=2).map(tuple)
    if origin is dict:
        return _objects if args[1] is Any else st.dictionaries(texts, _of(args[1]), max_size=2)
    simple = {Any: json_values, str: texts, int: _integers, float: _floats, bool: st.booleans(), type(None): st.none()}
    return simple[hint] if hint in simple else st.deferred(lambda: _struct(hint))


def _limited(kind: Any, meta: msgspec.Meta) -> st.SearchStrategy[Any]:
    """Values of a type with limits."""
    said = meta.extra_json_schema or {}
    if "enum" in said:
        return st.sampled_from(said["enum"])
    if "anyOf" in said:
        return st.sampled_from([*said["anyOf"][0]["enum"], "x-own"])
    if kind is int:
        return st.integers(meta.ge, 2**63 - 1 if meta.le is None else meta.le)  # type: ignore[arg-type]
    if kind is float:
        return st.floats(meta.ge, meta.le)
    return texts.filter(bool) if meta.min_length else _of(kind)


def _struct(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(kind):
        values = _NARROWER[field.name] if field.name in _NARROWER else _of(hints[field.name])
        (required if field.required else optional)[field.name] = values
    if kind is ErrorPayload:  # what details hold belongs to the code
        del optional["details"]
        required["code"] = st.sampled_from(["internal_error", "x-own"])
    if kind is Auth:
        required["schemes"] = optional.pop("schemes")
    drawn = st.fixed_dictionaries(required, optional=optional)
    if kind is MacroTool:
        drawn = drawn.map(_present)
    return drawn.map(lambda members: kind(**members))


def _present(members: dict[str, Any]) -> dict[str, Any]:
    """A tool with the members that its level has."""
    needed, banned = LEVEL_MEMBERS[members["disclosure_level"]]
    full = {"description": "d", "input_schema": {}, "safety": _SAFE}
    kept = {name: value for name, value in members.items() if name not in banned}
    return {**{name: full[name] for name in needed}, **kept}


_SAFE = Safety(requires_user_confirmation=False, side_effects=("none",))


def message_of(kind: type[Message]) -> st.SearchStrategy[Any]:
    return _struct(kind)


messages: st.SearchStrategy[Any] = st.one_of([message_of(kind) for kind in TYPES.values()])
