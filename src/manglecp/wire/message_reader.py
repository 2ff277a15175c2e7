"""Parsing of received messages.

Checks run in this order: number of bytes, number of arrays and objects, UTF-8 and JSON, depth, envelope (type, version,
direction, id, payload), payload against its struct. The first check that fails determines the error. The version is
checked early, so that a peer of another version gets ``unsupported_version``. :class:`.Profile` checks the facts later.
Unknown members are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from manglecp.base.gc_pause import gc_paused
from manglecp.base.strict_json import DuplicateKey, Fault, brackets, decode, is_deeper_than, leading_members
from manglecp.wire.clauses import ordinary_facts
from manglecp.wire.errors import WireError, invalid_type, malformed, too_large, unsupported_version
from manglecp.wire.messages import CLIENT_TYPES, SERVER_TYPES, SUPPORTED_VERSIONS, ClientMessage, Message, ServerMessage
from manglecp.wire.validation import check_conditions, convert_message, convert_server_message
from manglecp.wire.values import MAX_NESTING

MAX_DEPTH: Final = 3 * MAX_NESTING + 20
"""Levels of nesting: three for each map, ``{"_type": "map", "value": [[key, value]]}``, and 20 for the message."""
MAX_PARTS: Final = 1_000_000  # arrays and objects in a message: three times as many as 16 MiB of ordinary facts have

_LONG_BYTES: Final = 65_536  # while a longer message is decoded, the garbage collector is paused
_HEAD_BYTES: Final = 4_096  # the part of a too large message that is searched for its id
_BOM: Final = b"\xef\xbb\xbf"
# The values that a client assumes for absent members of a manifest; the structs default to the values of this server.
_MANIFEST_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "protocol": {"conformance_level": 1},
    "capabilities": {"named_args": False},
}


def receive(data: bytes, max_bytes: int, *, structured_facts: bool = False) -> ClientMessage:
    """Return the message of a client. Raises :class:`WireError`, with the id of the request where that is known.

    With ``structured_facts``, facts may be clauses without a body (the extension ``x-structured_facts``).
    """
    type_, envelope = _read_envelope(data, max_bytes, CLIENT_TYPES, SERVER_TYPES)
    try:
        if structured_facts and type(facts := envelope["payload"].get("facts")) is list:
            envelope["payload"]["facts"] = ordinary_facts(facts)
        try:
            return msgspec.convert(envelope, CLIENT_TYPES[type_])
        except msgspec.ValidationError:  # slower: nulls count as absent, and each error is diagnosed
            return convert_message(envelope, CLIENT_TYPES[type_])
    except WireError as error:
        error.id = _response_id(type_, envelope)
        raise


def receive_from_server(data: bytes, max_bytes: int) -> ServerMessage:
    """Return the message of a server. Raises :class:`WireError`, which the client reports and never sends.

    Invalid members of an informational part, such as ``diagnostics``, are skipped.
    """
    type_, envelope = _read_envelope(data, max_bytes, SERVER_TYPES, CLIENT_TYPES)
    if type_ == "manifest":
        for name, defaults in _MANIFEST_DEFAULTS.items():
            if type(part := envelope["payload"].get(name)) is dict:
                part.update((member, value) for member, value in defaults.items() if part.get(member) is None)
    message = convert_server_message(envelope, SERVER_TYPES[type_])
    check_conditions(message)
    return message


def _read_envelope(
    data: bytes, max_bytes: int, types: Mapping[str, type[Message]], other_direction: Mapping[str, type[Message]]
) -> tuple[str, dict[str, Any]]:
    """Return the type, one of ``types``, and the JSON object of a message. The payload is not checked."""
    if len(data) > max_bytes:
        raise _with_leading_id(too_large(len(data), max_bytes), data)
    envelope = _decode_object(data)
    type_ = envelope.get("type")
    try:
        if type(type_) is not str:
            raise malformed(_describe_problem("type", "a string", envelope), "$.type")
        version = envelope.get("manglecp")
        if type(version) is not str:
            raise malformed(_describe_problem("manglecp", "a string", envelope), "$.manglecp")
        if version not in SUPPORTED_VERSIONS:
            raise unsupported_version(version)
        if type_ in other_direction:
            sender = "clients" if other_direction is CLIENT_TYPES else "servers"
            raise invalid_type(type_, types, f"is sent by {sender} only")
        if type_ not in types:
            raise invalid_type(type_, types)
        if "id" not in envelope:
            raise malformed("id is missing", "$.id")
        if type(envelope.get("payload")) is not dict:
            raise malformed(_describe_problem("payload", "an object", envelope), "$.payload")
    except WireError as error:
        error.id = _response_id(type_, envelope)
        raise
    return type_, envelope


def _response_id(type_: Any, envelope: Mapping[str, Any]) -> str | None:
    """Return the id for the error response; None if it is unknown, or if the message is a cancel."""
    id_ = envelope.get("id")
    return id_ if type(id_) is str and id_ and type_ != "cancel" else None


def _with_leading_id(error: WireError, data: bytes) -> WireError:
    """Return the error with the id of the message, if the beginning of ``data`` is JSON with an id (WIRE-06)."""
    members = leading_members(data[:_HEAD_BYTES])
    id_ = _response_id(members.get("type"), members)
    with suppress(UnicodeEncodeError):
        error.id = id_ and id_.encode().decode()
    return error


def _decode_object(data: bytes) -> dict[str, Any]:
    if data.startswith(_BOM):
        raise malformed("The message begins with a byte order mark", "$", "Send UTF-8 without one.")
    # Most messages have too few brackets to exceed a limit, even if the brackets in strings are counted.
    may_exceed = data.count(b"[") + data.count(b"{") > min(MAX_DEPTH, MAX_PARTS)
    outline = brackets(data) if may_exceed else b""
    if len(outline) > 2 * MAX_PARTS:  # two brackets for each array and object
        raise _with_leading_id(malformed(f"The message has more than {MAX_PARTS:,} arrays and objects", "$"), data)
    try:
        with gc_paused(len(data) > _LONG_BYTES):
            decoded = decode(data)
    except Fault as fault:
        suggestion = None if fault.fix is None else f"{fault.fix[:1].upper()}{fault.fix[1:]}."
        error = malformed(f"The message cannot be read: {fault.message}", fault.path, suggestion)
        if isinstance(fault, DuplicateKey) and "type" in fault.unique_members:
            error.id = _response_id(fault.unique_members["type"], fault.unique_members)
        raise error from None
    if type(decoded) is not dict:
        raise malformed("A message is one JSON object", "$")
    if outline and is_deeper_than(MAX_DEPTH, outline):
        raise _with_leading_id(malformed(f"The message is nested more than {MAX_DEPTH} deep", "$"), data)
    return decoded


def _describe_problem(member: str, expected: str, envelope: dict[str, Any]) -> str:
    return f"{member} is not {expected}" if member in envelope else f"{member} is missing"
