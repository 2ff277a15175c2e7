"""The target of a verb, a pack on this machine or a server: its options, requests and approvals."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from manglecp import client, intent, invoke
from manglecp.cli.completion import complete_pack_folders
from manglecp.cli.files import F, option, option_group
from manglecp.cli.options import (
    CALLER_OPTIONS,
    LOCAL,
    URL_SCHEMES,
    CallerOptions,
    PackFolder,
    RuntimeOptions,
    message_option,
)
from manglecp.cli.output import ProgressLine, fail, print_stderr, write_lines

if TYPE_CHECKING:
    from manglecp.wire import WireError

T = TypeVar("T")
_PACK: Final = PackFolder(or_url=True)
_CREDENTIAL_REMEDIES: Final = {
    "auth_required": ": set MANGLECP_TOKEN, or give --token",
    "auth_invalid": "; get a token from the operator of the server, and pass it in MANGLECP_TOKEN or --token",
}


def _parse_target(context: click.Context, parameter: click.Parameter, text: str) -> Path | str:
    """Return the URL of a server as ``str``, or the folder of a pack as ``Path``."""
    if text.lower().startswith(URL_SCHEMES) or context.resilient_parsing:  # resilient parsing: a shell completion
        return text
    return _PACK.convert(text, parameter, context)


target_argument: Final = click.argument(
    "target", metavar="PACK|URL", callback=_parse_target, shell_complete=complete_pack_folders
)


def refuse_options(context: click.Context, reason: str, *names: str) -> None:
    """Raise ``UsageError`` for a parameter in ``names`` on the command line, but not for one from the environment."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{reason}: leave {parameter.opts[0]} out.", context)


token_option: Final = option(
    "--token TOKEN", envvar="MANGLECP_TOKEN", help="Your token at a server; $MANGLECP_TOKEN is safer."
)


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options for a target: a pack on this machine, or a server."""

    caller: CallerOptions
    runtime: RuntimeOptions
    token: str | None = field(repr=False)
    as_json: bool

    @contextmanager
    def open_domain(self, folder: Path) -> Iterator[intent.Domain]:
        """Yield the loaded pack for an evaluation; print a ``WireError``, and exit with status 1."""
        with ExitStack() as host_stack, self.report_wire_errors(self.caller.identity):
            progress = host_stack.enter_context(ProgressLine("loading"))
            domain, _ = invoke.load_domain(self.runtime.for_pack(folder), host_stack)
            progress.doing = "evaluating"
            yield domain

    def request_server(self, url: str, work: Callable[[client.Client], Coroutine[Any, Any, T]]) -> T:
        """Return the result of ``work`` with a connected client; print a ``WireError``, and exit with status 1."""
        with self.report_wire_errors(None), ProgressLine("waiting for the server"):
            return run_with_client(url, self.token, work)

    @contextmanager
    def report_wire_errors(self, identity: intent.Identity | None) -> Iterator[None]:
        """Print a ``WireError``, and exit with status 1. ``identity`` is the caller; None if the target is a server."""
        from manglecp.cli.tool_text import missing_fact_lines, wire_error_lines
        from manglecp.mangle import MangleError
        from manglecp.wire import WireError, encode

        try:
            yield
        except WireError as error:
            is_operator = identity is not None and identity.trust == LOCAL
            if is_operator and isinstance(error.__cause__, MangleError):
                click.echo(error.__cause__.render(), err=True)  # the cause quotes a rule
            if not self.as_json:
                fail(*wire_error_lines(error), *missing_fact_lines(error))
            write_lines([encode(error.to_message(error.id or "shell")).decode()])
            raise click.exceptions.Exit(1) from None


def _make_target_options(
    *, caller_name: str | None, permissions: tuple[str, ...], token: str | None, as_json: bool = False, **runtime: Any
) -> TargetOptions:
    """Return the options. Refuses the options of packs if the target is a server, and the token if it is a pack."""
    context = click.get_current_context()
    if isinstance(context.params["target"], str):
        refuse_options(context, "The server decides this itself", "caller_name", "permissions", *runtime)
    else:
        refuse_options(context, "A pack on this machine needs no credential", "token")
    return TargetOptions(CallerOptions(caller_name, permissions), RuntimeOptions(**runtime), token, as_json)


def target_options(*pack_options: Callable[[Any], Any], has_json: bool = True) -> Callable[[F], F]:
    """Return a decorator that adds the options for a target to a verb, as the argument ``options``."""
    json_options = (message_option,) if has_json else ()
    return option_group("options", _make_target_options, *CALLER_OPTIONS, *pack_options, token_option, *json_options)


def is_at_terminal() -> bool:
    """Return whether a prompt can be shown and answered."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def prompt_for_approval(text: str, *, confirmed: bool = False) -> bool | None:
    """Print the text of an approval request, and return the decision: None without a terminal for the prompt.

    With ``confirmed``, return True without a prompt.
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
    ``on_pending`` is called with the id of the request.
    """

    approvals: client.Client | invoke.OperatorApprovals
    decide: Callable[[str], bool | None]
    on_pending: Callable[[str], object] = lambda _: None

    async def on_confirm(self, call: client.ApprovalRequest) -> str | bool | None:
        """Return the id of the approval request of a call; the decision if the server has no approval requests."""
        if call.refusal is not None:
            raise call.refusal
        if call.approval is None:  # the server has no approval requests
            args = json.dumps(dict(call.args), ensure_ascii=False)
            return self.decide(f"{call.tool.name} {args}\nEffects: {', '.join(call.effects)}")
        return await self.settle(call.approval)

    async def settle(self, approval: str) -> str | None:
        """Decide an approval request, if this approver may. Return the id of an approved or pending one, else None."""
        from manglecp.wire import WireError

        try:
            request = await self.approvals.approval(approval)
        except (client.ServerError, WireError) as error:
            if error.code not in ("auth_required", "auth_insufficient"):
                raise
            print_stderr(f"  you cannot approve this call: {error.message}")
            request = None
        if request is not None and request.state != "pending":
            return approval
        # Without a server the operator who decides is also the requester, which four eyes forbid.
        if request is None or (request.four_eyes and not isinstance(self.approvals, client.Client)):
            is_approved = None
        else:
            is_approved = self.decide(request.text or "")
        if is_approved is None:
            self.on_pending(approval)
        else:
            await (self.approvals.approve if is_approved else self.approvals.deny)(approval)
        return None if is_approved is False else approval


def approval_lines(error: WireError, options: str | None) -> Iterator[str]:
    """Yield how to get the approval that an invocation needs; nothing for other errors.

    ``options`` are those of ``manglecp approvals`` for the server or the store; None if no other process can approve.
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
        yield f"  then repeat the call with --approval {challenge.get('approval')}"
    if not challenge.get("four_eyes") and "--server" not in (options or ""):
        yield "  add --confirm to approve this call" if options is None else "  or add --confirm to approve it now"


def run_with_client(url: str, token: str | None, work: Callable[[client.Client], Coroutine[Any, Any, T]]) -> T:
    """Return the result of ``work`` with a connected client. Raises ``WireError``, even for a failed connection."""
    import asyncio  # slow to import

    async def work_connected() -> T:
        async with client.Client(url, token=token) as connected_client:
            return await work(connected_client)

    try:
        return asyncio.run(work_connected())
    except client.ClientError as error:
        raise as_wire_error(error) from error


def as_wire_error(error: Exception) -> WireError:
    """Return the error of a server or of the client with a remedy; ``x-no_answer`` if the server did not respond."""
    from manglecp.wire import CODES, WireError

    if not isinstance(error, client.ServerError | client.RequestRefused):
        return WireError("x-no_answer", str(error) or "the server did not respond")
    code = error.code if error.code in CODES or error.code.startswith("x-") else f"x-{error.code}"
    # The remedy in the client's own error is for Python code, so it is replaced.
    message = f"{error.message.removesuffix(': pass token')}{_CREDENTIAL_REMEDIES.get(error.code, '')}"
    return WireError(code, message, dict(error.details))
