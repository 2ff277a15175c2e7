"""The owners of files from ``CODEOWNERS``, with the rules of GitHub.

The first existing file of three locations counts, and in it the last matching line; a line without owners removes the
owners. Patterns are those of ``.gitignore`` with differences: no ``!``, no ``[a-z]``, and ``folder/*`` does not match
in subfolders. Invalid lines are skipped and reported.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["PLACES", "Owners", "compile_pattern"]

PLACES: Final = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
_OWNER: Final = re.compile(r"@[A-Za-z0-9][\w-]*(?:/[\w.-]+)?|[^@\s]+@[^@\s]+\.[^@\s]+")
_WORD: Final = re.compile(r"(?:\\.|[^\\\s])+")


class _Line(NamedTuple):
    pattern: re.Pattern[str]
    owners: tuple[str, ...]


class Owners:
    """The rules of a ``CODEOWNERS`` file. ``invalid`` has the numbers of invalid lines."""

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
            pattern = compile_pattern(words[0])
            if pattern is None or not all(_OWNER.fullmatch(owner) for owner in words[1:]):
                self.invalid.append(number)
            else:
                self._lines.append(_Line(pattern, tuple(dict.fromkeys(words[1:]))))
        self._lines.reverse()

    def owners_of(self, path: str) -> tuple[str, ...]:
        """Return the owners of a file."""
        return next((line.owners for line in self._lines if line.pattern.fullmatch(path)), ())


def compile_pattern(text: str) -> re.Pattern[str] | None:
    """Compile a pattern to a regular expression for paths; None if it is invalid."""
    if text.startswith("!") or "[" in text or "***" in text or not text.strip("/"):
        return None
    anchored = "/" in text.rstrip("/")  # a leading slash anchors too
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
        expression += "(?:/.+)?"  # the name can be that of a folder
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
