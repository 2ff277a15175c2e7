"""Text for people and models: find, escape or truncate invisible characters.

An invisible character can still be read by a model, or reverse what a person sees, so it has no place in a name, a
description, a rule or a skill (threat 3). In prose a joiner behind a letter of a joining script or between two emoji,
and a variation selector behind the sign that it turns into an emoji, are part of that sign and allowed.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

# Controls but for tab and line break; soft hyphen; fillers that are blank; joiners and marks of direction; separators
# of lines; embeddings and isolates; invisible operators; variation selectors; byte order mark; notes between lines;
# shorthand and musical formatting; tags; more variation selectors; private use; noncharacters.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
# White_Space of Unicode. str.strip() also removes U+001C to U+001F.
_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Printable characters without a glyph: fillers, joiners, variation selectors."""
_MAX_QUOTED: Final = 40
"""Characters of a client's text that a message repeats."""
_LAYOUT: Final = re.compile(r"[\t\n]")
_JOINERS: Final = "\u200c\u200d"
_PRESENTATIONS: Final = "\ufe0e\ufe0f"
_KEYCAP: Final = re.compile("[#*0-9]\ufe0f\u20e3")
_SIGNS: Final = frozenset("‼⁉〰ℹ")
"""Emoji base characters outside the symbol categories."""
_LETTERS: Final = frozenset({"Lo", "Lm", "Mn", "Mc"})
_UNJOINED: Final = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "HEBREW", "COMBINING", "VARIATION")


def find_invisible(text: str, *, running: bool = False) -> tuple[int, str] | None:
    """Return the offset and code point of the first invisible character, or None.

    In ``running`` text, tabs, line breaks and characters that are part of a letter or an emoji are allowed.
    """
    if text.isascii() and text.isprintable():
        return None
    first = None if running else _LAYOUT.search(text)
    for match in _INVISIBLE.finditer(text):
        at = match.start()
        if first is not None and first.start() < at:
            break
        if not running or not (_is_part_of_sign(text, at) or text.startswith("\r\n", at)):
            return at, _code(match[0])
    return None if first is None else (first.start(), _code(first[0]))


def find_invisible_in(value: Any) -> tuple[str, str] | None:
    """Return the JSON pointer and code point of the first invisible character in a JSON value, or None."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        way, part = waiting.pop()
        if isinstance(part, str):
            if (hidden := find_invisible(part, running=True)) is not None:
                return way or "/", hidden[1]
        elif isinstance(part, dict):
            for key in part:
                if (hidden := find_invisible(key)) is not None:
                    return f"{way}/{replace_invisible(key)[:80]}", hidden[1]
            waiting += ((f"{way}/{key}", inner) for key, inner in reversed(part.items()))
        elif isinstance(part, list):
            waiting += ((f"{way}/{number}", inner) for number, inner in reversed(list(enumerate(part))))
    return None


def replace_invisible(text: str) -> str:
    """Return the text with U+FFFD in place of each invisible character."""
    replaced = _LAYOUT.sub(" ", _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text))
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in replaced)


def _is_part_of_sign(text: str, at: int) -> bool:
    """Return whether an invisible character is part of the letter or the emoji before it."""
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
    if unicodedata.category(character) not in _LETTERS or _INVISIBLE.match(character):
        return False
    return not unicodedata.name(character, "CJK").startswith(_UNJOINED)


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def has_invisible(text: str) -> bool:
    return _INVISIBLE.search(text) is not None


def escape_invisible(text: str) -> str:
    """Return the text with invisible characters as ``\\u202e``, unless they are part of a letter or an emoji."""
    if text.isascii() and text.isprintable():
        return text
    return _INVISIBLE.sub(lambda found: found[0] if _is_part_of_sign(text, found.start()) else _escape(found[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def escape_unprintable(text: str) -> str:
    """Return the text with every character that is not printable, or is blank, escaped as in Python source."""
    if text.isprintable() and (text.isascii() or _BLANK.search(text) is None):
        return text
    return "".join(
        c if c.isprintable() and _BLANK.match(c) is None else c.encode("unicode_escape").decode("ascii") for c in text
    )


def truncate(text: str, longest: int = _MAX_QUOTED) -> str:
    """Return the beginning of a text that a client sent, escaped for a message."""
    return escape_unprintable(text if len(text) <= longest else f"{text[:longest]}…")


def quote(text: str, longest: int = _MAX_QUOTED) -> str:
    """Return :func:`truncate` in quotation marks."""
    return f"'{truncate(text, longest)}'"


def trim(text: str) -> str:
    """Return the text without Unicode White_Space at both ends."""
    return text.strip(_SPACES)


def normalize_word(text: str) -> str:
    """Return a word of a vocabulary: trimmed, ASCII letters in lower case."""
    return text.strip(_SPACES).translate(_LOWER)
