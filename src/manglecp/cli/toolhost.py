"""``manglecp toolhost``: the host process of a plugin."""

from __future__ import annotations

import os
import sys

import click


@click.command("toolhost", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="MODE PLUGIN [AID]", type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Serve the actions of a plugin from a process of their own.

    MODE is --list, --run or --serve; only --run takes an AID. PLUGIN is a Python file or an importable module.
    --sha256 HEX pins its content, --lease-key-fd N enforces leases minted with the key on that descriptor,
    --progress-fd N takes progress, logs and audit events, and --pipe-leases allows _lease.issue on the pipe, for
    clients of the C++ toolhost. --parent PID has the host end with its parent.

    --sandbox none|standard|spawn|strict locks the host in before it runs the plugin; none is what it does by itself.
    --workspace PATH is a folder that may be written, --readable PATH what may be read besides the plugin's own folder,
    --executable PATH a program that may be started (spawn only); each can be given several times. --user UID:GID
    is whom root becomes, --limit NAME=N one of memory, file-size, open-files, processes, cpu-seconds. A profile
    that this machine cannot enforce ends the host with status 6, unless --degrade is given: then the listing says what
    is missing.
    """
    # Exec, so that the host has no module of the command line loaded. -P: the working directory, which may be a
    # workspace, must not be imported from before the sandbox is entered.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "manglecp.toolhost.host", *arguments])
