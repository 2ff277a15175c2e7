"""Requests and answers as bytes.

Parsing is strict where upstream's is not: one JSON value and nothing after it, no NaN, no name twice in one object (two
readers would take two values for it), valid UTF-8. What cannot be parsed is answered and does no harm. Answers are
ASCII, so that no character of a tool's output can end a line early.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from manglecp.toolhost.canonical import unique

__all__ = ["MAX_REQUEST", "OVERSIZE", "RequestError", "encode", "input_text", "named", "parse", "refusal"]

MAX_REQUEST: Final = 10 * 1024 * 1024
"""Bytes of one request, its newline not counted (OPEN-62)."""
OVERSIZE: Final = "stdin exceeds 10MB limit"


class RequestError(ValueError):
    """A request that is JSON and still makes no sense."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=unique).decode
_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_canonical: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def parse(data: bytes | str) -> Any:
    """One JSON value; ValueError if it is anything else, however deep or long."""
    try:
        return _decode(data if isinstance(data, str) else data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def encode(answer: dict[str, Any]) -> bytes:
    """An answer, without a newline."""
    return _encode(answer).encode("ascii")


def refusal(error: str, **members: Any) -> dict[str, Any]:
    """A request that led to no call."""
    return {"ok": False, "error": error, **members}


def named(answer: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """The answer with the name of its call, if the request had one: it lets the other side notice a lost line."""
    name = request.get("call_id")
    if isinstance(name, str):
        answer["call_id"] = name
    return answer


def input_text(request: dict[str, Any]) -> str:
    """The input as JSON text, from ``input_json`` (text) or ``inputs`` (an object), but not from both (OPEN-60)."""
    text = request.get("input_json")
    if "inputs" not in request:
        if text is None:
            return "{}"
        if not isinstance(text, str):
            raise RequestError("input_json is not a string")
        return text
    if text is not None:
        raise RequestError("both input_json and inputs are given")
    if not isinstance(request["inputs"], dict):
        raise RequestError("inputs is not an object")
    try:
        return _canonical(request["inputs"])
    except ValueError:  # 1e999, which is JSON
        raise RequestError("inputs has a number that is too large") from None
