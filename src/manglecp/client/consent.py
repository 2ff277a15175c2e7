"""Approval before a tool with effects is invoked (companion, section 9.4).

The callback receives the tool, its arguments and effects. It returns a token, or None if the call is not approved.
``True`` approves without a token: the server accepts that, or returns a *challenge* to sign, with which the callback is
called again.

    async with Client(url, on_confirm=Signer(secret, "ada", approve=show_dialog)) as client: …
"""

from __future__ import annotations

import inspect
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from manglecp.base.digest import digest
from manglecp.client.errors import ServerError
from manglecp.client.results import Tool
from manglecp.wire import sign_confirmation


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call that needs approval. ``text`` is the server's sentence once there is a challenge, else the tool's.

    ``challenge`` has the values to sign: ``nonce``, ``issued_ms``, ``args_digest``, ``expires_at``. ``refusal`` is the
    server's error for the previous approval.
    """

    tool: Tool
    args: Mapping[str, Any]
    effects: tuple[str, ...]
    reversible: bool | None
    text: str
    identity: str | None = None
    challenge: Mapping[str, Any] | None = field(default=None, repr=False)
    refusal: ServerError | None = None


OnConfirm: TypeAlias = Callable[[ApprovalRequest], "str | bool | Awaitable[str | bool | None] | None"]


async def request_approval(on_confirm: OnConfirm, request: ApprovalRequest) -> str | bool:
    """Return a token, True for approval without a token, or False."""
    decision = on_confirm(request)
    if inspect.isawaitable(decision):
        decision = await decision
    return decision if isinstance(decision, str) and decision else decision is True


class Signer:
    """Signs approvals with the secret that belongs to the credential. ``repr`` does not show the secret."""

    def __init__(
        self,
        secret: bytes,
        identity: str | None = None,
        *,
        approve: Callable[[ApprovalRequest], bool | Awaitable[bool]],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``identity`` is the client's name at the server; by default that of the session."""
        self._secret = secret
        self._identity = identity
        self._approve = approve
        self._clock_ms = clock_ms

    def __repr__(self) -> str:
        return f"Signer({self._identity!r}, …)"

    async def __call__(self, request: ApprovalRequest) -> str | bool | None:
        approved = self._approve(request)
        if inspect.isawaitable(approved):
            approved = await approved
        return self.token(request) if approved is True else None

    def token(self, request: ApprovalRequest) -> str:
        """Return a token for the tool and the arguments of the request."""
        challenge = request.challenge or {}
        nonce, issued_ms = challenge.get("nonce"), challenge.get("issued_ms")
        if not isinstance(nonce, str) or type(issued_ms) is not int:
            nonce, issued_ms = secrets.token_urlsafe(24), self._clock_ms()
        identity = self._identity if self._identity is not None else request.identity or "anonymous"
        return sign_confirmation(self._secret, identity, request.tool.macro_id, digest(request.args), nonce, issued_ms)
