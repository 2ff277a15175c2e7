"""Approval of invocations, as a client sees it (companion, section 9.4).

A server of this project stores an approval request and returns its id; an approver decides there, with a credential of
its own, and the invocation is repeated with the id. ``on_confirm`` is called with that id: it may show it, notify an
approver or approve with another client. A server without approval requests accepts a token of its own format: the
callback is called before the invocation is sent, and returns that token.
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
    """One call that needs approval. ``refusal`` is the server's error for the previous approval.

    ``approval`` is the id of the request at the server; None at a server without approval requests.
    """

    tool: Tool
    args: Mapping[str, Any]
    effects: tuple[str, ...]
    reversible: bool | None
    approval: str | None = None
    refusal: ServerError | None = None


OnConfirm: TypeAlias = Callable[[ApprovalRequest], "str | bool | Awaitable[str | bool | None] | None"]


async def request_approval(on_confirm: OnConfirm, request: ApprovalRequest) -> str | bool:
    """Return a token, True for approval without a token, or False."""
    decision = on_confirm(request)
    if inspect.isawaitable(decision):
        decision = await decision
    return decision if isinstance(decision, str) and decision else decision is True
