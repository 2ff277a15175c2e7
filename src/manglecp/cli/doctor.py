"""``manglecp doctor``: the mechanisms of the sandbox that this machine provides, and how to enable the others."""

from __future__ import annotations

import json

import click

from manglecp.cli.options import json_option
from manglecp.cli.output import write_lines


@click.command("doctor")
@json_option("Print one JSON document.")
def command(as_json: bool) -> None:
    """Print which mechanisms of the sandbox work here, for this user, and what enables the missing ones.

    The exit status is 1 if a profile is incomplete. Hosts of such a profile start only with --degrade.
    """
    from manglecp.toolhost import diagnose_sandbox

    profiles = diagnose_sandbox()
    if as_json:
        write_lines([json.dumps(profiles, indent=2)])
    else:
        for profile, mechanisms in profiles.items():
            is_complete = not any(mechanism["missing"] for mechanism in mechanisms.values())
            write_lines([f"{profile}: {'complete' if is_complete else 'incomplete'}"])
            for name, mechanism in mechanisms.items():
                write_lines([f"  {name:<18} {mechanism['missing'] or 'ok'}"])
                if mechanism["fix"]:
                    write_lines([f"  {'':<18} fix: {mechanism['fix']}"])
    if any(mechanism["missing"] for mechanisms in profiles.values() for mechanism in mechanisms.values()):
        raise click.exceptions.Exit(1)
