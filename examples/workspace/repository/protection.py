"""Paths that a person has put in or out of bounds, in forms that rules can compare with names of files to come.

``folder/`` is all below a folder, ``*.ending`` every name that ends so, ``name`` a file of that name anywhere and
``folder/name`` that very one. Nothing else is understood, and what is not is refused: a pattern that protects nothing
would be worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["bounds"]


def bounds(setting: str, patterns: str) -> Iterator[tuple[str, str]]:
    """Predicate and text for each of the patterns, which have spaces or commas between them."""
    for pattern in patterns.replace(",", " ").split():
        parts = pattern.removesuffix("/").split("/")
        ending = pattern.startswith("*.") and len(parts) == 1 and not pattern.endswith("/")
        if {"", ".", ".."} & set(parts) or set("*?[") & set(pattern[2:] if ending else pattern):
            raise ValueError(f"{setting}: {pattern} is none of folder/, *.ending, name, folder/name")
        if ending:
            yield f"{setting}_end", pattern[1:]
        elif pattern.endswith("/"):
            yield f"{setting}_start", pattern
        else:
            yield f"{setting}_path", pattern
            if len(parts) == 1:
                yield f"{setting}_end", f"/{pattern}"
