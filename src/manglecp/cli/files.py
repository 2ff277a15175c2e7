"""Files that verbs read and write, and groups of options."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from manglecp.base.files import replace_file
from manglecp.cli.output import ProgressLine, write_lines

if TYPE_CHECKING:  # verbs that read no program do not load the mangle package
    from manglecp.base.diagnostic import Diagnostic
    from manglecp.mangle import Source

DASH: Final = "-"  # the argument that stands for standard input or output
EXISTING_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT_FILE: Final = click.Path(dir_okay=False, path_type=Path)
F = TypeVar("F", bound=Callable[..., Any])


def combine(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Combine options into one decorator, in the order in which ``--help`` lists them."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def option(usage: str, *names: str, **attributes: Any) -> Callable[[F], F]:
    """Return an option of click; ``usage`` is the name of the option and of its value, such as ``--limit N``."""
    flag, _, metavar = usage.partition(" ")
    return click.option(flag, *names, metavar=metavar or None, **attributes)


def option_group(name: str, make: Callable[..., Any], *options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a verb and passes their values as one argument: ``name=make(...)``."""
    add_options = combine(*options)

    def placeholder() -> None: ...  # click stores the parameters of the options on a function

    members = [parameter.name for parameter in getattr(add_options(placeholder), "__click_params__", ())]

    def decorate(function: Any) -> Any:
        @wraps(function)
        def grouped(*args: Any, **kwargs: Any) -> Any:
            values = {member: kwargs.pop(member) for member in members}
            return function(*args, **kwargs, **{name: make(**values)})

        return add_options(grouped)

    return decorate


class _File(click.Path):
    """The type of a file argument. If a pack's folder is given, the error names the folder of its rules."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fspath(value))
        if path.is_dir():
            rules = " Its rules are files in rules/." if (path / "rules").is_dir() else ""
            self.fail(f"{click.format_filename(value)!r} is a folder; give a file.{rules}", param, ctx)
        return super().convert(value, param, ctx)


FILE: Final = _File(exists=True, dir_okay=False, allow_dash=True)


def source_name(file: str) -> str:
    """Return the name of a file in messages."""
    return "<stdin>" if file == DASH else file


@contextmanager
def open_binary(file: str) -> Iterator[IO[bytes]]:
    """Open a file or standard input. An ``OSError``, even of the ``with`` block, becomes a ``UsageError``."""
    if file == DASH and sys.stdin is None:
        raise click.UsageError("cannot read standard input: it is closed")
    try:
        with nullcontext(sys.stdin.buffer) if file == DASH else Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise click.UsageError(f"cannot read {click.format_filename(file)}: {error.strerror}") from None


def read(file: str, max_bytes: int | None = None) -> bytes:
    """Return the bytes of a file or of standard input. Raises ``UsageError`` for more than ``max_bytes``."""
    with open_binary(file) as stream:
        data = stream.read(-1 if max_bytes is None else max_bytes + 1)
    if max_bytes is not None and len(data) > max_bytes:
        raise click.UsageError(f"{click.format_filename(file)} has more than {max_bytes:,} bytes")
    return data


def read_json(file: str) -> Any:
    """Decode a JSON file. Raises ``UsageError`` for invalid JSON."""
    from manglecp.wire import Fault, decode

    try:
        return decode(read(file))
    except Fault as fault:
        raise click.UsageError(f"{click.format_filename(source_name(file))}: {fault}") from None


def write_export(file: str, lines: Iterable[bytes]) -> None:
    """Write lines, each with its line feed, to a file or to standard output."""
    if file == DASH:
        write_lines(line.decode().removesuffix("\n") for line in lines)
    else:
        with ProgressLine("exporting"):
            write_file(Path(file), lines)


def write_file(path: Path, lines: Iterable[bytes], *, mode: int = 0o600) -> None:
    """Replace a regular file atomically, or write into a device or pipe. Raises ``UsageError`` on failure."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                out.writelines(lines)
        else:
            replace_file(path, lines, mode)
    except OSError as error:
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None


files_argument: Final = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
export_argument: Final = click.argument(
    "file", metavar="[FILE]", type=click.Path(dir_okay=False, allow_dash=True), default=DASH
)


def read_sources(files: Iterable[str]) -> list[Source]:
    """Read program text. If a file is not valid text, raise ``ParseError`` with the syntax errors of all files."""
    from manglecp.mangle import ParseError, decode, parse

    sources: list[Source] = []
    errors: list[Diagnostic] = []
    for file in files:
        try:
            sources.append(decode(source_name(file), read(file)))
        except ParseError as error:
            errors += error.diagnostics
    if errors:
        for source in sources:
            try:
                parse(source)
            except ParseError as error:
                errors += error.diagnostics
        raise ParseError(errors)
    return sources
