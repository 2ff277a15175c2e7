"""Texts that people and models will read: what they may hold.

A character that nobody sees can still be read by a model, or turn around what a person sees. Such characters have no
business in a name, a description, a rule or a skill (threat 3). In prose a few of them are part of a letter or of an
emoji. They may stand there and nowhere else: a joiner behind a letter of a script that joins, or between two emoji; a
variation selector behind the sign that it makes an emoji of.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

__all__ = ["HIDDEN", "belongs", "unseen", "unseen_within", "without_unseen"]

# Controls but for tab and line break; soft hyphen; fillers that are blank; joiners and marks of direction; separators
# of lines; embeddings and isolates; invisible operators; variation selectors; byte order mark; notes between lines;
# shorthand and musical formatting; tags; more variation selectors; private use; code points that are no characters.
HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_LAYOUT: Final = re.compile(r"[\t\n]")
_JOINERS: Final = "\u200c\u200d"
_PRESENTATIONS: Final = "\ufe0e\ufe0f"
_KEYCAP: Final = re.compile("[#*0-9]\ufe0f\u20e3")
_SIGNS: Final = frozenset("‼⁉〰ℹ")
"""Signs that become emoji and are no symbols."""
_LETTERS: Final = frozenset({"Lo", "Lm", "Mn", "Mc"})
_UNJOINED: Final = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "HEBREW", "COMBINING", "VARIATION")


def unseen(text: str, *, running: bool = False) -> tuple[int, str] | None:
    """Where the first character is that nobody would see, and which.

    In ``running`` text lines and tabs are seen, and what is part of a letter or an emoji is.
    """
    if text.isascii() and text.isprintable():
        return None
    first = None if running else _LAYOUT.search(text)
    for found in HIDDEN.finditer(text):
        at = found.start()
        if first is not None and first.start() < at:
            break
        if not running or not (belongs(text, at) or text.startswith("\r\n", at)):
            return at, _code(found[0])
    return None if first is None else (first.start(), _code(first[0]))


def unseen_within(value: Any) -> tuple[str, str] | None:
    """The way to the first text in JSON that holds such a character, and which; in texts lines and tabs are seen."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        way, part = waiting.pop()
        if isinstance(part, str):
            if (hidden := unseen(part, running=True)) is not None:
                return way or "/", hidden[1]
        elif isinstance(part, dict):
            for key in part:
                if (hidden := unseen(key)) is not None:
                    return f"{way}/{without_unseen(key)[:80]}", hidden[1]
            waiting += ((f"{way}/{key}", inner) for key, inner in reversed(part.items()))
        elif isinstance(part, list):
            waiting += ((f"{way}/{number}", inner) for number, inner in reversed(list(enumerate(part))))
    return None


def without_unseen(text: str) -> str:
    """The text for a message, each such character replaced by one that is seen."""
    replaced = _LAYOUT.sub(" ", HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in replaced)


def belongs(text: str, at: int) -> bool:
    """Whether a character of :data:`HIDDEN` is part of the letter or the emoji before it."""
    character, before = text[at], text[at - 1] if at else " "
    if character in _PRESENTATIONS:
        return _is_symbol(before) or _KEYCAP.match(text, at - 1) is not None
    if character not in _JOINERS:
        return False
    if _joins(before):
        return True
    emoji = text[at - 2 : at - 1] if before in _PRESENTATIONS else before
    return character == "\u200d" and _is_symbol(emoji) and _is_symbol(text[at + 1 : at + 2])


def _is_symbol(character: str) -> bool:
    if not character or character.isascii():
        return False
    skin = "\U0001f3fb" <= character <= "\U0001f3ff"
    return skin or character in _SIGNS or unicodedata.category(character) in ("So", "Sm")


def _joins(character: str) -> bool:
    if unicodedata.category(character) not in _LETTERS or HIDDEN.match(character):
        return False
    return not unicodedata.name(character, "CJK").startswith(_UNJOINED)


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"
