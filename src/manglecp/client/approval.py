"""Approval of invocations, as a client sees it.

A server of this project stores an approval request and returns its id. The client calls ``on_confirm`` with the id: the
callback may show it, notify an approver, or approve with another client. An approver decides at the server, with a
credential of its own, and the client repeats the invocation with the id. A server without approval requests accepts a
token in a format of its own: the callback is called before the invocation is sent, and returns that token.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from manglecp.client.errors import ServerError
from manglecp.client.results import Tool


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call that needs approval. ``refusal`` is the server's error for the first approval, if it rejected one.

    ``approval`` is the id of the request at the server; None at a server without approval requests.
    """

    tool: Tool
    args: Mapping[str, Any]
    effects: tuple[str, ...]
    reversible: bool | None
    approval: str | None = None
    refusal: ServerError | None = None


OnConfirm: TypeAlias = Callable[[ApprovalRequest], "str | bool | Awaitable[str | bool | None] | None"]
"""Returns a token, or True for approval without one. All other results decline."""


async def request_approval(on_confirm: OnConfirm, request: ApprovalRequest) -> str | bool:
    """Return the token of the callback, True if it approved without a token, or False if it declined."""
    decision = on_confirm(request)
    if inspect.isawaitable(decision):
        decision = await decision
    return decision if isinstance(decision, str) and decision else decision is True
