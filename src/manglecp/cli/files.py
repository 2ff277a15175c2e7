"""Files that a verb is given, whatever is in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import click

__all__ = ["FILE", "STDIN", "read", "replace", "source_name"]

STDIN: Final = "-"


class _File(click.Path):
    """A pack in the place of its files is a slip that is worth a word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if Path(os.fspath(value)).is_dir():
            shown = click.format_filename(value)
            rules = " Its rules are files in rules/." if (Path(os.fspath(value)) / "rules").is_dir() else ""
            self.fail(f"{shown!r} is a folder, and a file is needed.{rules}", param, ctx)
        return super().convert(value, param, ctx)


FILE: Final = _File(exists=True, dir_okay=False, allow_dash=True)


def source_name(file: str) -> str:
    """How diagnostics name the file."""
    return "<stdin>" if file == STDIN else file


def read(file: str, most: int = -1) -> bytes:
    """What is in a file; refused if that is more than ``most`` bytes, unless that is negative."""
    if file == STDIN and sys.stdin is None:
        raise click.UsageError("cannot read standard input: it is closed")
    try:
        if most < 0:
            return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        with nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as stream:
            data = stream.read(most + 1)
    except OSError as error:
        raise click.UsageError(f"cannot read {click.format_filename(file)}: {error.strerror}") from None
    if len(data) > most:
        raise click.UsageError(f"{click.format_filename(file)} has more than {most:,} bytes")
    return data


def replace(path: Path, lines: Iterable[bytes]) -> None:
    """A new file in the place of the old one, whole or not at all. What is no file is written to."""
    from tempfile import NamedTemporaryFile  # most verbs write none, and it takes a while to load

    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                out.writelines(lines)
            return
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
            try:
                new.writelines(lines)
                new.flush()
                os.fsync(new.fileno())
                Path(new.name).replace(path)
            except BaseException:
                with suppress(OSError):
                    Path(new.name).unlink()
                raise
    except OSError as error:
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None
