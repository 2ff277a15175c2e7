"""What is wrong with something that was sent."""

from __future__ import annotations

from typing import Final, Self

_LONGEST: Final = 40
"""Characters of what was sent that are repeated at once."""
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
        steps = (f"[{step}]" if isinstance(step, int) else f".{_cut(step)}" for step in self.steps[:_FURTHEST])
        return "$" + "".join(steps) + ("…" if len(self.steps) > _FURTHEST else "")


def shown(text: str, longest: int = _LONGEST) -> str:
    """A text as a message quotes it."""
    return f"'{_cut(text, longest)}'"


def _cut(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
