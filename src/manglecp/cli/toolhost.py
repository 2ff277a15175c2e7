"""``manglecp toolhost``: the host process of a plugin, and the check of any toolhost."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from manglecp.cli.files import EXISTING_FILE, option


@click.command("toolhost", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, metavar="MODE PLUGIN [AID] | check PLUGIN -- HOST", type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Execute the actions of a plugin in this process, the host; or check any toolhost (see check --help).

    MODE is --list, --run or --serve; only --run takes an AID. PLUGIN is a Python file or an importable module.
    tool_exec AID runs an action of the plugin that MANGLECP_TOOLHOST_PLUGIN names. --sha256 HEX pins the plugin's
    content. --lease-key-fd N enforces leases signed with the key on that descriptor. --progress-fd N receives
    progress, logs and audit events. --pipe-leases allows _lease.issue on the pipe, for clients of the C++ toolhost.
    --ignore-extra-inputs drops inputs that an action has no parameter for. --parent PID ends the host with that
    process.

    --sandbox none|standard|spawn|strict selects the sandbox that is entered before the plugin is loaded; none by
    default. --workspace PATH is a writable folder, --readable PATH a readable path besides the plugin's folder,
    --executable PATH a program that may be started (spawn only); each may be given several times. With --read-only
    workspaces are not written; with --no-processes no process is created. --user UID:GID drops root privileges to
    that user. --limit NAME=N sets memory, file-size, open-files, processes or cpu-seconds. If the machine cannot
    enforce the profile, the host exits with status 6; with --degrade it starts, and the listing reports the missing
    mechanisms.
    """
    if arguments[:1] == ("check",):
        check.invoke(check.make_context("manglecp toolhost check", list(arguments[1:])))
    # execv starts a new program: the host loads no module of the command line. -P keeps Python from importing modules
    # from the working directory, which may be a workspace, before the sandbox is entered.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "manglecp.toolhost.host", *arguments])


@click.command("check")
@click.argument("plugin")
@click.argument("argv", metavar="-- HOST [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@option("--cast", type=EXISTING_FILE, help="The actions of the plugin for each role; most checks need one.")
@option("--without-ours", is_flag=True, help="Leave out what manglecp adds to the contract.")
@option("--only TEXT", default="", help="Only conversations whose name contains this.")
@option("--patience", type=click.FloatRange(min=0.1), default=30.0, help="Seconds that an answer may take.")
def check(
    plugin: str, argv: tuple[str, ...], cast: Path | None, without_ours: bool, only: str, patience: float
) -> None:
    """Test the toolhost that the command HOST starts with PLUGIN. The exit status is 1 if it is wrong."""
    from manglecp.conformance import Toolhost, check_toolhost, toolhost_conversations

    if shutil.which(argv[0]) is None:
        raise click.UsageError(f"{argv[0]} cannot be executed")
    host = Toolhost(argv=argv, plugin=plugin, patience=patience)
    try:
        host = host if cast is None else host.with_cast(cast)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{cast}: {error}") from None
    selection = {name: conversation for name, conversation in toolhost_conversations().items() if only in name}
    if not selection:
        raise click.UsageError(f"no conversation has {only!r} in its name")
    counts = {"ok": 0, "wrong": 0, "left out": 0}
    for name, conversation in selection.items():
        if (roles := host.missing_roles(conversation)) or (conversation.ours and without_ours):
            verdict, details = ("left out", [f"no action has the role {', '.join(roles)}" if roles else "ours"])
        else:
            details = check_toolhost(conversation, host)
            verdict = "wrong" if details else "ok"
        counts[verdict] += 1
        click.echo("\n          ".join([f"{verdict:8}  {name}", *details]))
    click.echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    raise click.exceptions.Exit(1 if counts["wrong"] else 0)
