"""``manglecp toolhost``: the host process of a plugin."""

from __future__ import annotations

import os
import sys

import click


@click.command("toolhost", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="MODE PLUGIN [AID]", type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Execute the actions of a plugin in this process, the host.

    MODE is --list, --run or --serve; only --run takes an AID. PLUGIN is a Python file or an importable module.
    --sha256 HEX pins its content. --lease-key-fd N enforces leases signed with the key on that descriptor.
    --progress-fd N receives progress, logs and audit events. --pipe-leases allows _lease.issue on the pipe, for
    clients of the C++ toolhost. --parent PID ends the host with that process.

    --sandbox none|standard|spawn|strict selects the sandbox that is entered before the plugin is loaded; none by
    default. --workspace PATH is a writable folder, --readable PATH a readable path besides the plugin's folder,
    --executable PATH a program that may be started (spawn only); each may be given several times. With --read-only
    workspaces are not written; with --no-processes no process is created. --user UID:GID drops root privileges to
    that user. --limit NAME=N sets memory, file-size, open-files, processes or cpu-seconds. If the machine cannot
    enforce the profile, the host exits with status 6; with --degrade it starts, and the listing reports the missing
    mechanisms.
    """
    # Exec, so that no module of the command line is loaded in the host. -P: modules must not be imported from the
    # working directory, which may be a workspace, before the sandbox is entered.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "manglecp.toolhost.host", *arguments])
