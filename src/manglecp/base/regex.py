"""Regular expressions that RE2 matches in linear time. RE2 is imported at the first use, which takes 15 ms."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

MAX_PATTERN: Final = 1_000  # characters
MAX_TEXT: Final = 100_000  # characters of a text to be searched
_MAX_MEMORY: Final = 1 << 20  # bytes of one compiled pattern; with less memory, RE2 uses its slow matcher more often
_LETTER: Final = r"\pL\pM\pN_"


class InvalidPattern(Exception):
    """A pattern that RE2 does not accept; the text is the reason."""


def searches(pattern: str, text: str) -> bool:
    """Return whether a part of the text matches. Raises :class:`InvalidPattern`."""
    return _compile(pattern).search(text.encode(errors="surrogatepass")) is not None


def has_word(word: str, text: str) -> bool:
    """Return whether the text has the word, in upper or lower case, with no letter, digit or underscore beside it."""
    quoted = "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in word)
    return bool(word) and searches(f"(?i)(?:^|[^{_LETTER}]){quoted}(?:$|[^{_LETTER}])", text)


@lru_cache(512)
def _compile(pattern: str) -> Any:
    import re2

    try:
        return re2.compile(pattern.encode(errors="surrogatepass"), _options())
    except re2.error as error:
        reason = error.args[0] if error.args else "not a pattern"
        raise InvalidPattern(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = _MAX_MEMORY, False, True
    return options
