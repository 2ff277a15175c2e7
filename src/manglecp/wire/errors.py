"""The error registry: every error of the protocol (MangleCP specification 09).

Each code has an HTTP status, a flag whether the client can recover, and the possible members of ``details``. Custom
codes begin with ``x-``. Text that a client sent is truncated, so that errors stay small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.suggestions import closest_match
from manglecp.base.text import quote, truncate
from manglecp.wire.messages import SUPPORTED_VERSIONS, UNSET, ErrorMessage, ErrorPayload, Object, UnsetType


class CodeRow(NamedTuple):
    """The row of one code: its HTTP ``status``, and the names of the members that ``details`` may have."""

    status: int
    recoverable: bool
    meaning: str
    details: tuple[str, ...] = ()


# Names of members of ``details``, for the rows of CODES.
_PLACE: Final = ("path", "suggestion")
_VIOLATIONS: Final = ("violations",)
_EVENTS: Final = ("events", "x-events_omitted")
_RUN: Final = ("reason", "step", "action", "code", "cause", "effects", "state_delta", *_EVENTS, "run_id")
_BUDGET: Final = ("budget", "partial_results_available", "suggestion")

CODES: Final[Mapping[str, CodeRow]] = {
    "unsupported_version": CodeRow(
        400, True, "the protocol version is not supported", ("requested_version", "supported_versions")
    ),
    "malformed_message": CodeRow(400, False, "the message does not fit the envelope schema", (*_PLACE, "x-violations")),
    "message_too_large": CodeRow(413, True, "the message exceeds limits.max_message_bytes", ("limit", "actual")),
    "invalid_type": CodeRow(400, False, "the message type is unknown here", _PLACE),
    "auth_required": CodeRow(401, True, "authentication is needed and was not given"),
    "auth_invalid": CodeRow(401, True, "the credential is invalid or expired"),
    "auth_insufficient": CodeRow(403, False, "a permission is missing"),
    "invalid_facts": CodeRow(400, True, "one or more facts are not valid", (*_VIOLATIONS, "missing_facts")),
    "unknown_predicate": CodeRow(400, True, "a predicate is not in the facts profile", _VIOLATIONS),
    "arity_mismatch": CodeRow(400, True, "a fact has the wrong number of arguments", _VIOLATIONS),
    "type_mismatch": CodeRow(400, True, "an argument has another type than declared", _VIOLATIONS),
    "reserved_predicate": CodeRow(400, False, "a predicate begins with _manglecp_", _VIOLATIONS),
    "too_many_facts": CodeRow(400, True, "more facts than limits.max_facts_per_request", ("limit", "actual")),
    "evaluation_timeout": CodeRow(408, True, "the evaluation took longer than max_compute_ms", _BUDGET),
    "derivation_limit_exceeded": CodeRow(413, True, "the evaluation derived more than max_facts_created", _BUDGET),
    "interval_limit_exceeded": CodeRow(413, True, "an atom had more intervals than max_intervals_per_atom", _BUDGET),
    "invalid_temporal_pattern": CodeRow(400, False, "the rules have a dangerous temporal recursion"),
    "evaluation_failed": CodeRow(500, False, "the evaluation failed in the server"),
    "macro_not_found": CodeRow(404, True, "no macro-tool has this id, or it no longer exists"),
    "macro_expired": CodeRow(
        410, True, "the validity window of the macro-tool is over, or the rules do not prove it now"
    ),
    "schema_validation_failed": CodeRow(400, True, "the arguments do not fit the input schema", ("schema_errors",)),
    "confirmation_required": CodeRow(403, True, "the user has to confirm", ("challenge",)),
    "confirmation_invalid": CodeRow(403, True, "the confirmation token is invalid or expired", ("reason",)),
    "execution_failed": CodeRow(500, False, "the macro-tool failed", (*_RUN, "failure_classes", "schema_errors")),
    "server_not_ready": CodeRow(503, True, "the server is booting or draining"),
    "rate_limited": CodeRow(429, True, "too many requests"),
    "internal_error": CodeRow(500, False, "unexpected server error"),
    "cancelled": CodeRow(499, False, "the client cancelled the request", _RUN),
    "x-macro_not_yet_valid": CodeRow(403, True, "the validity window has not begun"),
    "x-approval_too_large": CodeRow(
        413, False, "the approval request is longer than the text that an approver can be shown", ("limit", "actual")
    ),
    "x-approval_not_found": CodeRow(404, False, "no approval request has this id"),
    "x-approval_decided": CodeRow(409, False, "the approval request was decided already, or has expired", ("state",)),
    "x-approval_not_needed": CodeRow(409, False, "a call that was only prepared, not run, needs no approval"),
    "x-permit_not_found": CodeRow(404, False, "no permit of the client has this id"),
    "x-permit_conflict": CodeRow(
        409, False, "the permit is for another call, or a different outcome was reported for it", ("reason",)
    ),
    "x-unknown_intent": CodeRow(400, True, "the manifest does not list the intent, and no rule can match it", _PLACE),
    "x-source_not_found": CodeRow(404, False, "the pack has no such source of pushed facts", ("suggestion",)),
    "x-facts_refused": CodeRow(409, False, "the rules do not bear the pushed facts"),
    "x-skill_not_found": CodeRow(404, False, "no tool that is offered to the client now refers to this skill"),
    "x-request_key_conflict": CodeRow(409, False, "the request key was used with other arguments"),
}
"""The 28 standard codes, in the order of the specification, and the custom codes of this server."""

_CUSTOM_PREFIX: Final = "x-"
_CUSTOM_ROW: Final = CodeRow(500, False, "an error that is specific to this server")
_CODES_OF_ISSUES: Final = frozenset({"unknown_predicate", "arity_mismatch", "type_mismatch", "reserved_predicate"})
_MAX_VERSION_LENGTH: Final = 64
_MAX_WORD_LENGTH: Final = 128


class WireError(Exception):
    """An error that the client receives. ``id`` is the id of the failed request; None if it is unknown.

    ``row`` describes a custom code that is not in the registry.
    """

    def __init__(
        self,
        code: str,
        message: str,
        details: Object | None = None,
        *,
        retry_after_ms: int | None = None,
        row: CodeRow | None = None,
    ) -> None:
        is_custom = code.startswith(_CUSTOM_PREFIX) and len(code) > len(_CUSTOM_PREFIX)
        if code not in CODES and not is_custom:
            raise ValueError(f"{code} is not an error code; custom codes begin with {_CUSTOM_PREFIX}")
        if is_custom and not message.strip():
            raise ValueError(f"{code} needs a message that says what it means")
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.details = details
        self.retry_after_ms = retry_after_ms
        self.id: str | None = None
        self.row: CodeRow = CODES.get(code) or row or _CUSTOM_ROW

    def payload(self) -> ErrorPayload:
        """Return the payload. It has ``retry_after_ms`` only if the code is recoverable."""
        return ErrorPayload(
            code=self.code,
            message=self.message,
            details=UNSET if self.details is None else self.details,
            recoverable=self.row.recoverable,
            retry_after_ms=self.retry_after_ms if self.row.recoverable else None,
        )

    def to_message(self, request_id: str | None) -> ErrorMessage:
        """Return the error message for the request with this id; ``request_id`` is None if the id is unknown."""
        return ErrorMessage(id=request_id, payload=self.payload())


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a suggestion, or None if no name is similar. ``known`` must have only names that the client may see."""
    similar = closest_match(word, known) if len(word) <= _MAX_WORD_LENGTH else None  # the cost grows with the length
    return None if similar is None else f"Did you mean '{similar}'?"


def malformed(message: str, path: str, suggestion: str | None = None) -> WireError:
    """Return the error for a message that cannot be read; ``path`` begins with ``$``."""
    return WireError("malformed_message", message, _path_details(path, suggestion))


def invalid_type(type_: str, allowed: Iterable[str], reason: str = "is not a message type") -> WireError:
    """Return the error for a message type; ``allowed`` are the types that the sender may send."""
    types = sorted(allowed)
    suggestion = did_you_mean(type_, types) or f"Types sent in this direction: {', '.join(types)}."
    return WireError("invalid_type", f"{quote(type_)} {reason}", _path_details("$.type", suggestion))


def unsupported_version(requested: str) -> WireError:
    """Return the error, with the client's version truncated to 64 characters."""
    message = f"Version {truncate(requested, _MAX_VERSION_LENGTH)} is not supported"
    # Not truncate(), which also escapes the text: ``details`` has the client's own characters.
    version = requested if len(requested) <= _MAX_VERSION_LENGTH else f"{requested[:_MAX_VERSION_LENGTH]}…"
    details = {"requested_version": version, "supported_versions": list(SUPPORTED_VERSIONS)}
    return WireError("unsupported_version", message, details)


def too_large(actual: int, limit: int) -> WireError:
    """Return the error for a message with more bytes than the limit."""
    message = f"The message has {actual:,} bytes, and the limit is {limit:,}"
    return WireError("message_too_large", message, {"limit": limit, "actual": actual})


def _path_details(path: str, suggestion: str | None) -> Object:
    return {"path": path} if suggestion is None else {"path": path, "suggestion": suggestion}


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """An error in one fact of a request."""

    fact_index: int
    predicate: str
    issue: str
    expected_arity: int | UnsetType = UNSET
    actual_arity: int | UnsetType = UNSET
    expected_type: str | UnsetType = UNSET
    actual_type: str | UnsetType = UNSET
    argument_index: int | UnsetType = UNSET
    message: str
    suggestion: str | UnsetType = UNSET
    path: str | UnsetType = UNSET


def refused_facts(violations: Sequence[Violation], missing: Sequence[str] = ()) -> WireError:
    """Return one error with all violations of a request. ``missing`` are required predicates without a fact."""
    issues = {violation.issue for violation in violations}
    only_issue = next(iter(issues)) if len(issues) == 1 and not missing else ""
    details: dict[str, Any] = {"violations": msgspec.to_builtins(list(violations))}
    if missing:
        details["missing_facts"] = list(missing)
    count = len(violations) + len(missing)
    message = f"{count} fact validation error{'' if count == 1 else 's'}"
    return WireError(only_issue if only_issue in _CODES_OF_ISSUES else "invalid_facts", message, details)


def too_many_facts(actual: int, limit: int) -> WireError:
    """Return the error for a request with more facts than the limit."""
    message = f"The request has {actual:,} facts, and the limit is {limit:,}"
    return WireError("too_many_facts", message, {"limit": limit, "actual": actual})


class SchemaError(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the arguments of an invocation."""

    path: str
    message: str
    keyword: str


def refused_arguments(errors: Sequence[SchemaError]) -> WireError:
    """Return the error for arguments that do not conform to the input schema of the tool."""
    message = f"{len(errors)} schema validation error{'' if len(errors) == 1 else 's'}"
    return WireError("schema_validation_failed", message, {"schema_errors": msgspec.to_builtins(list(errors))})


def budget_exceeded(code: str, limit: float, consumed: float, unit: str, suggestion: str) -> WireError:
    """Return the error for an evaluation that exceeded a limit; no partial results are sent."""
    budget = {"limit": limit, "consumed": consumed, "unit": unit}
    details = {"budget": budget, "partial_results_available": False, "suggestion": suggestion}
    return WireError(code, f"{CODES[code].meaning}: {consumed:,} of {limit:,} {unit.replace('_', ' ')}", details)
