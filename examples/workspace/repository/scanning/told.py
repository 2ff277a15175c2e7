"""What a scan tells: parts that replace the ones before them, and how it goes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Fact", "Part", "Progress"]

Fact = tuple[object, ...]
"""A predicate and its values."""


class Part(NamedTuple):
    """All facts that one thing gives now."""

    name: str
    facts: tuple[Fact, ...] = ()


class Progress(NamedTuple):
    """So much is done."""

    done: int
    total: int
    what: str
