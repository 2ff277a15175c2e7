"""What is wrong with something that was sent."""

from __future__ import annotations

from typing import Final, Self

_LONGEST: Final = 40
"""Characters of what was sent that are repeated at once."""


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
        """``$.args[1]``; a key that is long is cut."""
        return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{_cut(step)}" for step in self.steps)


def shown(text: str, longest: int = _LONGEST) -> str:
    """A text as a message quotes it."""
    return f"'{_cut(text, longest)}'"


def _cut(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
