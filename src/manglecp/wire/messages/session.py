"""``error``, ``cancel``, ``authenticate`` and its answer (seed 004; companion, sections 3.5 and 9.3)."""

from __future__ import annotations

from typing import Literal

from manglecp.wire.messages.envelope import UNSET, Count, Message, Object, Part, RequestId, UnsetType


class ErrorPayload(Part, frozen=True, kw_only=True):
    """What went wrong. Only if it is `recoverable` can it help to ask again."""

    code: str
    message: str
    details: Object | UnsetType = UNSET
    recoverable: bool
    retry_after_ms: Count | None = None


class ErrorMessage(Message, frozen=True, kw_only=True, tag="error"):
    """The last word about a request; the id is null if it could not be read."""

    id: RequestId | None
    payload: ErrorPayload


class CancelPayload(Part, frozen=True, kw_only=True, rename={"request_key": "x-request_key"}):
    """The request that is not wanted any more."""

    request_id: RequestId
    request_key: str | None = None
    """Of the invocation, wherever and by whomever it is carried out."""


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """A notification: its id is null, and only the cancelled request is answered."""

    id: str | None = None
    payload: CancelPayload


class AuthenticatePayload(Part, frozen=True, kw_only=True):
    """A credential, and how it is to be understood."""

    scheme: Literal["bearer", "oauth2", "api_key"]
    token: str

    def __repr__(self) -> str:
        """Without the token: what is printed ends up in logs."""
        return f"AuthenticatePayload(scheme={self.scheme!r}, token=…)"


class Authenticate(Message, frozen=True, kw_only=True, tag="authenticate"):
    """Who speaks in this session, from now on."""

    id: RequestId
    payload: AuthenticatePayload


class Authenticated(Part, frozen=True, kw_only=True):
    """Whom the server takes the client for, and what they may do."""

    status: Literal["authenticated"]
    identity: str
    permissions: tuple[str, ...]
    trust_level: str | UnsetType = UNSET
    auto_confirm_effects: tuple[str, ...] | UnsetType = UNSET


class AuthenticateResponse(Message, frozen=True, kw_only=True, tag="authenticate_response"):
    """The answer to an `authenticate` whose credential holds."""

    id: RequestId
    payload: Authenticated


__all__ = [
    "Authenticate",
    "AuthenticatePayload",
    "AuthenticateResponse",
    "Authenticated",
    "Cancel",
    "CancelPayload",
    "ErrorMessage",
    "ErrorPayload",
]
