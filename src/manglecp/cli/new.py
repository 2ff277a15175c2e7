"""``manglecp new``: create an example pack."""

from __future__ import annotations

from pathlib import Path

import click

from manglecp.cli import VerbError
from manglecp.cli.output import write_lines


@click.command("new")
@click.argument("pack", metavar="PACK", type=click.Path(path_type=Path))
def command(pack: Path) -> None:
    """Create a small working pack in the folder PACK, which must not exist.

    It has settings, one rule file for each trust level, a skill and an action.
    """
    from manglecp.pack import INTENT, PackError, write_scaffold

    try:
        files = write_scaffold(pack)
    except PackError as error:
        messages = (f"{each.message}; {each.fix}" if each.fix else each.message for each in error.diagnostics)
        raise VerbError("; ".join(messages)) from None
    folder = click.format_filename(pack)
    write_lines(f"{folder}/{file}" for file in files)
    click.echo(f"try: manglecp check {folder} && manglecp intent {folder} {INTENT}", err=True)
