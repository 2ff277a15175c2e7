"""Errors of providers and tools as the typed envelope of the specification: code, message, retryable.

Code and message are read where recorded; prose has no code. Logs rarely record whether a retry can help, so it is
looked up by code in the table below and the row is marked as derived; an unknown code gives None.
"""

from __future__ import annotations

from typing import Any, Final

from manglecp.adapters.conversation import Failure
from manglecp.adapters.records import parse
from manglecp.base.text import normalize_word
from manglecp.wire import JSON, Fault

_AGAIN: Final = (
    # HTTP
    "408", "425", "429", "500", "502", "503", "504", "529",
    # JSON-RPC and MCP: connection closed, request timed out
    "-32000", "-32001",
    # providers
    "api_error", "overloaded", "overloaded_error", "rate_limit", "rate_limit_error", "rate_limit_exceeded",
    "server_error", "timeout", "timeout_error", "too_many_requests", "unavailable",
    # runtimes
    "busy", "connection_refused", "connection_reset", "deadline_exceeded", "econnrefused", "econnreset", "etimedout",
    "network_error", "rate_limited", "service_unavailable", "temporarily_unavailable", "timed_out", "transient",
)  # fmt: skip
_NEVER: Final = (
    # HTTP
    "400", "401", "402", "403", "404", "405", "409", "410", "413", "415", "422",
    # JSON-RPC and MCP: not JSON, no request, no such method, bad arguments, internal, no such resource, cancelled
    "-32700", "-32600", "-32601", "-32602", "-32603", "-32002", "-32800", "cancelled",
    # providers
    "authentication_error", "billing_error", "content_filter", "container_expired", "execution_time_exceeded",
    "file_not_found", "insufficient_quota", "invalid_input", "invalid_pattern", "invalid_prompt", "invalid_request",
    "invalid_request_error", "invalid_tool_input", "max_uses_exceeded", "not_found_error", "output_file_too_large",
    "permission_error", "query_too_long", "request_too_large", "string_not_found", "unsupported_content_type",
    "url_not_accessible", "url_not_allowed", "url_too_long",
    # runtimes
    "already_exists", "conflict", "denied", "eacces", "enoent", "eperm", "forbidden", "invalid_argument",
    "invalid_arguments", "not_found", "outcome_unknown", "permission_denied", "unauthorized", "unsupported",
    "validation_error",
)  # fmt: skip
RETRYABLE: Final = dict.fromkeys(_NEVER, False) | dict.fromkeys(_AGAIN, True)
"""Whether a retry can help, by lower-case error code."""

_CODES: Final = ("errorCode", "error_code", "code", "type")
_MESSAGES: Final = ("errorMessage", "error_message", "message")


def retryable(code: str | None) -> bool | None:
    """Return whether a retry can help; None if the code is unknown."""
    return None if code is None else RETRYABLE.get(normalize_word(code))


def failure_in(payload: JSON, text: str) -> Failure:
    """Return the error that a result describes; ``text`` is the text shown to the model."""
    said = _object(payload, text)
    inner = said.get("error")
    if type(inner) is dict:
        said = inner
    elif type(inner) is str:
        said = {"message": inner, **said}
    codes = _CODES if said is inner else _CODES[:-1]  # outside of an error object, `type` is that of a block
    retry = said.get("retryable")
    return Failure(
        code=next((str(said[name]) for name in codes if _is_code(said.get(name))), None),
        message=next((said[name] for name in _MESSAGES if type(said.get(name)) is str), text) or None,
        retryable=retry if type(retry) is bool else None,
    )


def reports_failure(payload: JSON, text: str) -> bool:
    """Return whether a result describes itself as an error, for providers without an error flag."""
    said = _object(payload, text)
    inner = said.get("error")
    return (
        said.get("isError") is True
        or said.get("is_error") is True
        or _is_code(said.get("errorCode"))
        or _is_code(said.get("error_code"))
        or (type(inner) is dict and any(_is_code(inner.get(name)) for name in _CODES))
    )


def _object(payload: JSON, text: str) -> dict[str, Any]:
    """Return the result as an object, parsed from its text if necessary; ``{}`` if it is none."""
    if type(payload) is dict:
        return payload
    if not text.lstrip().startswith("{"):
        return {}
    try:
        value = parse(text.encode())
    except Fault:
        return {}
    return value if type(value) is dict else {}


def _is_code(value: object) -> bool:
    return (type(value) is str and bool(value.strip())) or type(value) is int
