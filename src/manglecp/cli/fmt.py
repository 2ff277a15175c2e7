"""``manglecp fmt``: format rule files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.files import replace_file
from manglecp.cli.files import DASH, files_argument, option, read, source_name
from manglecp.cli.output import ProgressLine, report, write_lines, write_text
from manglecp.mangle import ParseError, decode, layout


class _FormattedFile(NamedTuple):
    file: str
    text: str
    changed: bool


@click.command("fmt")
@files_argument
@option(
    "--check", is_flag=True, help="Write nothing; list the files that would change, and exit with 1 if there are any."
)
def command(files: tuple[str, ...], check: bool) -> None:
    """Format FILEs in place. Comments and meaning do not change.

    Standard input (-) is formatted to standard output. A file with a syntax error is not changed.
    """
    formatted_files: list[_FormattedFile] = []
    errors: list[Diagnostic] = []
    with ProgressLine("formatting"):
        for file in dict.fromkeys(files):
            try:
                formatted_files.append(_format(file))
            except ParseError as error:
                errors += error.diagnostics
    report(errors)
    changed_files = [result for result in formatted_files if result.changed]
    if check:
        write_lines(source_name(result.file) for result in changed_files)
    else:
        for result in formatted_files:
            _write(result)
    if errors or (check and changed_files):
        raise click.exceptions.Exit(1)


def _format(file: str) -> _FormattedFile:
    data = read(file)
    text = layout(decode(source_name(file), data))
    return _FormattedFile(file, text, text.encode() != data)


def _write(result: _FormattedFile) -> None:
    if result.file == DASH:
        write_text(result.text)
    elif result.changed:
        path = Path(result.file).resolve()
        try:
            replace_file(path, [result.text.encode()], path.stat().st_mode)
        except OSError as error:
            raise click.ClickException(f"cannot write {click.format_filename(result.file)}: {error.strerror}") from None
        click.echo(f"formatted {click.format_filename(result.file)}", err=True)
