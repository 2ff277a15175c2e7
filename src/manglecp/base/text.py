"""Text for people and models: find, replace and escape invisible characters; truncate and trim texts.

A model can read invisible characters, and some of these reverse the order in which a person sees the text. Therefore
names, descriptions, rules and skills must not contain any (threat 3 of ``docs/explanation/threat-model.md``). Running
text may contain two kinds: joiners after a letter of a script that uses joiners, or between two emoji; and variation
selectors after a character that has an emoji form and a text form.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad"  # control characters except tab and line feed; soft hyphen
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"  # grapheme joiner, Hangul fillers, Khmer vowels, blank Braille
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # zero widths, bidi controls, line separators, operators
    "\u180b-\u180f\ufe00-\ufe0f\U000e0000-\U000e0fff"  # variation selectors and tags
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # annotation, shorthand and musical format controls
    "\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]"  # surrogates, private, noncharacters
)
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""The invisible characters for which str.isprintable() is true."""
_LAYOUT: Final = re.compile(r"[\t\n]")
_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""White_Space of Unicode. str.strip() without an argument also removes U+001C to U+001F."""
_ASCII_LOWER: Final = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_MAX_QUOTED: Final = 40  # characters of a client's text that a message repeats
_MAX_KEY: Final = 80  # characters of an invalid key that a path shows
_AGE: Final = re.compile(r"([1-9][0-9]{0,5})([dhms])")
_AGE_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_JOINERS: Final = "\u200c\u200d"  # zero width non-joiner, zero width joiner
_EMOJI_SELECTORS: Final = "\ufe0e\ufe0f"  # variation selectors of the text form and of the emoji form
_KEYCAP: Final = re.compile("[#*0-9]\ufe0f\u20e3")
_NON_SYMBOL_EMOJI: Final = frozenset("‼⁉〰ℹ")  # emoji outside the symbol categories of Unicode
_JOINABLE_CATEGORIES: Final = frozenset({"Lo", "Lm", "Mn", "Mc"})
_NO_JOINER_NAMES: Final = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "HEBREW", "COMBINING", "VARIATION")
"""Prefixes of the Unicode names of characters that take no joiner, although their category is joinable."""


def find_invisible(text: str, *, running: bool = False) -> tuple[int, str] | None:
    """Return the offset and code point (``U+200B``) of the first invisible character, tab or line feed, or None.

    In ``running`` text, tabs, line breaks and characters that are part of a letter or an emoji are allowed.
    """
    if text.isascii() and text.isprintable():
        return None
    first_layout = None if running else _LAYOUT.search(text)
    for match in _INVISIBLE.finditer(text):
        offset = match.start()
        if first_layout is not None and first_layout.start() < offset:
            break
        if not running or not (_belongs_to_previous(text, offset) or text.startswith("\r\n", offset)):
            return offset, _code_point(match[0])
    return None if first_layout is None else (first_layout.start(), _code_point(first_layout[0]))


def find_invisible_in(value: Any) -> tuple[str, str] | None:
    """Return the path and code point of the first invisible character in the keys and texts of a JSON value, or None.

    The path is for messages. It is like a JSON pointer, but ``/`` means the whole value, and keys are not escaped.
    """
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        path, part = pending.pop()
        if isinstance(part, str):
            if (invisible := find_invisible(part, running=True)) is not None:
                return path or "/", invisible[1]
        elif isinstance(part, dict):
            for key in part:
                if (invisible := find_invisible(key)) is not None:
                    return f"{path}/{replace_invisible(key)[:_MAX_KEY]}", invisible[1]
            pending += ((f"{path}/{key}", member) for key, member in reversed(part.items()))
        elif isinstance(part, list):
            pending += ((f"{path}/{index}", item) for index, item in reversed(list(enumerate(part))))
    return None


def replace_invisible(text: str) -> str:
    """Return the text with tabs and line feeds as spaces, and other invisible or unprintable characters as U+FFFD."""
    replaced = _LAYOUT.sub(" ", _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text))
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in replaced)


def _belongs_to_previous(text: str, offset: int) -> bool:
    """Return whether the invisible character at this offset is part of the letter or emoji before it."""
    character, before = text[offset], (text[offset - 1] if offset else " ")
    if character in _EMOJI_SELECTORS:
        return _is_symbol(before) or _KEYCAP.match(text, offset - 1) is not None
    if character not in _JOINERS:
        return False
    if _takes_joiner(before):
        return True
    emoji = text[offset - 2 : offset - 1] if before in _EMOJI_SELECTORS else before
    return character == "\u200d" and _is_symbol(emoji) and _is_symbol(text[offset + 1 : offset + 2])


def _is_symbol(character: str) -> bool:
    if not character or character.isascii():
        return False
    is_skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    return is_skin_tone or character in _NON_SYMBOL_EMOJI or unicodedata.category(character) in ("So", "Sm")


def _takes_joiner(letter: str) -> bool:
    if unicodedata.category(letter) not in _JOINABLE_CATEGORIES or _INVISIBLE.match(letter):
        return False
    name = unicodedata.name(letter, "")  # empty for the ideographs of some scripts, which take no joiner
    return name != "" and not name.startswith(_NO_JOINER_NAMES)


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def has_invisible(text: str) -> bool:
    """Return whether a character is invisible, even as part of an emoji; tabs and line feeds do not count."""
    return _INVISIBLE.search(text) is not None


def escape_invisible(text: str) -> str:
    """Return the text with escapes such as ``\\u202e`` for invisible characters outside of letters and emoji."""
    if text.isascii() and text.isprintable():
        return text
    return _INVISIBLE.sub(lambda m: m[0] if _belongs_to_previous(text, m.start()) else _escape(m[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def escape_unprintable(text: str) -> str:
    """Return a text for one line of a message: unprintable and blank characters escaped as in Python source."""
    if text.isprintable() and (text.isascii() or _BLANK.search(text) is None):
        return text
    return "".join(
        c if c.isprintable() and _BLANK.match(c) is None else c.encode("unicode_escape").decode("ascii") for c in text
    )


def truncate(text: str, longest: int = _MAX_QUOTED) -> str:
    """Return the first ``longest`` characters of a text that a client sent, escaped for a message."""
    return escape_unprintable(text if len(text) <= longest else f"{text[:longest]}…")


def quote(text: str) -> str:
    """Return :func:`truncate` in quotation marks."""
    return f"'{truncate(text)}'"


def trim(text: str) -> str:
    """Return the text without Unicode White_Space at both ends."""
    return text.strip(_SPACES)


def normalize_word(text: str) -> str:
    """Return a word of a vocabulary: trimmed, ASCII letters in lower case."""
    return text.strip(_SPACES).translate(_ASCII_LOWER)


def parse_age(text: str) -> int | None:
    """Return the nanoseconds of an age such as ``90d``, in days, hours, minutes or seconds; None for any other text."""
    match = _AGE.fullmatch(text)
    return None if match is None else int(match[1]) * _AGE_SECONDS[match[2]] * 10**9


def age_text(nanoseconds: int) -> str:
    """Return an age in its two largest units, such as ``1h 5m``."""
    seconds = max(nanoseconds // 10**9, 0)
    counts = []
    for unit, length in _AGE_SECONDS.items():
        count, seconds = divmod(seconds, length)
        counts.append(f"{count}{unit}")
    first = next((i for i, count in enumerate(counts) if not count.startswith("0")), len(counts) - 1)
    return " ".join(count for count in counts[first : first + 2] if not count.startswith("0")) or counts[-1]
