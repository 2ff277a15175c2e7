"""Ids of tests, as pytest writes them: a path, and names after ``::``.

They become arguments of a program, so they must not be taken for anything else: not for options, and not for ``@file``,
from which pytest would read more arguments.
"""

from __future__ import annotations

from typing import Final

from .refusal import Refused
from .roots import plain

__all__ = ["argument_of"]

_LONGEST: Final = 2_000


def argument_of(test: str) -> str:
    """The id as an argument that is nothing but a place below the repository."""
    path, *_ = test.split("::", 1)
    if len(test) > _LONGEST or not test.isprintable():
        raise Refused(f"{test[:80]!r} is no id of a test: it is too long, or has characters that nobody sees")
    plain(path)
    return f"./{test}"
