"""``manglecp shell``: an interactive client of a server, or of a pack served in this process."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from manglecp.cli import options, servers
from manglecp.cli.output import ProgressLine, print_stderr, report, write_lines

if TYPE_CHECKING:
    from manglecp.cli.shell_commands import Shell
    from manglecp.client import Client
    from manglecp.intent import Identity
    from manglecp.invoke import OperatorApprovals


@click.command("shell")
@servers.target_argument
@click.option("--confirm", is_flag=True, help="Approve calls without a prompt.")
@click.option("--now", metavar="TIME", help="The evaluation time in RFC 3339; the clock of a pack starts there.")
@options.caller_options
@options.runtime_options
@servers.server_options
@click.pass_context
def command(
    context: click.Context,
    target: Path | str,
    confirm: bool,
    now: str | None,
    caller: options.CallerOptions,
    runtime: options.RuntimeOptions,
    server: servers.ServerOptions,
) -> None:
    """Evaluate intents, show and explain tools, invoke them, follow suggestions; `help` lists the commands.

    The shell connects to the server at a URL (http, https, ws, wss), or serves PACK in its own process.

    A tool that needs approval shows the text of its approval request and prompts; at a server that needs a credential
    with the permission approve.

    At a terminal the tab key completes names, Ctrl-C cancels the current command, and Ctrl-D exits. Without a terminal
    the shell executes the lines of standard input until one fails. The exit status is 0 if all succeeded, else 1.
    """
    from manglecp.cli.invocation import local_approval_options
    from manglecp.cli.shell_commands import LoopThread, Shell
    from manglecp.client import ClientError

    server.check_options(context, target)
    clock = _make_clock(now)

    def approve(text: str) -> bool | None:
        # Confirmed calls of a pack are approved silently; for a server the text is printed.
        return (confirm and not isinstance(target, str)) or servers.prompt_for_approval(text, confirmed=confirm)

    with options.report_pack_errors(), LoopThread() as loop:
        if isinstance(target, str):
            opening: Any = _connect(target, server)
            approval_options: str | None = f" --server {shlex.quote(target)}"
        else:
            opening = _serve_here(target, runtime, caller.identity, clock)
            approval_options = local_approval_options(runtime, clock)
        try:
            with ProgressLine("connecting" if isinstance(target, str) else "loading"):
                client, approvals = loop.wait(loop.stack.enter_async_context(opening))
        except ClientError as error:
            _print_error(error)
            raise click.exceptions.Exit(1) from None
        approver = servers.Approver(approvals, loop.request_approval)
        shell = Shell(client, loop, approver, approve, clock=clock, timed=now is not None, bold=options.bold())
        shell.approval_options = approval_options
        is_interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        status = _interact(shell) if is_interactive else _run_lines(shell)
    raise click.exceptions.Exit(status)


def _make_clock(now: str | None) -> Callable[[], int]:
    """Return a clock in nanoseconds that starts at the value of ``--now``, or the clock of this machine."""
    if now is None:
        return time.time_ns
    from manglecp.cli.intent_request import clock_starting_at, read_client_facts

    eval_time, _ = read_client_facts((), (), now)
    return clock_starting_at(eval_time)


@asynccontextmanager
async def _connect(url: str, server: servers.ServerOptions) -> AsyncIterator[tuple[Client, Client]]:
    """Yield a client of the server, which also decides approval requests."""
    from manglecp.client import Client

    async with Client(url, token=server.token) as client:
        yield client, client


@asynccontextmanager
async def _serve_here(
    folder: Path, runtime: options.RuntimeOptions, identity: Identity, clock: Callable[[], int]
) -> AsyncIterator[tuple[Client, OperatorApprovals]]:
    """Serve the pack to ``identity`` in this process; yield a client, and the operator's view of approval requests."""
    from manglecp.client import Client
    from manglecp.invoke import OperatorApprovals
    from manglecp.server import AuthConfig, open_core

    auth = AuthConfig(_FixedIdentity(identity))
    async with open_core(runtime.for_pack(folder), runtime.open_store, auth, clock=clock) as core:
        await core.revisions.ready()
        with core.revisions.use() as revision:
            approvals = OperatorApprovals(revision.invoker.approvals)
        async with Client(core, token="here") as client:  # any token is accepted
            yield client, approvals


class _FixedIdentity:
    """Authenticates every credential as the identity of the command line."""

    required = True
    schemes = ("bearer",)
    token_url = None

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def identify(self, scheme: str, credential: str) -> Identity | None:  # noqa: ARG002
        return self._identity


def _interact(shell: Shell) -> int:
    from manglecp.base.text import escape_invisible
    from manglecp.cli.shell_commands import Quit
    from manglecp.store import state_directory

    name = escape_invisible(shell.client.manifest.domain.id)[:40]
    click.echo(f"{name}: `help` lists the commands, Ctrl-D exits")
    with readline_session(shell, state_directory()):
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
                _run_line(shell, line)
            except Quit:
                return 0
            except (KeyboardInterrupt, click.Abort):  # click raises Abort for Ctrl-C at its prompts
                click.echo("cancelled", err=True)


def _run_lines(shell: Shell) -> int:
    from manglecp.cli.shell_commands import Quit

    for number, line in enumerate(sys.stdin or (), 1):
        try:
            if not _run_line(shell, line):
                click.echo(f"line {number} failed: {line.strip()}", err=True)
                return 1
        except Quit:
            return 0
    return 0


def _run_line(shell: Shell, line: str) -> bool:
    """Run one line, print its result or its error, and return whether it succeeded. Raises ``Quit``."""
    from manglecp.cli.shell_commands import CommandError
    from manglecp.client import ClientError
    from manglecp.mangle import MangleError

    try:
        write_lines(shell.run(line))
    except CommandError as error:
        click.echo(f"error: {error}", err=True)
    except ClientError as error:
        _print_error(error, shell.approval_options)
    except MangleError as error:
        report(error.diagnostics)
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
    except click.exceptions.Exit:  # already reported
        pass
    else:
        return True
    return False


def _print_error(error: Exception, approval_options: str | None = None) -> None:
    from manglecp.cli.tool_text import failure_lines

    wire_error = servers.as_wire_error(error)
    print_stderr(
        *failure_lines(wire_error), *servers.approval_lines(wire_error, approval_options, again="invoke it again")
    )


HISTORY_FILE: Final = "shell_history"
_MAX_HISTORY_LINES: Final = 1_000


@contextmanager
def readline_session(shell: Shell, folder: Path) -> Iterator[None]:
    """Set up completion and history if readline is installed. Only the owner can read the history file."""
    from manglecp.cli.shell_commands import candidates

    try:
        import readline
    except ImportError:
        yield
        return

    def complete(word: str, number: int) -> str | None:
        """Return a candidate; readline calls this with 0, 1, … until the result is None."""
        try:
            words = candidates(shell, readline.get_line_buffer()[: readline.get_begidx()], word)
        except Exception:  # readline would swallow it
            return None
        return words[number] if number < len(words) else None

    file = folder / HISTORY_FILE
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(_MAX_HISTORY_LINES)
    readline.set_completer_delims(" \t\n")
    readline.set_completer(complete)
    # macOS has libedit in place of GNU readline, with another syntax.
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
            readline.write_history_file(file)
