"""The exceptions of a client.

The text of an exception includes the first violations of facts or arguments. Texts that the server sent are escaped,
and details of an unexpected shape are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from manglecp.base.text import truncate
from manglecp.wire import WireError
from manglecp.wire.messages import UNSET, ErrorPayload

_MAX_LENGTH: Final = 2_000  # characters of a text from the server
_MAX_VIOLATIONS: Final = 3  # in the text of an exception


class ClientError(Exception):
    """The base class of the client's exceptions."""


class _CodedError(ClientError):
    """An error with a code of the protocol or of the client."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details or {}

    @property
    def approval(self) -> str | None:
        """The id of the approval request that the server stored for the invocation; else None."""
        challenge = self.details.get("challenge") if self.code == "confirmation_required" else None
        approval = challenge.get("approval") if isinstance(challenge, dict) else None
        return approval if isinstance(approval, str) else None

    def __str__(self) -> str:
        return f"{truncate(self.code, 128)}: {truncate(self.message, _MAX_LENGTH)}{_first_violations(self.details)}"


class ServerError(_CodedError):
    """The error that the server sent as its response."""

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        recoverable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(code, message, details)
        self.recoverable = recoverable
        self.retry_after_ms = retry_after_ms

    @classmethod
    def from_payload(cls, payload: ErrorPayload) -> ServerError:
        return cls(
            payload.code,
            payload.message,
            None if payload.details is UNSET else payload.details,
            recoverable=payload.recoverable,
            retry_after_ms=payload.retry_after_ms,
        )


class ConnectionLost(ClientError):
    """The connection ended or failed. The server may have executed the request."""


class ResponseTimeout(ConnectionLost):
    """The response did not arrive within the time limit. The server may still execute the request."""


class InvalidResponse(ClientError):
    """The server sent a message that is invalid, too long, or for another request. The client discarded it."""


class RequestRefused(_CodedError):
    """The client refused to send the request. If servers have a code for the same error, ``code`` is that code."""

    @classmethod
    def from_wire_error(cls, error: WireError) -> RequestRefused:
        return cls(error.code, error.message, error.details)


def _first_violations(details: Mapping[str, Any]) -> str:
    texts = list(_violation_texts(details))
    if not texts:
        return ""
    more = f"; and {len(texts) - _MAX_VIOLATIONS} more" if len(texts) > _MAX_VIOLATIONS else ""
    return f" ({'; '.join(truncate(text, _MAX_LENGTH) for text in texts[:_MAX_VIOLATIONS])}{more})"


def _violation_texts(details: Mapping[str, Any]) -> Iterator[str]:
    for violation in _list(details, "violations"):
        if isinstance(violation, Mapping):
            text, name = str(violation.get("message", violation.get("issue", ""))), str(violation.get("predicate", ""))
            predicate = f", {name}" if name and f"'{name}'" not in text else ""
            suggestion = f" ({violation['suggestion']})" if "suggestion" in violation else ""
            yield f"fact {violation.get('fact_index', '?')}{predicate}: {text}{suggestion}"
    for error in _list(details, "schema_errors"):
        if isinstance(error, Mapping):
            yield f"{error.get('path') or '/'}: {error.get('message', '')}"
    challenge = details.get("challenge")
    if isinstance(challenge, Mapping):
        yield from (f"the approver needs the permission {role}" for role in _list(challenge, "roles"))
    yield from (f"Predicate '{name}' is needed" for name in _list(details, "missing_facts"))
    if isinstance(remedy := details.get("suggestion"), str):
        yield remedy


def _list(details: Mapping[str, Any], member: str) -> list[Any] | tuple[Any, ...]:
    value = details.get(member)
    return value if isinstance(value, list | tuple) else ()
