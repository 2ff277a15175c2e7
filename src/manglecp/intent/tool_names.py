"""Names of tools: visible characters, one script, at most 64 of them."""

from __future__ import annotations

import unicodedata
from typing import Final

from manglecp.base.text import escape_invisible, has_invisible

__all__ = ["LONGEST_NAME", "name_problem"]

LONGEST_NAME: Final = 64
"""TOOL-03."""

_SCRIPTS: Final = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "HEBREW", "ARABIC")


def name_problem(name: str) -> str | None:
    """What is wrong with the name of a tool, as the end of a sentence."""
    if not name.strip():
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters, and the longest that clients show is {LONGEST_NAME}"
    if "\n" in name or "\t" in name or has_invisible(name):
        return f"has characters that are not seen: {escape_invisible(name)}".replace("\n", "\\n").replace("\t", "\\t")
    if unicodedata.normalize("NFKC", name) != name:
        return "has characters that look like others; write it in its normal form (NFKC)"
    scripts = sorted({script for letter in name if letter.isalpha() for script in _script(letter)})
    if len(scripts) > 1:
        return f"mixes the scripts {' and '.join(script.title() for script in scripts)}, whose letters look alike"
    return None


def _script(letter: str) -> tuple[str, ...]:
    """The script of a letter, if letters of other scripts look like it."""
    if letter.isascii():
        return ("LATIN",)
    first = unicodedata.name(letter, "").partition(" ")[0]
    return (first,) if first in _SCRIPTS else ()
