"""Test ids in the form of pytest: a path, followed by names after ``::``.

Their paths become arguments of a program, so they must not be mistaken for options or for ``@file``, from which pytest
would read more arguments.
"""

from __future__ import annotations

from typing import Final

from ..refusal import Refusal
from .roots import path_components

__all__ = ["covers", "path_of_test"]

_LONGEST: Final = 2_000


def path_of_test(test: str) -> str:
    """Return the file or folder of a test id. Raises :class:`Refusal` if the id is malformed."""
    path = test.split("::", 1)[0]
    if len(test) > _LONGEST or not test.isprintable():
        raise Refusal(f"{test[:80]!r} is not a test id: it is too long, or has characters that are not printable")
    path_components(path)
    return path


def covers(selected: str, test: str) -> bool:
    """Return whether a test is selected by its id, its class, its file or its folder."""
    return test == selected or test.startswith((f"{selected}::", f"{selected}[", f"{selected}/"))
