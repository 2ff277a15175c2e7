"""Verbs against a server: its address, the credential of the client, and approvals."""

from __future__ import annotations

import inspect
import json
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from manglecp.base.text import escape_invisible
from manglecp.cli.completion import packs
from manglecp.cli.files import group
from manglecp.cli.options import PackFolder

if TYPE_CHECKING:
    from manglecp.client import ApprovalRequest, Client
    from manglecp.invoke import OperatorApprovals
    from manglecp.wire import WireError


T = TypeVar("T")
_ADDRESS: Final = re.compile(r"(?:https?|wss?)://", re.IGNORECASE)
_PACK: Final = PackFolder(or_url=True)
_PACK_OPTIONS: Final = (
    *("caller_name", "permissions", "workspace", "programs", "where", "key"),
    *("settings", "degrade", "cache", "allow_weaker"),
)
_CREDENTIALS: Final = {
    "auth_required": ": set MANGLECP_TOKEN, or give --token",
    "auth_invalid": "; get a token from the operator of the server, and pass it in MANGLECP_TOKEN or --token",
}


def _target(context: click.Context, parameter: click.Parameter, text: str) -> Path | str:
    if _ADDRESS.match(text) or context.resilient_parsing:  # during completion
        return text
    return _PACK.convert(text, parameter, context)


target_argument: Final = click.argument("target", metavar="PACK|URL", callback=_target, shell_complete=packs)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The credential for a server."""

    token: str | None = field(default=None, repr=False)

    def check_options(self, context: click.Context, target: Path | str, *local: str) -> None:
        """Refuse options of packs for a server, and the reverse; ``local`` are further options of packs only."""
        if isinstance(target, str):
            refuse_given(context, "The server decides this itself", *_PACK_OPTIONS, *local)
        else:
            refuse_given(context, "A pack on this machine needs no credential", "token")


def refuse_given(context: click.Context, why: str, *names: str) -> None:
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{why}: leave {parameter.opts[0]} out.", context)


token_option: Final = click.option(
    "--token", metavar="TOKEN", envvar="MANGLECP_TOKEN", help="Your token at a server; $MANGLECP_TOKEN is safer."
)
server_options: Final = group("server", ServerOptions, token_option)


def is_at_terminal() -> bool:
    """Return whether a prompt can be shown and answered."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def prompt_for_approval(text: str, *, confirmed: bool = False) -> bool | None:
    """Print the text of an approval request and prompt, unless it is confirmed. Return None without a terminal."""
    for line in text.split("\n"):
        click.echo(escape_invisible(line), err=True)
    if confirmed or not is_at_terminal():
        return confirmed or None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C interrupts the prompt at once
    try:
        return click.confirm("Approve?", default=False, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True, slots=True)
class Approver:
    """The user as approver: with the credential of a client, or as the operator of this machine.

    ``decide`` shows the text of a request and returns the decision, or None to leave the request pending; then
    ``on_pending`` is called with its id.
    """

    approvals: Client | OperatorApprovals
    decide: Callable[[str], bool | Awaitable[bool | None] | None]
    on_pending: Callable[[str], object] = lambda _: None

    async def on_confirm(self, question: ApprovalRequest) -> str | bool | None:
        """Return the decision about an invocation at a server."""
        if question.refusal is not None:
            raise question.refusal
        if question.approval is None:  # a server without approval requests
            args = json.dumps(dict(question.args), ensure_ascii=False)
            return await self._decision(f"{question.tool.name} {args}\nEffects: {', '.join(question.effects)}")
        return await self.decided(question.approval)

    async def decided(self, approval: str) -> str | None:
        """Decide about a request, if this approver may. Return its id to invoke with, or None if it was denied."""
        from manglecp.client import Client, ServerError
        from manglecp.wire import WireError

        try:
            request = await self.approvals.approval(approval)
        except (ServerError, WireError) as error:
            if error.code not in ("auth_required", "auth_insufficient"):
                raise
            click.echo(escape_invisible(f"  you cannot approve this call: {error.message}"), err=True)
            request = None
        if request is not None and request.state != "pending":
            return approval
        # The operator is also the person who requests.
        if request is None or (request.four_eyes and not isinstance(self.approvals, Client)):
            verdict = None
        else:
            verdict = await self._decision(request.text or "")
        if verdict is None:
            self.on_pending(approval)
        else:
            await (self.approvals.approve if verdict else self.approvals.deny)(approval)
        return None if verdict is False else approval

    async def _decision(self, text: str) -> bool | None:
        decision = self.decide(text)
        return await decision if inspect.isawaitable(decision) else decision


def approval_lines(
    error: WireError, options: str | None, *, again: str = "repeat the call with --approval {}"
) -> Iterator[str]:
    """Yield how to get the approval that an invocation needs.

    ``options`` are those of ``manglecp approvals`` for the server or the store; None if no other process can approve.
    """
    challenge = (error.details or {}).get("challenge")
    if error.code != "confirmation_required" or not isinstance(challenge, dict):
        return
    if roles := challenge.get("roles"):
        yield escape_invisible(f"  the approver needs the permission {' and '.join(map(str, roles))}")
    if challenge.get("four_eyes"):
        yield "  four eyes: the approver must not be the requester, so --confirm cannot approve this call"
    if options is not None:
        approval = escape_invisible(str(challenge.get("approval")))
        yield f"  approve it with: manglecp approvals approve {approval}{options}"
        yield f"  then {again.format(approval)}"
    if not challenge.get("four_eyes") and "--server" not in (options or ""):
        yield "  add --confirm to approve this call" if options is None else "  or add --confirm to approve it now"


def run_with_client(url: str, server: ServerOptions, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Return the result of ``work`` with a connected client. Raises ``WireError``, also without a connection."""
    import asyncio  # slow to import

    from manglecp.client import Client, ClientError

    async def connected() -> T:
        async with Client(url, token=server.token) as client:
            return await work(client)

    try:
        return asyncio.run(connected())
    except ClientError as error:
        raise as_wire_error(error) from error


def as_wire_error(error: Exception) -> WireError:
    """Return the server's own error, or ``x-no_answer``."""
    from manglecp.client import RequestRefused, ServerError
    from manglecp.wire import CODES, WireError

    if not isinstance(error, ServerError | RequestRefused):
        return WireError("x-no_answer", str(error) or "the server did not respond")
    known = error.code in CODES or error.code.startswith("x-")
    message = f"{error.message.removesuffix(': give token')}{_CREDENTIALS.get(error.code, '')}"
    return WireError(error.code if known else f"x-{error.code}", message, dict(error.details))
