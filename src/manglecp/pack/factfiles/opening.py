"""A file on disk as bytes and as text, within limits.

Of a file whose hash is known those bytes are used that were hashed: it is read once, compared, and then unpacked.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from manglecp.mangle import Source, decode
from manglecp.pack.factfiles.limits import FileLimits
from manglecp.pack.factfiles.problems import refuse

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
    """The bytes that have this hash. Whatever was put in place of the file, a pipe say, is not waited for."""
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
