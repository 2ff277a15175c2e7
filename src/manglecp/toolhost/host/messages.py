"""Requests and answers as bytes.

Parsing is stricter than the C++ host's: one JSON value and nothing after it, no NaN, no repeated name, valid UTF-8.

Answers are UTF-8, or ASCII with escapes if they have a lone surrogate. A line ends at byte 0x0A and nowhere else. An
answer that is too long for a client is replaced by an error, so that the client need not end the host.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from manglecp.toolhost.idempotency import unique

MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024  # the newline not counted
MAX_ANSWER_BYTES: Final = 1024 * 1024  # the newline not counted
REQUEST_TOO_LONG: Final = "stdin exceeds 10MB limit"


class RequestError(ValueError):
    """Valid JSON that is not a valid request."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# ``unique`` raises ValueError for an object with a repeated name.
_decode: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=unique).decode
_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode
_encode_ascii: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_encode_sorted: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def parse(data: bytes | str) -> Any:
    """Return one JSON value; raises ValueError, also for a value that is nested too deeply."""
    try:
        return _decode(data if isinstance(data, str) else data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def encode(answer: dict[str, Any]) -> bytes:
    try:
        return _encode(answer).encode()
    except UnicodeEncodeError:  # a lone surrogate
        return _encode_ascii(answer).encode("ascii")


def answer_too_long(answer: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the error to send in place of ``answer``, which has ``size`` bytes when encoded."""
    reason = f"the answer has {size} bytes; {MAX_ANSWER_BYTES} are allowed"
    return with_call_id(refusal("oversize", reason=reason), answer)


def refusal(error: str, **members: Any) -> dict[str, Any]:
    """Return the answer to a refused or failed request; ``ds_state`` is empty: that of the request was not applied."""
    return {"ok": False, "status": "TOOL_ERROR", "output_json": "{}", "error": error, "ds_state": {}, **members}


def with_call_id(answer: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    """Copy the call id from ``source``, which is the request or another answer to it; return ``answer``.

    By the call id, the client detects a lost line.
    """
    call_id = source.get("call_id")
    if isinstance(call_id, str):
        answer["call_id"] = call_id
    return answer


def input_text(request: dict[str, Any]) -> str:
    """Return the input as JSON text, from ``input_json`` (text) or ``inputs`` (an object); ``{}`` if both are missing.

    Raises :class:`RequestError` if both are given, or one is invalid.
    """
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
        return _encode_sorted(request["inputs"])
    except ValueError:  # a number such as 1e999, which is JSON but was read as infinity
        raise RequestError("inputs has a number that is too large") from None
