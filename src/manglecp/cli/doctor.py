"""``manglecp doctor``: the mechanisms of the sandbox that this machine provides, and how to enable the others."""

from __future__ import annotations

import json

import click

from manglecp.cli.options import document_option
from manglecp.cli.output import write_lines


@click.command("doctor")
@document_option
def command(as_json: bool) -> None:
    """Print which mechanisms of the sandbox work on this machine for this user, and what enables the missing ones.

    The exit status is 1 if a profile is incomplete. Hosts of such a profile start only with --degrade.
    """
    from manglecp.toolhost import diagnose_sandbox

    profiles = dict(diagnose_sandbox())
    lines = []
    for profile, mechanisms in profiles.items():
        lines.append(f"{profile}: {'incomplete' if any(map(any, mechanisms.values())) else 'complete'}")
        for name, (reason, remedy) in mechanisms.items():
            lines += [f"  {name:<18} {reason or 'ok'}", *([f"  {'':<18} fix: {remedy}"] if remedy else ())]
    document = {
        profile: {name: {"missing": reason, "fix": remedy} for name, (reason, remedy) in mechanisms.items()}
        for profile, mechanisms in profiles.items()
    }
    write_lines([json.dumps(document, indent=2)] if as_json else lines)
    if any(any(map(any, mechanisms.values())) for mechanisms in profiles.values()):
        raise click.exceptions.Exit(1)
