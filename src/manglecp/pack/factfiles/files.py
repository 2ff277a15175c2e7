"""A fact file on disk, read within limits, and everything that is wrong with it.

Of a file whose hash is known, the bytes that were hashed are the bytes that are used: it is read once, compared, and
then unpacked.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from manglecp.base.diagnostic import Diagnostic, FileLocation
from manglecp.base.source import Source, Span
from manglecp.mangle import ParseError, decode


@dataclass(frozen=True, slots=True)
class FileLimits:
    """N pass, N + 1 is an error. ``bytes`` counts what a file unpacks to, ``facts`` those of all files together."""

    bytes: int = 1 << 30
    facts: int = 20_000_000
    line: int = 1 << 20
    """Characters of one line, where a line is a record."""
    errors: int = 20
    """How many errors of one file are reported."""


class FileErrors:
    """Errors of one file. The first one too many ends the reading."""

    def __init__(self, source: Source, most: int) -> None:
        self.source = source
        self.most = most
        self.found: list[Diagnostic] = []

    def add(self, message: str, start: int, end: int, fix: str | None = None) -> None:
        """Note what is wrong between two offsets of the text."""
        self.note(Diagnostic("parse", message, Span(self.source, start, max(end, start + 1)), fix=fix))

    def add_line(self, message: str, line: int, fix: str | None = None) -> None:
        """A mistake at a whole line."""
        start = self.source.offset(line)
        self.add(message, start, start + len(self.source.line(line)), fix)

    def note(self, diagnostic: Diagnostic) -> None:
        """Add a diagnostic; raises with all of them when the limit is reached."""
        self.found.append(diagnostic)
        if len(self.found) >= self.most:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise with all that was found."""
        raise ParseError(self.found)

    def settle(self) -> None:
        """Raise if there are errors."""
        if self.found:
            self.refuse()


def refuse(file: str, message: str, fix: str | None = None) -> NoReturn:
    """Refuse a file as a whole."""
    raise ParseError([Diagnostic("parse", message, FileLocation(file), fix=fix)])


_SLICE: Final = 1 << 20


def contents(path: Path, limits: FileLimits, name: str, sha256: str | None = None) -> bytes:
    """What is in a file; unpacked if it ends in ``.gz``. A file that cannot be read raises OSError.

    ``name`` is what messages call it. With ``sha256`` it is refused unless that is the hash of the file.
    """
    try:
        with path.open("rb") if sha256 is None else _hashed(path, limits, name, sha256) as raw:
            if path.suffix == ".gz":
                with gzip.open(raw) as packed:
                    data = packed.read(limits.bytes + 1)
            else:
                data = raw.read(limits.bytes + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        refuse(name, f"not a gzip file, or a damaged one: {error}", "pack it again, or drop the .gz from its name")
    if len(data) > limits.bytes:
        refuse(name, f"more than {limits.bytes:,} bytes", "split the file, or give larger FileLimits")
    return data


def source(path: Path, limits: FileLimits, name: str, sha256: str | None = None) -> Source:
    """The text of a file, under the name that messages give it. ``sha256`` is what its bytes have to have."""
    return decode(name, contents(path, limits, name, sha256))


def _hashed(path: Path, limits: FileLimits, name: str, sha256: str) -> BinaryIO:
    """Return the bytes that have this hash, without blocking on a pipe put in place of the file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123  # pathlib cannot open a descriptor
        data = file.read(limits.bytes + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    if len(data) > limits.bytes:
        refuse(name, f"more than {limits.bytes:,} bytes", "split the file, or give larger FileLimits")
    if hashlib.sha256(data).hexdigest() != sha256:
        refuse(name, "the file has changed since the pack was read", "read the pack again")
    return io.BytesIO(data)


def lines(text: str) -> Iterator[str]:
    """The lines with their ends, without a second copy of the whole text. Only ``\\n`` ends a line."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _SLICE) + 1 or len(text)
        yield from io.StringIO(text[start:end], newline="\n")
        start = end
