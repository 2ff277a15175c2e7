"""Approval of invocations, as a client sees it.

A server with the extension ``x-approvals`` stores an approval request and returns its id. The client calls
``on_confirm`` with the id: the callback may show it, notify an approver, or approve with another client. An approver
decides at the server, with a credential of its own, and the client repeats the invocation with the id. A server without
the extension accepts tokens in its own format: the callback is called before the invocation, and returns a token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from manglecp.client.errors import ServerError
from manglecp.client.results import Tool


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that needs an approval, as ``on_confirm`` receives it and :meth:`.Client.prepare` returns it.

    ``approval`` is the id of the approval request at the server; None at a server without approval requests.
    ``refusal`` is the server's error for the first approval, if the server rejected one.
    """

    tool: Tool
    args: Mapping[str, Any]
    effects: tuple[str, ...]
    reversible: bool | None
    approval: str | None = None
    refusal: ServerError | None = None


OnConfirm: TypeAlias = Callable[[ApprovalRequest], "str | bool | Awaitable[str | bool | None] | None"]
"""Returns a token, or True to approve without a token. Every other result declines the call."""
