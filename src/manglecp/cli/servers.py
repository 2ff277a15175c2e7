"""Verbs against a server: its address, the credential of the client, and approvals."""

from __future__ import annotations

import inspect
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from manglecp.cli.completion import pack_folders
from manglecp.cli.files import group
from manglecp.cli.options import URL_SCHEMES, PackFolder
from manglecp.cli.output import print_stderr

if TYPE_CHECKING:
    from manglecp.client import ApprovalRequest, Client
    from manglecp.invoke import OperatorApprovals
    from manglecp.wire import WireError

T = TypeVar("T")
_PACK: Final = PackFolder(or_url=True)
_PACK_OPTIONS: Final = (  # parameters of caller_options and runtime_options
    *("caller_name", "permissions", "workspace", "programs", "location", "store_key"),
    *("pack_params", "degrade", "cache", "allow_weaker"),
)
_CREDENTIAL_REMEDIES: Final = {
    "auth_required": ": set MANGLECP_TOKEN, or give --token",
    "auth_invalid": "; get a token from the operator of the server, and pass it in MANGLECP_TOKEN or --token",
}


def _to_target(context: click.Context, parameter: click.Parameter, text: str) -> Path | str:
    """Return the URL of a server as ``str``, or the folder of a pack as ``Path``."""
    if text.lower().startswith(URL_SCHEMES) or context.resilient_parsing:  # the latter during completion
        return text
    return _PACK.convert(text, parameter, context)


target_argument: Final = click.argument("target", metavar="PACK|URL", callback=_to_target, shell_complete=pack_folders)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The credential for a server."""

    token: str | None = field(default=None, repr=False)

    def check_options(self, context: click.Context, target: Path | str) -> None:
        """Refuse the options of packs if the target is a server, and the token if it is a pack."""
        if isinstance(target, str):
            refuse_options(context, "The server decides this itself", *_PACK_OPTIONS)
        else:
            refuse_options(context, "A pack on this machine needs no credential", "token")


def refuse_options(context: click.Context, reason: str, *names: str) -> None:
    """Raise ``UsageError`` if a parameter of ``names`` is on the command line; its environment variable may be set."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{reason}: leave {parameter.opts[0]} out.", context)


token_option: Final = click.option(
    "--token", metavar="TOKEN", envvar="MANGLECP_TOKEN", help="Your token at a server; $MANGLECP_TOKEN is safer."
)
server_options: Final = group("server", ServerOptions, token_option)


def is_at_terminal() -> bool:
    """Return whether a prompt can be shown and answered."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def prompt_for_approval(text: str, *, confirmed: bool = False) -> bool | None:
    """Print the text of an approval request, and return the decision: None without a terminal for the prompt.

    With ``confirmed`` it is True without a prompt.
    """
    print_stderr(text)
    if confirmed or not is_at_terminal():
        return confirmed or None
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C interrupts the prompt at once
    try:
        return click.confirm("Approve?", default=False, err=True)
    finally:
        signal.signal(signal.SIGINT, previous_handler)


@dataclass(frozen=True, slots=True)
class Approver:
    """The user as approver: with the credential of a client, or as the operator of this machine.

    ``decide`` shows the text of a request and returns the decision, or None to leave the request pending; then
    ``on_pending`` is called with its id.
    """

    approvals: Client | OperatorApprovals
    decide: Callable[[str], bool | Awaitable[bool | None] | None]
    on_pending: Callable[[str], object] = lambda _: None

    async def on_confirm(self, call: ApprovalRequest) -> str | bool | None:
        """Return the decision about a call at a server: the id of its approval request, or an answer without one."""
        if call.refusal is not None:
            raise call.refusal
        if call.approval is None:  # a server without approval requests
            args = json.dumps(dict(call.args), ensure_ascii=False)
            return await self._get_decision(f"{call.tool.name} {args}\nEffects: {', '.join(call.effects)}")
        return await self.settle(call.approval)

    async def settle(self, approval: str) -> str | None:
        """Decide an approval request, if this approver may. Return its id for the invocation, None if denied."""
        from manglecp.client import Client, ServerError
        from manglecp.wire import WireError

        try:
            request = await self.approvals.approval(approval)
        except (ServerError, WireError) as error:
            if error.code not in ("auth_required", "auth_insufficient"):
                raise
            print_stderr(f"  you cannot approve this call: {error.message}")
            request = None
        if request is not None and request.state != "pending":
            return approval
        # An operator who decides without a server also requested the call, which four eyes forbid.
        if request is None or (request.four_eyes and not isinstance(self.approvals, Client)):
            approved = None
        else:
            approved = await self._get_decision(request.text or "")
        if approved is None:
            self.on_pending(approval)
        else:
            await (self.approvals.approve if approved else self.approvals.deny)(approval)
        return None if approved is False else approval

    async def _get_decision(self, text: str) -> bool | None:
        decision = self.decide(text)
        return await decision if inspect.isawaitable(decision) else decision


def approval_lines(
    error: WireError, options: str | None, *, again: str = "repeat the call with --approval {}"
) -> Iterator[str]:
    """Yield how to get the approval that an invocation needs; nothing for other errors.

    ``options`` are those of ``manglecp approvals`` for the server or the store; None if no other process can approve.
    ``again`` is how to repeat the call, with ``{}`` for the id of the approval request.
    """
    challenge = (error.details or {}).get("challenge")
    if error.code != "confirmation_required" or not isinstance(challenge, dict):
        return
    if roles := challenge.get("roles"):
        yield f"  the approver needs the permission {' and '.join(map(str, roles))}"
    if challenge.get("four_eyes"):
        yield "  four eyes: the approver must not be the requester, so --confirm cannot approve this call"
    if options is not None:
        yield f"  approve it with: manglecp approvals approve {challenge.get('approval')}{options}"
        yield f"  then {again.format(challenge.get('approval'))}"
    if not challenge.get("four_eyes") and "--server" not in (options or ""):
        yield "  add --confirm to approve this call" if options is None else "  or add --confirm to approve it now"


def run_with_client(url: str, server: ServerOptions, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Return the result of ``work`` with a connected client. Raises ``WireError``, also if the connection fails."""
    import asyncio  # slow to import

    from manglecp.client import Client, ClientError

    async def work_connected() -> T:
        async with Client(url, token=server.token) as client:
            return await work(client)

    try:
        return asyncio.run(work_connected())
    except ClientError as error:
        raise as_wire_error(error) from error


def as_wire_error(error: Exception) -> WireError:
    """Return the error of a server or of the client with a remedy; ``x-no_answer`` if the server did not respond."""
    from manglecp.client import RequestRefused, ServerError
    from manglecp.wire import CODES, WireError

    if not isinstance(error, ServerError | RequestRefused):
        return WireError("x-no_answer", str(error) or "the server did not respond")
    code = error.code if error.code in CODES or error.code.startswith("x-") else f"x-{error.code}"
    # The remedy in the client's own error is for Python code.
    message = f"{error.message.removesuffix(': pass token')}{_CREDENTIAL_REMEDIES.get(error.code, '')}"
    return WireError(code, message, dict(error.details))
