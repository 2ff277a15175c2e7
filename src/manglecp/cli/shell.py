"""``manglecp shell``: talk to a server, or to a pack as its own server, one line after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manglecp.cli.asking import bold, identity_of, refuse_pack, who_options
from manglecp.cli.places import Place, place_options
from manglecp.cli.servers import Server, question_lines, server_options, target_argument
from manglecp.cli.stores import refusing

if TYPE_CHECKING:  # a wrong command line is refused before anything is loaded
    from manglecp.cli.looping import Beside
    from manglecp.cli.shell_commands import Shell
    from manglecp.client import Client, Question
    from manglecp.intent import Identity

__all__ = ["command"]


@click.command("shell")
@target_argument
@click.option("--confirm", is_flag=True, help="Agree to what tools do, without being asked.")
@click.option("--now", metavar="TIME", help="The evaluation time in RFC 3339, from which a pack's clock goes on.")
@who_options
@place_options
@server_options
@click.pass_context
def command(
    context: click.Context,
    target: Path | str,
    confirm: bool,
    now: str | None,
    who: str | None,
    permissions: tuple[str, ...],
    place: Place,
    token: str | None,
    secret_file: Path | None,
) -> None:
    """Declare intents, see tools, ask why and why not, invoke, follow suggestions; `help` lists the commands.

    The server is at a URL (http, https, ws, wss), or it is made of PACK, here and for as long as the shell lasts.

    At a terminal the tab key completes names, Ctrl-C cancels what is under way, and Ctrl-D leaves. Otherwise lines come
    from standard input until one of them fails: the exit status is 0 if all went well, and 1 if one did not.
    """
    server = Server(token, secret_file)
    if isinstance(target, str):
        others = ("permissions", "workspace", "programs", "where", "key_file", "settings", "degrade", "cache")
        server.refuse_others(context, *others, "allow_weaker")
    else:
        server.refuse_for_pack(context)
    from manglecp.pack import PackError

    with refusing():
        try:
            status = _talk(target, server, place, who, permissions, now, confirm=confirm)
        except PackError as error:
            refuse_pack(error)
    raise click.exceptions.Exit(status)


def _talk(
    target: Path | str,
    server: Server,
    place: Place,
    who: str | None,
    permissions: tuple[str, ...],
    now: str | None,
    *,
    confirm: bool,
) -> int:
    from manglecp.cli.looping import Beside
    from manglecp.cli.outputs import Progress
    from manglecp.cli.servers import Person
    from manglecp.cli.shell_commands import Shell
    from manglecp.client import ClientError

    interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    clock = _clock(now)

    def agree(question: Question) -> bool:
        if confirm:
            return True
        from manglecp.base.text import escape_invisible

        for line in question_lines(question):
            click.echo(escape_invisible(line), err=True)
        if not interactive:
            click.echo("  add --confirm to agree to this", err=True)
            return False
        return input("Do it? [y/N] ").strip().lower() in ("y", "yes")

    beside: Beside[Question] = Beside()
    with beside:
        url = target if isinstance(target, str) else None
        try:
            if isinstance(target, str):
                opening = _remote(target, server)
            else:
                opening = _local(target, place, identity_of(who, permissions), clock)
            with Progress("loading" if url is None else "connecting"):
                client: Client = beside.wait(beside.stack.enter_async_context(opening))
        except ClientError as error:
            _tell(error)
            return 1
        name = who if url is not None else identity_of(who, permissions).name
        # Another server has its own clock.
        person = Person(url, server, name, beside.ask, clock if url is None else time.time_ns)
        shell = Shell(client, beside, person, agree, clock=clock, timed=now is not None, bold=bold())
        return _interact(shell) if interactive else _obey(shell)


def _clock(now: str | None) -> Callable[[], int]:
    """One that goes on from this time, if there is one."""
    if now is None:
        return time.time_ns
    from manglecp.cli.intent_request import given_facts
    from manglecp.wire import read_instant

    start, begun = read_instant(given_facts((), (), now)[0]), time.monotonic_ns()
    return lambda: start + time.monotonic_ns() - begun


# --- servers ---------------------------------------------------------------------------------------------------------


def _remote(url: str, server: Server) -> Any:
    from manglecp.client import Client

    return Client(url, token=server.token)


def _local(folder: Path, place: Place, identity: Identity, clock: Callable[[], int]) -> Any:
    """A client of a server that is made of the pack, in this process, for whoever sits here."""
    from contextlib import asynccontextmanager

    from manglecp.client import Client
    from manglecp.server import Source, open_core

    @asynccontextmanager
    async def opened() -> Any:
        async with open_core(Source(folder=folder, **place), auth=_Here(identity), clock=clock) as core:
            await core.serving.ready()
            async with Client(core, token="here") as client:
                yield client

    return opened()


class _Here:
    """Whoever sits here is who the command line says."""

    required = True
    schemes = ("bearer",)
    token_url = None

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def identify(self, scheme: str, credential: str) -> Identity | None:  # noqa: ARG002
        return self._identity


# --- lines -----------------------------------------------------------------------------------------------------------


def _interact(shell: Shell) -> int:
    """Until whoever types has enough."""
    from manglecp.base.text import escape_invisible
    from manglecp.cli.shell_commands import Leave
    from manglecp.cli.shell_completion import typing
    from manglecp.store import state_directory

    name = escape_invisible(shell.client.manifest.domain.id)[:40]
    click.echo(f"{name}: `help` lists the commands, Ctrl-D leaves")
    with typing(shell, state_directory()):
        while True:
            try:
                line = input(f"{name}> ")
            except EOFError:
                click.echo()
                return 0
            except KeyboardInterrupt:
                click.echo()
                continue
            try:
                _do(shell, line)
            except Leave:
                return 0
            except KeyboardInterrupt:
                click.echo("cancelled", err=True)


def _obey(shell: Shell) -> int:
    """Line by line, until one fails."""
    from manglecp.cli.shell_commands import Leave

    for number, line in enumerate(sys.stdin or (), 1):
        try:
            if not _do(shell, line):
                click.echo(f"line {number} failed: {line.strip()}", err=True)
                return 1
        except Leave:
            return 0
    return 0


def _do(shell: Shell, line: str) -> bool:
    """Did it go well?"""
    from manglecp.cli.outputs import report, write_lines
    from manglecp.cli.shell_commands import Mistake
    from manglecp.client import ClientError
    from manglecp.mangle import MangleError

    try:
        write_lines(shell.run(line))
    except Mistake as mistake:
        click.echo(f"error: {mistake}", err=True)
    except ClientError as error:
        _tell(error)
    except MangleError as error:
        report(error.diagnostics)
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
    except click.exceptions.Exit:  # it was told already
        pass
    else:
        return True
    return False


def _tell(error: Exception) -> None:
    from manglecp.cli.invocation_text import failure_lines
    from manglecp.cli.servers import as_wire_error

    for line in failure_lines(as_wire_error(error)):
        click.echo(line, err=True)
