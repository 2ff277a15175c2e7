"""Requests and answers as bytes.

Parsing is strict where upstream's is not: one JSON value and nothing after it, no NaN, no repeated name, valid UTF-8.

Answers are UTF-8; only lone surrogates are escaped. A line ends at byte 0x0A and nowhere else. An answer that is too
long for a client is replaced by an error, so that the client need not end the host.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from manglecp.toolhost.idempotency import unique

MAX_REQUEST: Final = 10 * 1024 * 1024  # bytes of one request, its newline not counted (OPEN-62)
MAX_ANSWER: Final = 1024 * 1024  # bytes of one answer, its newline not counted (IPC-36)
OVERSIZE: Final = "stdin exceeds 10MB limit"


class RequestError(ValueError):
    """Valid JSON that is not a valid request."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=unique).decode
_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode
_escape: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_canonical: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def parse(data: bytes | str) -> Any:
    """Return one JSON value; raises ValueError, also for values that are too deep."""
    try:
        return _decode(data if isinstance(data, str) else data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def encode(answer: dict[str, Any]) -> bytes:
    try:
        return _encode(answer).encode()
    except UnicodeEncodeError:
        return _escape(answer).encode("ascii")


def oversize(answer: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the error in place of an answer of so many bytes."""
    reason = f"the answer has {size} bytes; {MAX_ANSWER} are allowed"
    return with_call_id(refusal("oversize", status="TOOL_ERROR", reason=reason), answer)


def refusal(error: str, **members: Any) -> dict[str, Any]:
    """Return the answer to a refused request."""
    return {"ok": False, "error": error, **members}


def with_call_id(answer: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Echo the call id of the request: it lets the client detect a lost line."""
    call_id = request.get("call_id")
    if isinstance(call_id, str):
        answer["call_id"] = call_id
    return answer


def input_text(request: dict[str, Any]) -> str:
    """Return the input as JSON text, from ``input_json`` (text) or ``inputs`` (an object), not from both (OPEN-60)."""
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
