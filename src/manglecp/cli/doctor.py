"""``manglecp doctor``: the mechanisms of the sandbox that this machine provides, and how to enable the others."""

from __future__ import annotations

import click

from manglecp.cli.output import write_lines


@click.command("doctor")
def command() -> None:
    """Print which mechanisms of the sandbox work here, for this user, and what enables the missing ones.

    The exit status is 1 if a profile is incomplete. Hosts of such a profile start only with --degrade.
    """
    from manglecp.toolhost import diagnose_sandbox

    is_complete = True
    for profile, mechanisms in diagnose_sandbox():
        missing = any(reason for reason, _ in mechanisms.values())
        write_lines([f"{profile}: {'incomplete' if missing else 'complete'}"])
        for name, (reason, remedy) in mechanisms.items():
            write_lines([f"  {name:<18} {reason or 'ok'}", *([f"  {'':<18} fix: {remedy}"] if remedy else ())])
        is_complete = is_complete and not missing
    if not is_complete:
        raise click.exceptions.Exit(1)
