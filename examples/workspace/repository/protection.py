"""Path patterns of the settings ``protected`` and ``area``, for rules and for actions.

``folder/`` matches all files below a folder, ``*.ending`` all names with that ending, ``name`` a file of that name in
any folder, and ``folder/name`` one path. Any other pattern is an error, because it would protect no file.

Rules compare protected paths in lower case (ASCII only), because two spellings can be one file on a case-insensitive
file system. Actions also compare normalised Unicode.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase
from typing import Final

__all__ = ["in_lower_case", "matches_bounds", "path_bounds"]

_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


def path_bounds(setting: str, patterns: str) -> Iterator[tuple[str, str]]:
    """Yield a predicate and a text for each pattern; patterns are separated by spaces or commas."""
    for kind, text in _read(setting, patterns):
        yield f"{setting}_{kind}", text


def in_lower_case(bound: tuple[str, str]) -> tuple[str, str]:
    """Return a bound with its ASCII letters in lower case, as the rules compare it."""
    return bound[0], bound[1].translate(_LOWER)


def matches_bounds(path: str, setting: str, patterns: str) -> bool:
    """Return whether a path matches one of the patterns, in any spelling that a file system treats as equal."""
    name = _normalise(path)
    for kind, text in _read(setting, patterns):
        bound = _normalise(text)
        if name == bound if kind == "path" else name.startswith(bound) if kind == "start" else name.endswith(bound):
            return True
    return False


def _read(setting: str, patterns: str) -> Iterator[tuple[str, str]]:
    for pattern in patterns.replace(",", " ").split():
        parts = pattern.removesuffix("/").split("/")
        ending = pattern.startswith("*.") and len(parts) == 1 and not pattern.endswith("/")
        if {"", ".", ".."} & set(parts) or set("*?[") & set(pattern[2:] if ending else pattern):
            raise ValueError(f"{setting}: {pattern} has none of the forms folder/, *.ending, name, folder/name")
        if ending:
            yield "end", pattern[1:]
        elif pattern.endswith("/"):
            yield "start", pattern
        else:
            yield "path", pattern
            if len(parts) == 1:
                yield "end", f"/{pattern}"


def _normalise(text: str) -> str:
    """Return the form in which the most tolerant file system compares names."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
