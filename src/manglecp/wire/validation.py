"""Conversion of JSON to structs, with diagnostics.

msgspec stops at the first error. In that case the JSON is compared with its struct, so that every error is reported
with its path and in the terms of the protocol.

Null counts as an absent member, unless the struct allows null, as for the id of a manifest: an optional member may be
null, a required member may not. Nulls are removed only from JSON that msgspec has refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from manglecp.base.diagnostic import Diagnostic, JsonPath
from manglecp.base.text import quote
from manglecp.mangle import instant_text
from manglecp.wire import messages
from manglecp.wire.errors import WireError, did_you_mean, malformed
from manglecp.wire.values import NS_PER_MS

MAX_DIAGNOSTICS: Final = 50

S = TypeVar("S", bound=msgspec.Struct)
M = TypeVar("M", bound=messages.Message)
_CODE: Final = "malformed_message"
_FIRST_MS: Final = -62_135_596_800_000  # milliseconds since 1970: the start of the year 1, and (below) the end of 9999
_LAST_MS: Final = 253_402_300_799_999
# Patterns for the messages of msgspec's ValidationError.
_MESSAGE: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[`]+)|\[(\d+)\]")
_MISSING_MEMBER: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_UNKNOWN_CHOICE: Final = re.compile(r"Invalid enum value |Expected `str` matching regex ")
_BLANK: Final = re.compile(r"[\s\ufeff]+")
_TYPE_TEXTS: Final = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def convert(data: Any, struct: type[S]) -> S:
    """Return the struct of a JSON value. Raises msgspec's ``ValidationError``."""
    try:
        return msgspec.convert(data, struct)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(data, struct), struct)


def convert_message(envelope: dict[str, Any], message: type[M]) -> M:
    """Return the message of a JSON object. Raises a :class:`WireError` with all errors of the object."""
    try:
        return convert(envelope, message)
    except msgspec.ValidationError as error:
        diagnostics = list(islice(_walk(without_nulls(envelope, message), message, ()), MAX_DIAGNOSTICS))
        raise _malformed_message(diagnostics or [_diagnose(error, message, (), None)]) from None


def convert_server_message(envelope: dict[str, Any], message: type[M]) -> M:
    """Return the message of a server as :func:`convert_message` does, but drop unreadable informational parts."""
    try:
        return convert_message(envelope, message)
    except WireError:
        return convert_message(_drop_invalid(without_nulls(envelope, message), message), message)


def _drop_invalid(data: Any, type_: Any, informational: bool = False) -> Any:
    """Return the JSON with instants as text, and without the invalid members of informational parts.

    Returns UNSET for an informational value that is invalid or lacks a required member.
    """
    if type(data) is int and _is_instant(type_) and _FIRST_MS <= data <= _LAST_MS:
        return instant_text(data * NS_PER_MS)
    struct = struct_of(type_)
    informational = informational or struct in messages.INFORMATIONAL
    if isinstance(data, dict) and struct is not None:
        members = _members(struct)
        parts = {name: _drop_invalid(data[name], members[name].type, informational) for name in data if name in members}
        readable = {name: part for name, part in parts.items() if part is not messages.UNSET}
        tag = struct.__struct_config__.tag_field
        if tag is not None and tag in data:
            readable[tag] = data[tag]
        is_complete = all(name in readable for name, member in members.items() if member.required)
        is_payload = struct is messages.ProgressPayload  # kept, so that an error names the member
        return readable if is_complete or is_payload or not informational else messages.UNSET
    if isinstance(data, list) and (item := item_of(type_)) is not None:
        return [part for value in data if (part := _drop_invalid(value, item, informational)) is not messages.UNSET]
    if informational:
        try:
            msgspec.convert(data, type_)
        except msgspec.ValidationError:
            return messages.UNSET
    return data


@cache
def _is_instant(type_: Any) -> bool:
    metas = (meta for alternative in (type_, *get_args(type_)) for meta in getattr(alternative, "__metadata__", ()))
    return any(isinstance(meta, msgspec.Meta) and (meta.extra or {}).get("instant") is True for meta in metas)


def _malformed_message(diagnostics: list[Diagnostic]) -> WireError:
    """Return the error for the first diagnostic; of several diagnostics, the details list all."""
    first = diagnostics[0]
    error = malformed(first.message, first.place, first.fix)
    if len(diagnostics) > 1 and error.details is not None:
        error.details["x-violations"] = [
            {"path": each.place, "message": each.message, **({} if each.fix is None else {"suggestion": each.fix})}
            for each in diagnostics
        ]
    return error


def split_error(error: msgspec.ValidationError) -> tuple[str, tuple[str | int, ...]]:
    """Return msgspec's message and the steps of its path, which ends at the first dict: msgspec omits keys of dicts."""
    match = _MESSAGE.fullmatch(str(error))
    assert match is not None
    path = (match["path"] or "").partition("[...]")[0]
    return match["what"], tuple(int(index) if index else name for name, index in _STEP.findall(path))


def _walk(value: Any, type_: Any, path: tuple[str | int, ...]) -> Iterator[Diagnostic]:
    """Yield the errors of the part at ``path`` of a message, whose declared type is ``type_``."""
    if isinstance(value, dict) and (struct := struct_of(type_)) is not None:
        for name, member in _members(struct).items():
            if name in value:
                yield from _walk(value[name], member.type, (*path, name))
            elif member.required:
                yield _diagnostic((*path, name), " is missing")
    elif isinstance(value, list) and (item := item_of(type_)) is not None:
        for position, part in enumerate(value):
            yield from _walk(part, item, (*path, position))
    elif isinstance(value, dict) and (entry := entry_of(type_)) is not None:
        key_type, value_type = entry
        for key, part in value.items():
            yield from _walk(key, key_type, (*path, key))
            yield from _walk(part, value_type, (*path, key))
    else:
        try:
            msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            yield _diagnose(error, type_, path, value)


def _diagnose(error: msgspec.ValidationError, type_: Any, base: tuple[str | int, ...], value: Any) -> Diagnostic:
    """Return the diagnostic of an error that msgspec raised for the value at the path ``base`` of a message."""
    what, steps = split_error(error)
    path = (*base, *steps)
    if missing := _MISSING_MEMBER.fullmatch(what):
        return _diagnostic((*path, missing["name"]), " is missing")
    if _UNKNOWN_CHOICE.match(what):
        text = value if isinstance(value, str) else str(value)
        options = _choices(type_)
        if not options and _BLANK.fullmatch(text):
            return _diagnostic(path, " is blank")
        suggestion = did_you_mean(text, options) or f"One of: {', '.join(options)}."
        return _diagnostic(path, f" has an unknown value {quote(text)}", suggestion if options else None)
    return _diagnostic(path, f": {_in_words(what)}")


def _choices(type_: Any) -> list[str]:
    """Return the words that a text of this type may be; none if it may be any text."""
    words: list[str] = []
    for alternative in (type_, *get_args(type_)):
        if get_origin(alternative) is Literal:
            words += sorted(word for word in get_args(alternative) if isinstance(word, str))
        for meta in getattr(alternative, "__metadata__", ()):
            schema = (isinstance(meta, msgspec.Meta) and meta.extra_json_schema) or {}
            for option in (schema, *schema.get("anyOf", ())):
                words += option.get("enum", ())
    return words


def _diagnostic(path: tuple[str | int, ...], predicate: str, fix: str | None = None) -> Diagnostic:
    """Return the diagnostic whose message is the path and ``predicate``, such as " is missing"."""
    location = JsonPath(path)
    return Diagnostic(_CODE, f"{str(location).removeprefix('$.')}{predicate}", location, fix=fix)


def _in_words(what: str) -> str:
    """Rewrite ``Expected `int | null`, got `str``` as ``expected a whole number or null, got a string``."""
    words = re.sub(r"`([^`]*)`", lambda m: " or ".join(_TYPE_TEXTS.get(t, t) for t in m[1].split(" | ")), what)
    return words[:1].lower() + words[1:]


def check_conditions(message: messages.ServerMessage) -> None:
    """Raise a :class:`WireError` if a server's message lacks a member that another of its members requires.

    Structs cannot express these conditions. ``json_schemas`` has the same conditions; a test compares them. The schemas
    also forbid members at some disclosure levels, but readers accept such members.
    """
    diagnostics = list(islice(_contradictions(message), MAX_DIAGNOSTICS))
    if diagnostics:
        raise _malformed_message(diagnostics)


def _contradictions(message: messages.ServerMessage) -> Iterator[Diagnostic]:
    if isinstance(message, messages.Manifest):
        payload = message.payload
        if "rfc3339" not in payload.facts_profile.time_formats:
            path = ("payload", "facts_profile", "time_formats")
            yield _diagnostic(path, ": rfc3339 is missing, which every server takes")
        if payload.auth.required and (payload.auth.schemes is messages.UNSET or not payload.auth.schemes):
            path = ("payload", "auth", "schemes")
            yield _diagnostic(path, ": where authentication is required, its schemes are needed too")
    elif isinstance(message, messages.IntentResponse):
        for position, tool in enumerate(message.payload.macro_tools):
            yield from _level_contradictions(tool, ("payload", "macro_tools", position))


def _level_contradictions(tool: messages.MacroTool, path: tuple[str | int, ...]) -> Iterator[Diagnostic]:
    level = tool.disclosure_level
    for member in sorted(messages.LEVEL_MEMBERS[level].required):
        if getattr(tool, member) is messages.UNSET:
            yield _diagnostic((*path, member), f": {member} is missing, which a {level} tool has")


def without_nulls(data: Any, type_: Any) -> Any:
    """Return the JSON without the members that are null although their declared type does not allow null."""
    if isinstance(data, dict) and (struct := struct_of(type_)) is not None:
        members = _members(struct)
        remaining = {}
        for name, value in data.items():
            member = members.get(name)
            if value is not None:
                remaining[name] = value if member is None else without_nulls(value, member.type)
            elif member is None or _is_nullable(member.type):
                remaining[name] = None
        return remaining
    if isinstance(data, list) and (item := item_of(type_)) is not None:
        return [without_nulls(part, item) for part in data]
    return data


@cache
def _members(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


@cache
def _is_nullable(type_: Any) -> bool:
    return type_ is None or type(None) in (type_, *get_args(type_))


@cache
def struct_of(type_: Any) -> type[msgspec.Struct] | None:
    """Return the one struct among a type and its alternatives, or None."""
    structs = [t for t in (type_, *get_args(type_)) if isinstance(t, type) and issubclass(t, msgspec.Struct)]
    return structs[0] if len(structs) == 1 and get_origin(type_) is not tuple else None


@cache
def item_of(type_: Any) -> Any:
    """Return the item type of ``tuple[T, ...]``, which may be an alternative of the type, or None."""
    for alternative in (type_, *get_args(type_)):
        args = get_args(alternative)
        if get_origin(alternative) is tuple and len(args) == 2 and args[1] is ...:
            return args[0]
    return None


@cache
def entry_of(type_: Any) -> tuple[Any, Any] | None:
    """Return the key type and the value type of a dict, which may be an alternative of the type, or None."""
    for alternative in (type_, *get_args(type_)):
        if get_origin(alternative) is dict:
            key, value = get_args(alternative)
            return key, value
    return None
