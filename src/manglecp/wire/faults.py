"""What is wrong with something that was sent.

What was sent is repeated only through here: few characters of it, and none that a terminal or a reader would obey or
not see. Those are written out, ``\\x1b`` or ``\\u202e``.
"""

from __future__ import annotations

import re
from typing import Final, Self

_LONGEST: Final = 40
"""Characters of what was sent that are repeated at once."""
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that count as printable and show nothing: fillers, joiners, variation selectors."""
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
        steps = (f"[{step}]" if isinstance(step, int) else f".{cut(step)}" for step in self.steps[:_FURTHEST])
        return "$" + "".join(steps) + ("…" if len(self.steps) > _FURTHEST else "")


def shown(text: str, longest: int = _LONGEST) -> str:
    """A text as a message quotes it."""
    return f"'{cut(text, longest)}'"


def cut(text: str, longest: int = _LONGEST) -> str:
    """The beginning of a text, every character of it in plain sight."""
    return visible(text if len(text) <= longest else f"{text[:longest]}…")


def visible(text: str) -> str:
    """The text with every character that is not seen written out."""
    if text.isprintable() and (text.isascii() or _BLANK.search(text) is None):
        return text
    return "".join(c if c.isprintable() and _BLANK.match(c) is None else _written_out(c) for c in text)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
