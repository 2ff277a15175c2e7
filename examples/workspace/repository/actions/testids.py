"""Ids of tests, as pytest writes them: a path, and names after ``::``.

Their paths become arguments of a program, so they must not be taken for anything else: not for options, and not for
``@file``, from which pytest would read more arguments.
"""

from __future__ import annotations

from typing import Final

from ..refusal import Refused
from .roots import plain

__all__ = ["covers", "file_of"]

_LONGEST: Final = 2_000


def file_of(test: str) -> str:
    """The file or folder of a test, below the repository."""
    path = test.split("::", 1)[0]
    if len(test) > _LONGEST or not test.isprintable():
        raise Refused(f"{test[:80]!r} is no id of a test: it is too long, or has characters that nobody sees")
    plain(path)
    return path


def covers(asked: str, test: str) -> bool:
    """Whether a test is one that was asked for by its id, its class, its file or its folder."""
    return test == asked or test.startswith((f"{asked}::", f"{asked}[", f"{asked}/"))
