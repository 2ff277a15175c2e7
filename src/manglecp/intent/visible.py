"""Text that a person sees as it is: what is approved must be what is read.

Some characters change what is shown without being seen: controls of direction, characters of no width, the block of
tags that only a machine reads. In the text of a tool they serve nobody but someone who wants a person and a model to
read different things. They are written out, as ``\\u202e``, wherever a tool or a skill is shown, and a pack that names
a tool with them is refused. Names may use one script at a time, so that none looks like another.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from manglecp.pack.texts import HIDDEN, belongs

__all__ = ["LONGEST_NAME", "hidden", "name_problem", "shown"]

LONGEST_NAME: Final = 64
"""TOOL-03."""

_SCRIPTS: Final = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "HEBREW", "ARABIC")


def hidden(text: str) -> bool:
    """Does the text hold a character that is not seen?"""
    return HIDDEN.search(text) is not None


def shown(text: str) -> str:
    """The text with every character that is not seen written out, unless a letter or an emoji needs it."""
    if text.isascii() and text.isprintable():
        return text
    return HIDDEN.sub(lambda found: found[0] if belongs(text, found.start()) else _written_out(found), text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def name_problem(name: str) -> str | None:
    """What is wrong with the name of a tool, as the end of a sentence."""
    if not name.strip():
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters, and the longest that clients show is {LONGEST_NAME}"
    if "\n" in name or "\t" in name or hidden(name):
        return f"has characters that are not seen: {shown(name)}".replace("\n", "\\n").replace("\t", "\\t")
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
