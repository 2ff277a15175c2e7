"""A file on disk as bytes and as text, within limits."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from manglecp.mangle.parser import decode
from manglecp.mangle.source import Source
from manglecp.pack.factfiles.limits import FileLimits
from manglecp.pack.factfiles.problems import refuse

_SLICE: Final = 1 << 20


def contents(path: Path, limits: FileLimits) -> bytes:
    """What is in a file; unpacked if it ends in ``.gz``. A file that cannot be read raises OSError."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(limits.bytes + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        refuse(str(path), f"not a gzip file, or a damaged one: {error}", "pack it again, or drop the .gz from its name")
    if len(data) > limits.bytes:
        refuse(str(path), f"more than {limits.bytes:,} bytes", "split the file, or give larger FileLimits")
    return data


def source(path: Path, limits: FileLimits) -> Source:
    return decode(str(path), contents(path, limits))


def lines(text: str) -> Iterator[str]:
    """The lines with their ends, without a second copy of the whole text. Only ``\\n`` ends a line."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _SLICE) + 1 or len(text)
        yield from io.StringIO(text[start:end], newline="\n")
        start = end
