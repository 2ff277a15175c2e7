"""``manglecp fmt``: files in the usual layout."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from manglecp.base.diagnostic import Diagnostic
from manglecp.cli import inputs
from manglecp.cli.outputs import Progress, report, write_lines, write_text
from manglecp.mangle import ParseError, decode, layout

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _Formatted:
    file: str
    text: str
    changed: bool


@click.command("fmt")
@inputs.files
@click.option(
    "--check", is_flag=True, help="Change nothing; list the files that would change, exit 1 if there are any."
)
def command(files: tuple[str, ...], check: bool) -> None:
    """Rewrite FILEs in the usual layout. Comments stay, and so does the meaning.

    Standard input (-) is written to standard output. A file that is no program is left alone.
    """
    formatted: list[_Formatted] = []
    broken: list[Diagnostic] = []
    with Progress("formatting"):
        for file in dict.fromkeys(files):
            try:
                formatted.append(_format(file))
            except ParseError as error:
                broken += error.diagnostics
    report(broken)
    changed = [f for f in formatted if f.changed]
    if check:
        write_lines(inputs.source_name(f.file) for f in changed)
    else:
        for result in formatted:
            _write(result)
    if broken or (check and changed):
        raise click.exceptions.Exit(1)


def _format(file: str) -> _Formatted:
    data = inputs.read(file)
    text = layout(decode(inputs.source_name(file), data))
    return _Formatted(file, text, text.encode() != data)


def _write(result: _Formatted) -> None:
    if result.file == inputs.STDIN:
        write_text(result.text)
    elif result.changed:
        try:
            _replace(Path(result.file).resolve(), result.text.encode())
        except OSError as error:
            raise click.ClickException(f"cannot write {click.format_filename(result.file)}: {error.strerror}") from None
        click.echo(f"formatted {click.format_filename(result.file)}", err=True)


def _replace(path: Path, data: bytes) -> None:
    """Write all of it or nothing: readers see the old file or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    scratch = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        shutil.copymode(path, scratch)
        scratch.replace(path)
    except BaseException:
        scratch.unlink()
        raise
