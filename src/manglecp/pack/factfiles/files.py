"""Bounded reads of fact files, and the diagnostics of one file.

A file with an expected hash is read once, so that the bytes that are hashed are the bytes that are unpacked.
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
from manglecp.mangle import ParseError


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Inclusive limits. ``bytes`` and ``errors`` are per file, ``facts`` for all files together."""

    bytes: int = 1 << 30  # of the unpacked file
    facts: int = 20_000_000
    line: int = 1 << 20  # characters, in formats with one record per line
    errors: int = 20


SPLIT_FIX: Final = "split the file, or give larger FileLimits"  # the fix for an exceeded limit
_SLICE: Final = 1 << 20  # characters; :func:`lines` copies about so many at a time


class FileErrors:
    """Collects the diagnostics of one file; raises all in a :class:`ParseError` when their number reaches the limit."""

    def __init__(self, source: Source, limit: int) -> None:
        self.source = source
        self.limit = limit
        self.diagnostics: list[Diagnostic] = []

    def add(self, message: str, start: int, end: int, fix: str | None = None) -> None:
        """Add an error at the text between two offsets."""
        self.add_diagnostic(Diagnostic("parse", message, Span(self.source, start, max(end, start + 1)), fix=fix))

    def add_line(self, message: str, line: int, fix: str | None = None) -> None:
        start = self.source.line_start(line)
        self.add(message, start, start + len(self.source.line_text(line)), fix)

    def add_diagnostic(self, diagnostic: Diagnostic) -> None:
        self.diagnostics.append(diagnostic)
        if len(self.diagnostics) >= self.limit:
            self.raise_all()

    def raise_all(self) -> NoReturn:
        raise ParseError(self.diagnostics)

    def raise_if_any(self) -> None:
        if self.diagnostics:
            self.raise_all()


def refuse_file(file: str, message: str, fix: str | None = None) -> NoReturn:
    """Raise :class:`ParseError` for a whole file."""
    raise ParseError([Diagnostic("parse", message, FileLocation(file), fix=fix)])


def read_bytes(path: Path, limits: FileLimits, name: str, sha256: str | None = None) -> bytes:
    """Return the bytes of a file, unpacked if it ends in ``.gz``. Raises :class:`ParseError` or ``OSError``.

    ``name`` is used in messages; ``sha256`` is the hash that the file must have.
    """
    try:
        stream = path.open("rb") if sha256 is None else _open_hashed(path, limits, name, sha256)
        with stream as raw:
            if path.suffix == ".gz":
                with gzip.open(raw) as unpacked:
                    data = unpacked.read(limits.bytes + 1)
            else:
                data = raw.read(limits.bytes + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        refuse_file(name, f"not a gzip file, or a damaged one: {error}", "pack it again, or drop the .gz from its name")
    if len(data) > limits.bytes:
        refuse_file(name, f"more than {limits.bytes:,} bytes", SPLIT_FIX)
    return data


def _open_hashed(path: Path, limits: FileLimits, name: str, sha256: str) -> BinaryIO:
    """Return a stream of the file's bytes if they have this hash. Does not block on a pipe put in place of the file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123  # pathlib cannot open a descriptor
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        data = file.read(limits.bytes + 1) if is_regular else b""  # b"" has another hash, and so is refused below
    if len(data) > limits.bytes:
        refuse_file(name, f"more than {limits.bytes:,} bytes", SPLIT_FIX)
    if hashlib.sha256(data).hexdigest() != sha256:
        refuse_file(name, "the file has changed since the pack was read", "read the pack again")
    return io.BytesIO(data)


def lines(text: str) -> Iterator[str]:
    """Yield the lines with their ends, without a copy of the whole text. Only ``\\n`` ends a line."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _SLICE) + 1 or len(text)
        yield from io.StringIO(text[start:end], newline="\n")
        start = end
