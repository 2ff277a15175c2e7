"""``manglecp approvals``: read and decide approval requests, at a server or in a store of this machine."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click
import msgspec

from manglecp import client, invoke
from manglecp.base.text import escape_invisible
from manglecp.cli import target
from manglecp.cli.files import option, option_group
from manglecp.cli.options import document_option, key_option, open_existing_store, store_option
from manglecp.cli.output import fail, print_result, table
from manglecp.cli.tool_text import wire_error_lines
from manglecp.wire import WireError
from manglecp.wire.messages import ApprovalView

_REMEDIES: Final = {
    "x-approval_not_found": "`manglecp approvals list` lists the pending requests",
    "x-approval_decided": "`manglecp approvals show` shows it; the requester gets another one by repeating the call",
    "auth_insufficient": "an approver decides with --server URL and a token from `manglecp token new NAME --approver`",
}


@dataclass(frozen=True, slots=True)
class _Source:
    """The place of the requests: a server, used with a token, or a store of this machine."""

    url: str | None
    token: str | None = field(repr=False)
    location: str | None
    store_key: bytes | None = field(repr=False)

    def __post_init__(self) -> None:
        if self.url is None:
            target.refuse_options(click.get_current_context(), "A token is for --server URL", "token")
        else:
            target.refuse_options(click.get_current_context(), "The server has its own store", "location", "store_key")

    def call(self, method: str, *arguments: str) -> Any:
        """Return the result of a method of ``Client`` or ``OperatorApprovals``. Exits with status 1 after an error."""

        async def work(approvals: client.Client | invoke.OperatorApprovals) -> Any:
            return await getattr(approvals, method)(*arguments)

        try:
            if self.url is not None:
                return target.run_with_client(self.url, self.token, work)
            with open_existing_store(self.location, self.store_key) as store:
                service = invoke.ApprovalService(store, time.time_ns)
                return asyncio.run(work(invoke.OperatorApprovals(service)))
        except WireError as error:
            remedy = [f"  {_REMEDIES[error.code]}"] if error.code in _REMEDIES else []
            fail(*wire_error_lines(error), *remedy)


_source: Final = option_group(
    "source",
    _Source,
    option("--server URL", "url", help="The server of the requests, instead of a store."),
    target.token_option,
    store_option,
    key_option,
)
_id: Final = click.argument("approval", metavar="ID")


@click.group("approvals")
def command() -> None:
    """List, show, approve and deny approval requests.

    An invocation that needs approval stores a request, whose text has every step and argument. With --server you decide
    with your token, which needs the permission approve; without --server you decide as the operator of this machine.
    """


@command.command("list")
@document_option
@_source
def list_(as_json: bool, source: _Source) -> None:
    """List the pending requests that you may decide, the oldest first."""
    requests: Sequence[ApprovalView] = source.call("approvals")
    rows = [(r.id, r.tool, r.requester, " and ".join(_conditions(r)) or "-", r.expires_at) for r in requests]
    headings = ("ID", "TOOL", "REQUESTER", "CONDITIONS", "EXPIRES")
    lines = table(headings, rows, empty="No request is pending.")
    print_result(msgspec.to_builtins(requests), lines, as_json=as_json)


@command.command("show")
@_id
@document_option
@_source
def show(approval: str, as_json: bool, source: _Source) -> None:
    """Show one request with its complete text."""
    request: ApprovalView = source.call("approval", approval)
    lines = [*map(escape_invisible, _request_lines(request))]
    at_terminal = sys.stdout is not None and sys.stdout.isatty()
    if at_terminal and not as_json and len(lines) >= shutil.get_terminal_size().lines:
        click.echo_via_pager("\n".join(lines))
    else:
        print_result(msgspec.to_builtins(request), lines, as_json=as_json)


@command.command("approve")
@_id
@option("--yes", is_flag=True, help="Approve without a prompt.")
@document_option
@_source
def approve(approval: str, yes: bool, as_json: bool, source: _Source) -> None:
    """Show a request with its complete text, prompt, and approve it.

    The requester repeats the call with the id. The approval holds for exactly that call, once.
    """
    if not (yes or target.is_at_terminal()):
        raise click.UsageError(f"read the text with `manglecp approvals show {approval}`, then approve it with --yes")
    request: ApprovalView = source.call("approval", approval)
    if request.state == "pending" and not target.prompt_for_approval("\n".join(_request_lines(request)), confirmed=yes):
        raise click.ClickException(f"it is still pending; `manglecp approvals deny {approval}` denies it")
    _decide(source, "approve", approval, as_json=as_json)


@command.command("deny")
@_id
@document_option
@_source
def deny(approval: str, as_json: bool, source: _Source) -> None:
    """Deny one request."""
    _decide(source, "deny", approval, as_json=as_json)


def _decide(source: _Source, method: str, approval: str, *, as_json: bool) -> None:
    """Call ``approve`` or ``deny``, which ``method`` names, and print the new state of the request."""
    request: ApprovalView = source.call(method, approval)
    is_approved = request.state == "approved"
    next_step = f"; {request.requester} can repeat the call with --approval {request.id}" if is_approved else ""
    line = escape_invisible(f"{request.id} is {request.state}{next_step}")
    print_result(msgspec.to_builtins(request), [line], as_json=as_json)


def _request_lines(request: ApprovalView) -> Iterator[str]:
    approver = f" by {request.approver}" if request.approver else ""
    yield f"{request.id}: {request.state}{approver}{f', run {request.run}' if request.run else ''}"
    yield f"  requested by {request.requester} at {request.created_at}, expires at {request.expires_at}"
    yield from (f"  the approver {condition}" for condition in _conditions(request))
    yield from ("", *(request.text or "").split("\n"))


def _conditions(request: ApprovalView) -> Iterator[str]:
    """Yield the conditions for the approver as predicates, such as "needs finance"."""
    if request.roles:
        yield f"needs {' and '.join(request.roles)}"
    if request.four_eyes:
        yield f"is not {request.requester}"
