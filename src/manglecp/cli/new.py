"""``manglecp new``: a pack to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from manglecp.cli import Trouble
from manglecp.cli.output import write_lines


@click.command("new")
@click.argument("pack", metavar="PACK", type=click.Path(path_type=Path))
def command(pack: Path) -> None:
    """Write a small pack that runs into the folder PACK, which must not exist yet.

    It has settings, one rule file for each level of trust, a skill and an action: change what is there.
    """
    from manglecp.pack import INTENT, PackError, write_scaffold

    try:
        files = write_scaffold(pack)
    except PackError as error:
        told = (f"{one.message}; {one.fix}" if one.fix else one.message for one in error.diagnostics)
        raise Trouble("; ".join(told)) from None
    shown = click.format_filename(pack)
    write_lines(f"{shown}/{file}" for file in files)
    click.echo(f"try: manglecp check {shown} && manglecp intent {shown} {INTENT}", err=True)
