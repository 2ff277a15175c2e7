"""What is wrong with something that was sent."""

from __future__ import annotations

from typing import Self


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
        """``$.args[1]``"""
        return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)


def shown(text: str, longest: int = 40) -> str:
    """A text as a message quotes it."""
    return f"'{text}'" if len(text) <= longest else f"'{text[:longest]}…'"
