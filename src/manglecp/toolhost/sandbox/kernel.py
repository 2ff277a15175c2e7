"""Calling the kernel through ctypes: a failed call is an `OSError` that names it."""

import ctypes
import os
from typing import TypeAlias

from .policy import Unsupported
from .syscalls import number

Buffer: TypeAlias = "ctypes.Array[ctypes.c_char]"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = [ctypes.c_long] * 7


def call(name: str, *arguments: int) -> int:
    """A system call by its name. Pointers are passed as addresses; the caller keeps the buffers alive."""
    found = number(name)
    if found is None:
        raise Unsupported(f"no system call {name} on {os.uname().machine}")
    padded = (*arguments, *([0] * (6 - len(arguments))))
    result: int = _libc.syscall(found, *padded)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def prctl(option: int, value: int = 0) -> None:
    """For options that take one number."""
    call("prctl", option, value)


def address(buffer: Buffer) -> int:
    """Where a buffer begins; whoever passes that on has to keep the buffer."""
    return ctypes.addressof(buffer)


def text(value: str) -> Buffer:
    """A path as the kernel wants it."""
    return ctypes.create_string_buffer(os.fsencode(value))


def packed(value: bytes) -> Buffer:
    """A structure as the kernel wants it."""
    return ctypes.create_string_buffer(value, len(value))
