"""What is wrong with something that was sent.

What was sent is repeated only through here: few characters of it, and none that a terminal or a reader would obey or
not see. Those are written out, ``\\x1b`` or ``\\u202e``.
"""

from __future__ import annotations

from typing import Final, Self

from manglecp.base.text import truncate

_FURTHEST: Final = 64
"""Steps of a way that are told."""


class Fault(Exception):
    """One thing that is wrong: a sentence, what would fix it, and the way to it from the outermost value."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.steps: tuple[str | int, ...] = ()

    def inside(self, *steps: str | int) -> Self:
        """The same fault, seen from further out."""
        self.steps = (*steps, *self.steps)
        return self

    @property
    def path(self) -> str:
        """``$.args[1]``; a key that is long is cut, and so is a long way."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{truncate(step)}" for step in self.steps[:_FURTHEST])
        return "$" + "".join(steps) + ("…" if len(self.steps) > _FURTHEST else "")
