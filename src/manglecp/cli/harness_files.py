"""What ``manglecp harness`` reads and writes: evidence, logs, policies, witnesses."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import click

from manglecp.cli.files import STDIN, read, source_name
from manglecp.cli.outputs import json_text, write_lines

if TYPE_CHECKING:  # what judges is loaded by the verbs that judge
    from manglecp.harness import Judgement

__all__ = ["INVALID", "Unreadable", "documents", "judged", "read_object", "write_file"]

INVALID: Final = 2
LARGEST_TURN: Final = 64 * 1024 * 1024
"""Bytes of the evidence of one turn."""


class Unreadable(Exception):
    """Something that cannot be read as what it should be: which, where in it, and why."""

    def __init__(self, name: str, path: str, message: str, line: int | None = None) -> None:
        super().__init__(f"{name}: {'' if line is None else f'line {line}: '}{path or '/'}: {message}")
        self.path = path
        self.message = message
        self.line = line

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints. ``line`` is there only where lines are counted."""
        place = {} if self.line is None else {"line": self.line}
        return {"result": "invalid", **place, "path": self.path, "message": self.message}

    def tell(self, *, as_json: bool) -> NoReturn:
        """Say it on standard error, with ``as_json`` on standard output as well; end the verb with status 2."""
        click.echo(f"error: {self}", err=True)
        if as_json:
            write_lines([json_text(self.as_json())])
        raise click.exceptions.Exit(INVALID)


def judged(document: Mapping[str, Any], name: str) -> Judgement:
    """The judgement about this evidence. Raises :class:`Unreadable` where it is no evidence."""
    from manglecp.harness import InvalidEvidence, judge

    try:
        return judge(document)
    except InvalidEvidence as error:
        raise Unreadable(name, error.path, error.message) from None


def read_object(file: str) -> dict[str, Any]:
    """The JSON object in a file. Raises :class:`Unreadable` where there is something else in it."""
    from manglecp.wire import Fault, decode

    try:
        value = decode(read(file, LARGEST_TURN))
    except Fault as fault:
        raise Unreadable(source_name(file), "", fault.message) from None
    if not isinstance(value, dict):
        raise Unreadable(source_name(file), "", "an object belongs here")
    return value


def documents(log: str, source: str, policy: str | None, strict: bool) -> Iterator[dict[str, Any]]:
    """The turns of a log, read as they are asked for."""
    from manglecp.harness.adapters import LogError, LogLimits, ingest as turns_of

    limits = LogLimits()
    bound, pinned = _policy(policy)
    try:
        with click.open_file(log, "rb") as stream:
            lines = _raw_lines(stream, limits.line)
            yield from turns_of(lines, source, bound, pinned=pinned, strict=strict, limits=limits)
    except LogError as error:
        raise Unreadable(source_name(log), error.path, error.message, error.line) from None
    except OSError as error:
        raise click.UsageError(f"cannot read {click.format_filename(log)}: {error.strerror}") from None


def _raw_lines(stream: IO[bytes], longest: int) -> Iterator[bytes]:
    """Lines as they stand. One that is too long comes as a piece that is too long, and is refused as that."""
    while line := stream.readline(longest + 1):
        yield line


def _policy(name: str | None) -> tuple[Any, str | None]:
    """A package and the digest that is pinned of it, or a mapping from a file."""
    if name is None:
        return None, None
    if Path(name).is_file() or name == STDIN:
        from manglecp.harness.adapters import CONSTRAINTS

        given = read_object(name)
        for member, value in given.items():
            if member in CONSTRAINTS and not isinstance(value, dict):
                raise Unreadable(source_name(name), f"/{member}", "an object belongs here")
        return given, None
    from manglecp.cli.policy_files import default_pin, load_package, load_pin
    from manglecp.harness.policy import PolicyError

    try:
        package = load_package(name)
        pin = load_pin(default_pin(name))
    except PolicyError as error:
        first = error.problems[0]
        raise Unreadable(first.place.file, first.place.pointer, first.message) from None
    return package, None if pin is None else pin.digest


def write_file(path: Path, lines: Iterable[str]) -> None:
    """All of it or nothing: a log that turns out to be damaged leaves the file as it was."""
    try:
        handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        scratch = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.writelines(f"{line}\n" for line in lines)
            scratch.chmod(0o644)
            scratch.replace(path)
        except BaseException:
            scratch.unlink()
            raise
    except OSError as error:
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None
