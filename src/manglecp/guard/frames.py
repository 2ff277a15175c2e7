"""JSON-RPC frames on standard streams, one JSON value per line.

What is decided about has to be what the receiver reads. Parsers differ in duplicate members, in members that differ
only in case (Go's does not distinguish them), and readers in whether a carriage return ends a line (Python's text
streams). Such a frame is *ambiguous*: its bytes must not be forwarded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.wire import Fault, decode

MAX_FRAME_BYTES: Final = 67_108_864
_SPACE: Final = b" \t\r\n"
_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_PARAMS: Final = frozenset({"name", "arguments", "_meta"})
encode: Final = msgspec.json.Encoder().encode


class FrameTooLarge(ValueError):
    """A frame has more than :data:`MAX_FRAME_BYTES`."""


class FrameSplitter:
    """Splits a stream into frames, each with its line feed."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return the frames that ``data`` completes. Raises :class:`FrameTooLarge`."""
        *ends, rest = data.split(b"\n")
        frames = [end + b"\n" for end in ends]
        if frames:
            frames[0] = bytes(self._pending) + frames[0]
            self._pending = bytearray(rest)
        else:
            self._pending += rest
        if len(self._pending) > MAX_FRAME_BYTES:
            raise FrameTooLarge(f"a frame has more than {MAX_FRAME_BYTES:,} bytes")
        return frames

    def rest(self) -> bytes:
        """Return the incomplete frame at the end of the stream."""
        return bytes(self._pending)


class Frame(NamedTuple):
    """A decoded frame."""

    value: Any
    """None if the frame is not JSON."""
    problem: str | None
    """Why the frame is ambiguous or not JSON; None if its bytes can be forwarded."""

    @property
    def is_json(self) -> bool:
        return self.value is not None


def read_frame(frame: bytes) -> Frame:
    """Decode a frame. Of duplicate members the last one counts, as in most parsers."""
    text = frame.strip(_SPACE)
    problem = "it has a carriage return between two tokens" if b"\r" in text else None
    try:
        value: Any = decode(text)
    except Fault as fault:
        problem = fault.message
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Frame(None, problem)
    if isinstance(value, dict):
        params = value.get("params")
        variant = find_variant(value, _MEMBERS) or (isinstance(params, dict) and find_variant(params, _PARAMS)) or None
        problem = problem or variant
        if problem is None and "method" in value and not value.keys().isdisjoint(("result", "error")):
            problem = "it is a request and a response"
    return Frame(value, problem)


def find_variant(members: Mapping[str, Any], known: Collection[str]) -> str | None:
    """Return a problem if a member differs only in case from one that is known, or None."""
    unknown = [name for name in members if name not in known]
    folded = {name.casefold() for name in known} if unknown else ()
    variant = next((name for name in unknown if name.casefold() in folded), None)
    return None if variant is None else f"the member {variant!r} differs only in case from another"


_envelope: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_envelope(frame: bytes) -> Frame:
    """Return the members of a frame from a server; of a usual one only the id is decoded."""
    try:
        members: dict[str, Any] = dict(_envelope.decode(frame))
        if "id" in members:
            members["id"] = msgspec.json.decode(members["id"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_frame(frame)
    is_usual = members.keys() <= _MEMBERS and not ("method" in members and members.keys() & {"result", "error"})
    return Frame(members, None) if is_usual else read_frame(frame)


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
