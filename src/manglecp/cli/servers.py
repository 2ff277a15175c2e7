"""Verbs against a server: its address, the credential of the client, and the signature of approvals."""

from __future__ import annotations

import inspect
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from manglecp.cli.completion import packs
from manglecp.cli.files import group
from manglecp.cli.options import PackFolder

if TYPE_CHECKING:
    from manglecp.client import ApprovalRequest, Client, OnConfirm
    from manglecp.wire import WireError


T = TypeVar("T")
_ADDRESS: Final = re.compile(r"(?:https?|wss?)://", re.IGNORECASE)
_PACK: Final = PackFolder(or_url=True)
_PACK_OPTIONS: Final = (
    *("permissions", "workspace", "programs", "where", "key"),
    *("settings", "degrade", "cache", "allow_weaker"),
)
_MIN_SECRET_BYTES: Final = 32
_CREDENTIALS: Final = {
    "auth_required": ": set MANGLECP_TOKEN, or give --token",
    "auth_invalid": "; get a token from the operator of the server, and pass it in MANGLECP_TOKEN or --token",
}
CONFIRM_HINT: Final = "add --confirm to approve this call"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def _target(context: click.Context, parameter: click.Parameter, text: str) -> Path | str:
    if _ADDRESS.match(text) or context.resilient_parsing:  # during completion
        return text
    return _PACK.convert(text, parameter, context)


target_argument: Final = click.argument("target", metavar="PACK|URL", callback=_target, shell_complete=packs)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The credential and the signing secret for a server."""

    token: str | None = field(default=None, repr=False)
    secret_file: Path | None = None

    def check_options(self, context: click.Context, target: Path | str, *local: str) -> None:
        """Refuse options of packs for a server, and the reverse; ``local`` are further options of packs only."""
        if isinstance(target, str):
            _refuse(context, "The server decides this itself", *_PACK_OPTIONS, *local)
        else:
            _refuse(context, "A pack on this machine needs no credential", "token", "secret_file")


def _refuse(context: click.Context, why: str, *names: str) -> None:
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{why}: leave {parameter.opts[0]} out.", context)


token_option: Final = click.option(
    "--token", metavar="TOKEN", envvar="MANGLECP_TOKEN", help="Your token at a server; $MANGLECP_TOKEN is safer."
)
_secret: Final = click.option(
    "--confirmation-key",
    "secret_file",
    metavar="FILE",
    envvar="MANGLECP_CONFIRMATION_KEY_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the secret that signs your approvals for a server, in hexadecimal.",
)


server_options: Final = group("server", ServerOptions, token_option, _secret)
token_options: Final = group("server", ServerOptions, token_option)


def prompt_for_approval(lines: Iterable[str]) -> bool | None:
    """Print these lines and prompt for approval. Return None without a terminal."""
    from manglecp.base.text import escape_invisible

    for line in lines:
        click.echo(escape_invisible(line), err=True)
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C interrupts the prompt at once
    try:
        return click.confirm("Approve?", default=False, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True, slots=True)
class Approver:
    """The user as approver. ``decide`` shows an approval request and returns the decision; ``url`` is for a server."""

    url: str | None
    server: ServerOptions
    name: str | None
    decide: Callable[[ApprovalRequest], bool | Awaitable[bool]]
    clock: Callable[[], int] = time.time_ns

    def on_confirm(self) -> OnConfirm:
        """Return the callback for one invocation, which prompts at most once."""
        from manglecp.client import RequestRefused, Signer

        prompted = False

        async def confirm(question: ApprovalRequest) -> str | bool | None:
            nonlocal prompted
            refusal = question.refusal
            if refusal is not None:
                why = "an approval is signed with --confirmation-key and the name of --as"
                raise RequestRefused(refusal.code, f"{refusal.message}; {why}") from refusal
            if prompted:
                why = "the server requires a signed approval: give the file of your secret with --confirmation-key"
                raise RequestRefused("confirmation_required", why)
            prompted = True
            approved = self.decide(question)
            if not (await approved if inspect.isawaitable(approved) else approved):
                return None
            name = self.name or question.identity or "anonymous"
            secret = self._secret(name)
            if secret is None:
                return True
            signer = Signer(secret, name, approve=lambda _: True, clock_ms=lambda: self.clock() // 1_000_000)
            return signer.token(question)

        return confirm

    def _secret(self, name: str) -> bytes | None:
        if self.server.secret_file is not None:
            return _read_secret(self.server.secret_file)
        from manglecp.invoke import SECRET_FILE, local_secrets
        from manglecp.store import state_directory

        local = self.url is None or urlsplit(self.url).hostname in _LOOPBACK
        return local_secrets().of(name) if local and (state_directory() / SECRET_FILE).exists() else None


def _read_secret(file: Path) -> bytes:
    try:
        secret = bytes.fromhex(file.read_text("ascii"))
    except (OSError, ValueError):
        secret = b""
    if len(secret) < _MIN_SECRET_BYTES:
        raise click.UsageError(f"{click.format_filename(file)} is not a secret: 64 hexadecimal digits or more")
    return secret


def question_lines(question: ApprovalRequest) -> Iterator[str]:
    import json

    tool = question.tool
    yield f"{tool.name}: {question.text}" if question.text else tool.name
    for name, value in question.args.items():
        yield f"  {name}: {json.dumps(value, ensure_ascii=False)}"
    yield f"  effects: {', '.join(question.effects) or 'not disclosed'}"
    if question.reversible is not None:
        yield "  it can be undone" if question.reversible else "  it cannot be undone"


def approve_at_terminal(question: ApprovalRequest) -> bool:
    approved = prompt_for_approval(question_lines(question))
    if approved is None:
        click.echo(f"  {CONFIRM_HINT}", err=True)
    return approved is True


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
