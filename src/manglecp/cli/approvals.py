"""``manglecp approvals``: read and decide approval requests, at a server or in a store of this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from manglecp.cli.files import group
from manglecp.cli.options import as_json, key_option, open_existing_store, store_option
from manglecp.cli.output import columns, print_json, write_lines
from manglecp.cli.servers import refuse_given, token_option

if TYPE_CHECKING:
    from manglecp.client import Client
    from manglecp.invoke import OperatorApprovals
    from manglecp.wire.messages import ApprovalView

_NEXT: Final = {
    "x-approval_not_found": "`manglecp approvals list` lists the pending requests",
    "x-approval_decided": "`manglecp approvals show` shows it; the requester gets another one by repeating the call",
    "auth_insufficient": "an approver decides with --server URL and a token of `manglecp token new NAME --approver`",
}


@dataclass(frozen=True, slots=True)
class _Source:
    """A server with a credential, or a store, whose requests the operator of this machine decides."""

    url: str | None
    token: str | None = field(repr=False)
    where: str | None
    key: bytes | None = field(repr=False)

    def send(self, operation: str, *approval: str) -> Any:
        """Return the result of a method of the client. Ends the verb after an error."""
        import asyncio

        from manglecp.cli.servers import ServerOptions, run_with_client
        from manglecp.cli.tool_text import wire_error_lines
        from manglecp.invoke import ApprovalService, OperatorApprovals
        from manglecp.wire import WireError

        async def work(approvals: Client | OperatorApprovals) -> Any:
            return await getattr(approvals, operation)(*approval)

        try:
            if self.url is not None:
                return run_with_client(self.url, ServerOptions(self.token), work)
            with open_existing_store(self.where, self.key) as store:
                return asyncio.run(work(OperatorApprovals(ApprovalService(store, time.time_ns))))
        except WireError as error:
            for line in wire_error_lines(error):
                click.echo(line, err=True)
            if error.code in _NEXT:
                click.echo(f"  {_NEXT[error.code]}", err=True)
            raise click.exceptions.Exit(1) from None


def _make_source(**options: Any) -> _Source:
    source, context = _Source(**options), click.get_current_context()
    if source.url is None:
        refuse_given(context, "A token is for --server URL", "token")
    else:
        refuse_given(context, "The server has its own store", "where", "key")
    return source


_source: Final = group(
    "source",
    _make_source,
    click.option("--server", "url", metavar="URL", help="The server of the requests, instead of a store."),
    token_option,
    store_option,
    key_option,
)
_id: Final = click.argument("approval", metavar="ID")


@click.group("approvals")
def command() -> None:
    """List, show, approve and deny approval requests.

    An invocation that needs approval stores a request, whose text has every step and argument. With --server you decide
    with your token, which needs the permission approve; without it as the operator of this machine, in its store.
    """


@command.command("list")
@as_json
@_source
def list_(as_json: bool, source: _Source) -> None:
    """List the pending requests that you may decide, the oldest first."""
    found: Sequence[ApprovalView] = source.send("approvals")
    rows = [(one.id, one.tool, one.requester, " and ".join(_conditions(one)) or "-", one.expires_at) for one in found]
    table = columns([("ID", "TOOL", "FOR", "APPROVER", "EXPIRES"), *rows]) if rows else ["No request is pending."]
    _print(list(found), table, as_json=as_json)


@command.command("show")
@_id
@as_json
@_source
def show(approval: str, as_json: bool, source: _Source) -> None:
    """Show one request with its complete text."""
    found: ApprovalView = source.send("approval", approval)
    _print(found, _lines(found), as_json=as_json, pager=True)


@command.command("approve")
@_id
@click.option("--yes", is_flag=True, help="Approve without a prompt.")
@as_json
@_source
def approve(approval: str, yes: bool, as_json: bool, source: _Source) -> None:
    """Show a request with its complete text, prompt, and approve it.

    The requester repeats the call with the id. The approval holds for exactly that call, once.
    """
    from manglecp.cli.servers import is_at_terminal, prompt_for_approval

    if not (yes or is_at_terminal()):
        raise click.UsageError(f"read the text with `manglecp approvals show {approval}`, then approve it with --yes")
    found: ApprovalView = source.send("approval", approval)
    if found.state == "pending" and not prompt_for_approval("\n".join(_lines(found)), confirmed=yes):
        raise click.ClickException(f"it is still pending; `manglecp approvals deny {approval}` denies it")
    _decide(source, "approve", approval, as_json=as_json)


@command.command("deny")
@_id
@as_json
@_source
def deny(approval: str, as_json: bool, source: _Source) -> None:
    """Deny one request."""
    _decide(source, "deny", approval, as_json=as_json)


def _decide(source: _Source, operation: str, approval: str, *, as_json: bool) -> None:
    done: ApprovalView = source.send(operation, approval)
    rest = f"; {done.requester} can repeat the call with --approval {done.id}" if done.state == "approved" else ""
    _print(done, [f"{done.id} is {done.state}{rest}"], as_json=as_json)


def _print(document: object, lines: Sequence[str] | Iterator[str], *, as_json: bool, pager: bool = False) -> None:
    import shutil
    import sys

    import msgspec

    from manglecp.base.text import escape_invisible

    shown = [*map(escape_invisible, lines)]
    if as_json:
        print_json(msgspec.to_builtins(document))
    elif pager and sys.stdout is not None and sys.stdout.isatty() and len(shown) >= shutil.get_terminal_size().lines:
        click.echo_via_pager("\n".join(shown))
    else:
        write_lines(shown)


def _lines(one: ApprovalView) -> Iterator[str]:
    yield f"{one.id}: {one.state}{f' by {one.approver}' if one.approver else ''}{f', run {one.run}' if one.run else ''}"
    yield f"  requested by {one.requester} at {one.created_at}, expires at {one.expires_at}"
    yield from (f"  the approver {condition}" for condition in _conditions(one))
    yield from ("", *(one.text or "").split("\n"))


def _conditions(one: ApprovalView) -> Iterator[str]:
    if one.roles:
        yield f"needs {' and '.join(one.roles)}"
    if one.four_eyes:
        yield f"is not {one.requester}"
