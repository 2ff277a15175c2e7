"""Paths that a person has put in or out of bounds, for rules and for actions.

``folder/`` is all below a folder, ``*.ending`` every name that ends so, ``name`` a file of that name anywhere and
``folder/name`` that very one. Nothing else is understood, and what is not is refused: a pattern that protects nothing
would be worse than none.

Rules compare texts with names of files to come. What is protected they compare in small letters, for a file system may
take two names for one that differ only in that; actions go further, and also know other letters than those of ASCII.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase
from typing import Final

__all__ = ["bounds", "in_small_letters", "is_within"]

_SMALL: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


def bounds(setting: str, patterns: str) -> Iterator[tuple[str, str]]:
    """Predicate and text for each of the patterns, which have spaces or commas between them."""
    for kind, text in _read(setting, patterns):
        yield f"{setting}_{kind}", text


def in_small_letters(bound: tuple[str, str]) -> tuple[str, str]:
    """The same for whoever compares it with paths in small letters; letters as rules know them."""
    return bound[0], bound[1].translate(_SMALL)


def is_within(path: str, setting: str, patterns: str) -> bool:
    """Whether a path is meant, however a file system spells it."""
    seen = _one_spelling(path)
    for kind, text in _read(setting, patterns):
        wanted = _one_spelling(text)
        if seen == wanted if kind == "path" else seen.startswith(wanted) if kind == "start" else seen.endswith(wanted):
            return True
    return False


def _read(setting: str, patterns: str) -> Iterator[tuple[str, str]]:
    for pattern in patterns.replace(",", " ").split():
        parts = pattern.removesuffix("/").split("/")
        ending = pattern.startswith("*.") and len(parts) == 1 and not pattern.endswith("/")
        if {"", ".", ".."} & set(parts) or set("*?[") & set(pattern[2:] if ending else pattern):
            raise ValueError(f"{setting}: {pattern} is none of folder/, *.ending, name, folder/name")
        if ending:
            yield "end", pattern[1:]
        elif pattern.endswith("/"):
            yield "start", pattern
        else:
            yield "path", pattern
            if len(parts) == 1:
                yield "end", f"/{pattern}"


def _one_spelling(text: str) -> str:
    """As the least particular file system would compare it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
