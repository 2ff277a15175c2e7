"""What verbs are given: files, and the options they share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from manglecp.base.diagnostic import Diagnostic
from manglecp.cli.files import FILE, STDIN, read, source_name
from manglecp.mangle import INT_MAX, INT_MIN, Fact, ParseError, Program, Source, decode, parse, parse_rfc3339

if TYPE_CHECKING:
    from manglecp.pack.factfiles import FactFile

__all__ = [
    "FILE",
    "STDIN",
    "bounds",
    "facts",
    "files",
    "limit",
    "now",
    "read",
    "read_fact_files",
    "read_sources",
    "source_name",
]


def _instant(context: click.Context, parameter: click.Parameter, text: str | None) -> int:
    """An instant in RFC 3339, as nanoseconds since 1970; by default this one."""
    if text is None:
        return time.time_ns()
    ns = parse_rfc3339(text.strip().upper())
    if ns is None:
        example = "2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00"
        raise click.BadParameter(f"{text!r} is not a time such as {example}.", context, parameter)
    if not INT_MIN < ns < INT_MAX:
        message = f"{text!r} is out of range: times lie between 1677-09-21 and 2262-04-11."
        raise click.BadParameter(message, context, parameter)
    return ns


def _fact_files(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[FactFile, ...]:
    """``FILE``, or ``NAME=FILE`` for a table that is not named after its predicate."""
    if not given:
        return ()
    from manglecp.pack.factfiles import FactFile  # what reads files is needed only where there are some

    found = []
    for text in given:
        name, equals, file = text.partition("=")
        named = bool(equals) and not Path(text).exists()
        path = Path(file if named else text)
        if not path.is_file():
            message = f"there is no file {click.format_filename(path)!r}."
            raise click.BadParameter(message, context, parameter)
        found.append(FactFile(path, name if named else None))
    return tuple(found)


files = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
now = click.option(
    "--now",
    metavar="TIME",
    callback=_instant,
    help="The evaluation time in RFC 3339; by default the clock, read once.",
)
limit = click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=10_000_000,
    help="How many facts may be derived; by default 10,000,000.",
)
facts = click.option(
    "--facts",
    "fact_files",
    metavar="[NAME=]FILE",
    multiple=True,
    callback=_fact_files,
    help="Facts of the server: .mg, .jsonl, .csv, .parquet or .sc, also with .gz. May be given several times.",
)
bounds = click.option(
    "--bounds",
    type=click.Choice(["error", "off"]),
    default="error",
    help="Whether a violated type bound refuses the program (error) or is not looked for (off).",
)


def read_sources(names: Iterable[str]) -> list[Source]:
    """The files as program text; if one of them is no text, everything that keeps any of them from being parsed."""
    sources: list[Source] = []
    broken: list[Diagnostic] = []
    for name in names:
        try:
            sources.append(decode(source_name(name), read(name)))
        except ParseError as error:
            broken += error.diagnostics
    if broken:
        for source in sources:
            try:
                parse(source)
            except ParseError as error:
                broken += error.diagnostics
        raise ParseError(broken)
    return sources


def read_fact_files(given: Sequence[FactFile], program: Program, *, check: bool) -> list[Fact]:
    """The facts in these files. One that cannot be opened is an error of usage."""
    from manglecp.pack.factfiles import read_facts  # as above

    try:
        return read_facts(given, program, check=check)
    except OSError as error:
        name = click.format_filename(error.filename) if error.filename else "a fact file"
        raise click.UsageError(f"cannot read {name}: {error.strerror or error}") from None
