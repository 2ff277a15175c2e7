"""Ids that nobody else has and nobody can foresee: 128 random bits each, in hexadecimal.

They are drawn from the system many at a time: to ask it for sixteen bytes costs more than all else that is done for one
of them. A process that was forked draws its own, so that no two have the same.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["random_id"]

_DIGITS: Final = 32
_AT_A_TIME: Final = 64
_drawn: Final[list[str]] = []


def random_id() -> str:
    """One that was never given before. May be called from any thread."""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            digits = os.urandom(_AT_A_TIME * _DIGITS // 2).hex()
            _drawn.extend([digits[at : at + _DIGITS] for at in range(0, len(digits), _DIGITS)])


os.register_at_fork(after_in_child=_drawn.clear)
