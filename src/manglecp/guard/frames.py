"""JSON-RPC frames on standard streams, one JSON value per line.

What is decided about has to be what the receiver reads. Parsers differ in duplicate members, in members that differ
only in case (Go's does not distinguish them), and readers in whether a carriage return ends a line (Python's text
streams). Such a frame is *ambiguous*: its bytes must not be forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.wire import Fault, decode

MAX_FRAME_BYTES: Final = 67_108_864
_SPACE: Final = b" \t\r\n"
_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_PARAMS: Final = frozenset({"name", "arguments", "_meta"})
_END_BYTES: Final = 1_024
_MEMBER: Final = rb'\s*"(jsonrpc|id|method)"\s*:\s*(0|[1-9]\d{0,15}|"[ !#-\[\]-~]*")\s*'
_HEAD: Final = re.compile(rb"\{(?:%s,)*" % _MEMBER)
_TAIL: Final = re.compile(rb"(?:,%s)*\}\Z" % _MEMBER)
_TRUE: Final = msgspec.Raw(b"true")
encode: Final = msgspec.json.Encoder().encode


class FrameSplitter:
    """Splits a stream into frames, each with its line feed.

    Of a frame of more than :data:`MAX_FRAME_BYTES` both ends are kept, with a line feed between them: it is *cut*.
    """

    def __init__(self) -> None:
        self._head = b""
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Yield the frames that ``data`` completes."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._append(end)
            yield self.rest() + b"\n"
            self._head, self._pending = b"", bytearray()
        self._append(rest)

    def _append(self, data: bytes) -> None:
        self._pending += data
        if len(self._pending) > MAX_FRAME_BYTES:
            self._head = self._head or bytes(self._pending[:_END_BYTES]) + b"\n"
            del self._pending[:-_END_BYTES]

    def rest(self) -> bytes:
        """Return the incomplete frame at the end of the stream."""
        return self._head + self._pending[-_END_BYTES:] if self._head else bytes(self._pending)


class Frame(NamedTuple):
    """A decoded frame."""

    value: Any
    """Of a frame that is cut or not JSON, the members that its ends show, for a response; None without any."""
    problem: str | None
    """Why the frame is ambiguous, cut or not JSON; None if its bytes can be forwarded."""
    is_json: bool = True
    is_cut: bool = False


def read_frame(frame: bytes) -> Frame:
    """Decode a frame. Of duplicate members the last one counts, as in most parsers."""
    text = frame.strip(_SPACE)
    if _is_cut(frame):
        return Frame(_read_ends(text), f"it has more than {MAX_FRAME_BYTES:,} bytes", is_json=False, is_cut=True)
    problem = "it has a carriage return between two tokens" if b"\r" in text else None
    try:
        value: Any = decode(text)
    except Fault as fault:
        problem = fault.message
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Frame(_read_ends(text), problem, is_json=False)
    if isinstance(value, dict):
        params = value.get("params")
        variant = find_variant(value, _MEMBERS) or (isinstance(params, dict) and find_variant(params, _PARAMS)) or None
        problem = problem or variant
        if problem is None and "method" in value and not value.keys().isdisjoint(("result", "error")):
            problem = "it is a request and a response"
    return Frame(value, problem)


def _is_cut(frame: bytes) -> bool:
    return frame.find(b"\n", 0, -1) >= 0


def _read_ends(text: bytes) -> dict[str, Any] | None:
    """Return the short members before the first and after the last other one: SDKs write a request's id there."""
    head, tail = _HEAD.match(text[:_END_BYTES]), _TAIL.search(text[-_END_BYTES:])
    if head is None or tail is None:
        return None
    found = re.findall(_MEMBER, head[0] + tail[0])
    return {name.decode(): msgspec.json.decode(value) for name, value in found} or None


def find_variant(members: Mapping[str, Any], known: Collection[str]) -> str | None:
    """Return a problem if a member differs only in case from one that is known, or None."""
    unknown = [name for name in members if name not in known]
    folded = {name.casefold() for name in known} if unknown else ()
    variant = next((name for name in unknown if name.casefold() in folded), None)
    return None if variant is None else f"the member {variant!r} differs only in case from another"


_envelope: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_envelope(frame: bytes) -> Frame:
    """Return the members of a frame from a server; of a usual one only the id is decoded."""
    if _is_cut(frame) or frame.find(b"\r", 0, -2) >= 0:  # the end may be a carriage return and a line feed
        return read_frame(frame)
    try:
        members: dict[str, Any] = dict(_envelope.decode(frame))
        if "id" in members:
            members["id"] = msgspec.json.decode(members["id"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_frame(frame)
    is_usual = members.keys() <= _MEMBERS and not ("method" in members and members.keys() & {"result", "error"})
    return Frame(members, None) if is_usual else read_frame(frame)


def is_failure(response: Mapping[str, Any]) -> bool:
    """Return whether a response to ``tools/call`` is an error, or has a result that is one."""
    result = response.get("result")
    if isinstance(result, msgspec.Raw):
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            result = _envelope.decode(result)
    return not isinstance(result, dict) or result.get("isError") in (True, _TRUE)


def error_frame(request_id: Any, code: int, message: str) -> bytes:
    return _line({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def tool_error_frame(request: Mapping[str, Any], text: str) -> bytes:
    """Return the response to ``tools/call`` with an error that the model reads."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    meta = request["params"].get("_meta")
    if isinstance(meta, dict) and "io.modelcontextprotocol/protocolVersion" in meta:  # revision 2026-07-28
        result["resultType"] = "complete"
    return _line({"jsonrpc": "2.0", "id": request["id"], "result": result})


def _line(message: Mapping[str, Any]) -> bytes:
    return encode(message) + b"\n"
