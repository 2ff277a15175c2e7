"""The output of a scan: parts, each of which replaces the earlier part of the same name, and progress reports."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Fact", "ScanPart", "ScanProgress"]

Fact = tuple[object, ...]
"""A predicate and its values."""


class ScanPart(NamedTuple):
    """The current facts of one subject, such as a file."""

    name: str
    facts: tuple[Fact, ...] = ()


class ScanProgress(NamedTuple):
    """The number of processed items."""

    done: int
    total: int
    what: str
