"""What has to be executable so that a program can start: itself and the loader that it names."""

import os
import struct
from collections.abc import Iterator

_PT_INTERP = 3


def executed_by(path: str) -> Iterator[str]:
    """The program, and its loader if it names one."""
    yield path
    loader = _loader(path)
    if loader:
        yield loader


def _loader(path: str) -> str | None:
    """The loader of a dynamically linked 64-bit program; None for everything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.pread(descriptor, 64, 0)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return None
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        for index in range(count):
            entry = os.pread(descriptor, 56, table + index * size)
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", entry)
            if kind == _PT_INTERP:
                return os.fsdecode(os.pread(descriptor, length, offset).rstrip(b"\0"))
        return None
    finally:
        os.close(descriptor)
