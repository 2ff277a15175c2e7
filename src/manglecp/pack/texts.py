"""Texts that people and models will read: what they may hold.

A character that nobody sees can still be read by a model, or turn around what a person sees. Such characters have no
business in a name, a description or a skill (threat 3): controls, the tag block, marks of direction, zero widths. The
two joiners are letters' business in several scripts, and are left alone in running text.
"""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["unseen"]

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS: Final = "\u200c\u200d"


def unseen(text: str, *, running: bool = False) -> tuple[int, str] | None:
    """Where the first character is that nobody would see, and which; lines and tabs are seen in ``running`` text."""
    if text.isascii() and text.isprintable():
        return None
    allowed = "\n\t\r" + _JOINERS if running else ""
    for at, character in enumerate(text):
        if unicodedata.category(character) in _HIDDEN and character not in allowed:
            return at, f"U+{ord(character):04X}"
    return None
