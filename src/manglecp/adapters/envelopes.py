"""Errors as providers and tools write them, as the typed envelope of the specification.

The envelope has a code, a message, and whether trying again can help. A code and a message are read where they are
written; prose has no code, and none is made up for it. Hardly anybody writes down whether trying again can help, so
that is looked up by the code in the table below, and the row is marked as derived. A code that is not in the table has
no answer.
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
"""Whether trying again can help, by the code in lower case."""

_CODES: Final = ("errorCode", "error_code", "code", "type")
_MESSAGES: Final = ("errorMessage", "error_message", "message")


def retryable(code: str | None) -> bool | None:
    """Whether trying again can help, or None where the code does not say."""
    return None if code is None else RETRYABLE.get(normalize_word(code))


def failure_in(payload: JSON, text: str) -> Failure:
    """The error that a result describes; ``text`` is what the model was shown of it."""
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
    """Whether a result says of itself that it is an error, where the provider has no place to say it."""
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
    """The result as an object: it is one, or its text is the JSON of one."""
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
