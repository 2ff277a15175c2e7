"""Files that verbs read and write, and the options of verbs that read programs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:  # verbs that read no program do not load the mangle package
    from manglecp.base.diagnostic import Diagnostic
    from manglecp.mangle import Fact, Program, Source
    from manglecp.pack.factfiles import FactFile

STDIN: Final = "-"
F = TypeVar("F", bound=Callable[..., Any])


def combine(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Combine options into one decorator, in the order in which ``--help`` lists them."""

    def decorate(function: F) -> F:
        for one in reversed(decorators):
            function = one(function)
        return function

    return decorate


def group(name: str, make: Callable[..., Any], *options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a verb and passes their values as one argument: ``name=make(...)``."""
    add = combine(*options)

    def placeholder() -> None: ...

    members = [one.name for one in getattr(add(placeholder), "__click_params__", ())]

    def decorate(function: Any) -> Any:
        @wraps(function)
        def grouped(*args: Any, **kwargs: Any) -> Any:
            values = {member: kwargs.pop(member) for member in members}
            return function(*args, **kwargs, **{name: make(**values)})

        return add(grouped)

    return decorate


class _File(click.Path):
    """The type of a file argument. Its error for the folder of a pack names the folder of the rules."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if Path(os.fspath(value)).is_dir():
            shown = click.format_filename(value)
            rules = " Its rules are files in rules/." if (Path(os.fspath(value)) / "rules").is_dir() else ""
            self.fail(f"{shown!r} is a folder; give a file.{rules}", param, ctx)
        return super().convert(value, param, ctx)


FILE: Final = _File(exists=True, dir_okay=False, allow_dash=True)


def source_name(file: str) -> str:
    return "<stdin>" if file == STDIN else file


@contextmanager
def open_binary(file: str) -> Iterator[IO[bytes]]:
    """Open a file or standard input. Raises ``UsageError`` where it cannot be opened or read."""
    if file == STDIN and sys.stdin is None:
        raise click.UsageError("cannot read standard input: it is closed")
    try:
        with nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise click.UsageError(f"cannot read {click.format_filename(file)}: {error.strerror}") from None


def read(file: str, max_bytes: int = -1) -> bytes:
    """Return the bytes of a file. Raises ``UsageError`` for more than ``max_bytes``, unless that is negative."""
    with open_binary(file) as stream:
        data = stream.read(max_bytes + 1 if max_bytes >= 0 else -1)
    if 0 <= max_bytes < len(data):
        raise click.UsageError(f"{click.format_filename(file)} has more than {max_bytes:,} bytes")
    return data


def read_json(file: str, max_bytes: int = -1) -> Any:
    """Decode a JSON file. Raises :class:`manglecp.wire.Fault` for invalid JSON."""
    from manglecp.wire import decode

    return decode(read(file, max_bytes))


def read_json_argument(file: str) -> Any:
    """Decode a JSON file. Raises ``UsageError`` for invalid JSON."""
    from manglecp.wire import Fault

    try:
        return read_json(file)
    except Fault as fault:
        raise click.UsageError(f"{click.format_filename(source_name(file))}: {fault}") from None


def replace(path: Path, lines: Iterable[bytes], *, mode: int = 0o600) -> None:
    """Replace a file atomically; write into a path that is not a regular file. Raises ``UsageError`` on failure."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                out.writelines(lines)
        else:
            replace_file(path, lines, mode)
    except OSError as error:
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None


def replace_file(path: Path, lines: Iterable[bytes], mode: int) -> None:
    """Write a temporary file and rename it, so that readers see the old file or the new one. Raises ``OSError``."""
    from tempfile import NamedTemporaryFile  # slow to import, and most verbs write no file

    with NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}.", delete=False) as new:
        try:
            new.writelines(lines)
            new.flush()
            os.fsync(new.fileno())
            Path(new.name).chmod(mode)
            Path(new.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(new.name).unlink()
            raise


def _instant(context: click.Context, parameter: click.Parameter, text: str | None) -> int:
    if text is None:
        return time.time_ns()
    from manglecp.mangle import INT_MAX, INT_MIN, parse_rfc3339

    ns = parse_rfc3339(text.strip().upper())
    if ns is None:
        example = "2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00"
        raise click.BadParameter(f"{text!r} is not a time such as {example}.", context, parameter)
    if not INT_MIN < ns < INT_MAX:
        message = f"{text!r} is out of range: use a time between 1677-09-21 and 2262-04-11."
        raise click.BadParameter(message, context, parameter)
    return ns


def _fact_files(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[FactFile, ...]:
    """Convert ``FILE``, or ``NAME=FILE`` for a table that is not named after its predicate."""
    if not texts:
        return ()
    from manglecp.pack.factfiles import FactFile

    fact_files = []
    for text in texts:
        name, equals, file = text.partition("=")
        named = bool(equals) and not Path(text).exists()
        path = Path(file if named else text)
        if not path.is_file():
            message = f"there is no file {click.format_filename(path)!r}."
            raise click.BadParameter(message, context, parameter)
        fact_files.append(FactFile(path, name if named else None))
    return tuple(fact_files)


files_argument: Final = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
now_option: Final = click.option(
    "--now", metavar="TIME", callback=_instant, help="The evaluation time in RFC 3339; by default the current time."
)
limit_option: Final = click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=10_000_000,
    help="Maximum of derived facts; by default 10,000,000.",
)
facts_option: Final = click.option(
    "--facts",
    "fact_files",
    metavar="[NAME=]FILE",
    multiple=True,
    callback=_fact_files,
    help="A file of facts: .mg, .jsonl, .csv, .parquet or .sc, also with .gz. May be given several times.",
)
bounds_option: Final = click.option(
    "--bounds",
    type=click.Choice(["error", "off"]),
    default="error",
    help="Whether type bounds are checked, and a violation is an error (error), or not checked (off).",
)


def read_sources(names: Iterable[str]) -> list[Source]:
    """Read program text. If a file is not valid text, raise a ``ParseError`` with the errors of all files."""
    from manglecp.mangle import ParseError, decode, parse

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


def read_fact_files(files: Sequence[FactFile], program: Program, *, check: bool) -> list[Fact]:
    """Read the facts in these files. Raises ``UsageError`` for a file that cannot be opened."""
    from manglecp.pack.factfiles import read_facts

    try:
        return read_facts(files, program, check=check)
    except OSError as error:
        name = click.format_filename(error.filename) if error.filename else "a fact file"
        raise click.UsageError(f"cannot read {name}: {error.strerror or error}") from None
