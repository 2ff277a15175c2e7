"""Approval before a tool with effects is invoked (companion, section 9.4).

The callback receives the tool, its arguments and effects, and returns a token, or None, and then nothing is sent.
``True`` approves without a token: the server accepts that, or returns a *challenge* to sign, with which the callback is
called again.

    async with Client(url, on_confirm=Signer(secret, "ada", ask=in_a_dialog)) as client: …
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
class Question:
    """An approval request. ``text`` is the server's sentence once there is a challenge, else the tool's.

    ``challenge`` is what to sign: ``nonce``, ``issued_ms``, ``args_digest``, ``expires_at``. ``refusal`` is the
    server's error about the previous approval.
    """

    tool: Tool
    args: Mapping[str, Any]
    effects: tuple[str, ...]
    reversible: bool | None
    text: str
    identity: str | None = None
    challenge: Mapping[str, Any] | None = field(default=None, repr=False)
    refusal: ServerError | None = None


OnConfirm: TypeAlias = Callable[[Question], "str | bool | Awaitable[str | bool | None] | None"]


async def consent(on_confirm: OnConfirm, question: Question) -> str | bool:
    """Return a token, True for approval without one, False for none."""
    answer = on_confirm(question)
    if inspect.isawaitable(answer):
        answer = await answer
    return answer if isinstance(answer, str) and answer else answer is True


class Signer:
    """Signs approvals with the secret that belongs to the credential. ``repr`` does not show the secret."""

    def __init__(
        self,
        secret: bytes,
        identity: str | None = None,
        *,
        ask: Callable[[Question], bool | Awaitable[bool]],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``identity`` is the client's name at the server; by default that of the session."""
        self._secret = secret
        self._identity = identity
        self._ask = ask
        self._clock_ms = clock_ms

    def __repr__(self) -> str:
        return f"Signer({self._identity!r}, …)"

    async def __call__(self, question: Question) -> str | bool | None:
        agreed = self._ask(question)
        if inspect.isawaitable(agreed):
            agreed = await agreed
        return self.token(question) if agreed is True else None

    def token(self, question: Question) -> str:
        """Sign the tool and the arguments of the question."""
        challenge = question.challenge or {}
        nonce, issued_ms = challenge.get("nonce"), challenge.get("issued_ms")
        if not isinstance(nonce, str) or type(issued_ms) is not int:
            nonce, issued_ms = secrets.token_urlsafe(24), self._clock_ms()
        identity = self._identity if self._identity is not None else question.identity or "anonymous"
        return sign_confirmation(
            self._secret, identity, question.tool.macro_id, digest(question.args), nonce, issued_ms
        )
