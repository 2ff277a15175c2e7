"""A person's consent before a tool does what needs one (companion, section 9.4).

Whoever is asked sees what would be done, to what and with which effects. The answer is a token, or None, which ends the
matter: nothing is sent. ``True`` agrees without a token. Then the server is asked; it refuses and says what is to be
signed, and the question comes once more with its *challenge*; or it has been told to trust this client, and does it.

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
    """An approval request. ``text`` is the server's sentence once there is a challenge, else the tool's."""

    tool: Tool
    args: Mapping[str, Any]
    effects: tuple[str, ...]
    reversible: bool | None
    text: str
    identity: str | None = None
    challenge: Mapping[str, Any] | None = field(default=None, repr=False)
    """What the server wants signed: ``nonce``, ``issued_ms``, ``args_digest``, ``expires_at``."""
    refusal: ServerError | None = None
    """The server's error about the approval before, if there was one."""


OnConfirm: TypeAlias = Callable[[Question], "str | bool | Awaitable[str | bool | None] | None"]


async def consent(on_confirm: OnConfirm, question: Question) -> str | bool:
    """A token, True for consent without one, False for none."""
    answer = on_confirm(question)
    if inspect.isawaitable(answer):
        answer = await answer
    return answer if isinstance(answer, str) and answer else answer is True


class Signer:
    """Signs for a person who agrees, with the secret that came with the credential. It never shows the secret."""

    def __init__(
        self,
        secret: bytes,
        identity: str | None = None,
        *,
        ask: Callable[[Question], bool | Awaitable[bool]],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``identity`` is the name under which the server knows the client; the session's if it has one."""
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
        """Over exactly what was shown: the tool and the arguments that this client sends, never others."""
        challenge = question.challenge or {}
        nonce, issued_ms = challenge.get("nonce"), challenge.get("issued_ms")
        if not isinstance(nonce, str) or type(issued_ms) is not int:
            nonce, issued_ms = secrets.token_urlsafe(24), self._clock_ms()
        identity = self._identity if self._identity is not None else question.identity or "anonymous"
        return sign_confirmation(
            self._secret, identity, question.tool.macro_id, digest(question.args), nonce, issued_ms
        )
