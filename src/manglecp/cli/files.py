"""Files that a verb is given, whatever is in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

__all__ = ["FILE", "STDIN", "read", "source_name"]

STDIN: Final = "-"
FILE: Final = click.Path(exists=True, dir_okay=False, allow_dash=True)


def source_name(file: str) -> str:
    return "<stdin>" if file == STDIN else file


def read(file: str) -> bytes:
    if file == STDIN and sys.stdin is None:
        raise click.UsageError("cannot read standard input: it is closed")
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {click.format_filename(file)}: {error.strerror}") from None
