"""Who looks after a file: ``CODEOWNERS``, with the rules that GitHub has for it.

The first of three places that has the file counts, and of its lines the last one that matches; a line without owners
takes them away. Patterns are like those of ``.gitignore``, with differences: no ``!``, no ``[a-z]``, and ``folder/*``
does not reach below that folder. A line that breaks these rules is passed over, as there, but told.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["PLACES", "Owners", "pattern_of"]

PLACES: Final = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
_OWNER: Final = re.compile(r"@[A-Za-z0-9][\w-]*(?:/[\w.-]+)?|[^@\s]+@[^@\s]+\.[^@\s]+")
_WORD: Final = re.compile(r"(?:\\.|[^\\\s])+")


class _Line(NamedTuple):
    pattern: re.Pattern[str]
    owners: tuple[str, ...]


class Owners:
    """The lines of a file. ``invalid`` has the numbers of those that say nothing."""

    def __init__(self, text: str) -> None:
        self._lines: list[_Line] = []
        self.invalid: list[int] = []
        for number, line in enumerate(text.splitlines(), 1):
            words = []
            for word in _WORD.findall(line):
                if word.startswith("#"):
                    break
                words.append(word)
            if not words:
                continue
            pattern = pattern_of(words[0])
            if pattern is None or not all(_OWNER.fullmatch(owner) for owner in words[1:]):
                self.invalid.append(number)
            else:
                self._lines.append(_Line(pattern, tuple(dict.fromkeys(words[1:]))))
        self._lines.reverse()

    def of(self, path: str) -> tuple[str, ...]:
        """The owners of a file."""
        return next((line.owners for line in self._lines if line.pattern.fullmatch(path)), ())


def pattern_of(text: str) -> re.Pattern[str] | None:
    """What a pattern means for names of files; None if it is none."""
    if text.startswith("!") or "[" in text or "***" in text or not text.strip("/"):
        return None
    anchored = "/" in text.rstrip("/")  # also where that is the first sign
    parts = text.strip("/").split("/")
    if "" in parts:
        return None
    if not anchored:
        parts = ["**", *parts]
    expression = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            expression += ".+" if last else "(?:.+/)?"
        else:
            expression += _part(part) + ("" if last else "/")
    if text.endswith("/"):
        expression += "/.+"
    elif parts[-1] not in ("*", "**"):
        expression += "(?:/.+)?"  # a folder of that name
    return re.compile(expression, re.DOTALL)


def _part(text: str) -> str:
    pieces, signs = [], iter(text)
    for sign in signs:
        if sign == "\\":
            pieces.append(re.escape(next(signs, "\\")))
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign))
    expression = "".join(pieces)
    return "[^/]+" if expression == "[^/]*" else expression
