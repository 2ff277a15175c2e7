"""Scanning a repository in a test, without a host."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from examples.workspace.repository.scan.scan_facts import Fact, ScanPart, ScanProgress
from examples.workspace.repository.scan.scanner import Scanner, Settings

__all__ = ["Kept", "of", "pairs", "scanned"]


class Kept:
    """What is known after each pass of a scanner, as whoever listens to it would keep it."""

    def __init__(self, root: Path, cache: Path | None = None, settings: Settings | None = None) -> None:
        self.scanner = Scanner(root, cache, settings)
        self.parts: dict[str, tuple[Fact, ...]] = {}
        self.progress: list[ScanProgress] = []

    def look(self) -> set[str]:
        """Make a pass, and say which parts came."""
        came = set()
        for told in self.scanner.scan():
            if isinstance(told, ScanPart):
                came.add(told.name)
                self.parts[told.name] = told.facts
            else:
                self.progress.append(told)
        return came

    @property
    def facts(self) -> set[Fact]:
        return {fact for facts in self.parts.values() for fact in facts}

    def close(self) -> None:
        self.scanner.close()


def scanned(root: Path, cache: Path | None = None, settings: Settings | None = None) -> set[Fact]:
    """The facts of one pass."""
    kept = Kept(root, cache, settings)
    kept.look()
    kept.close()
    return kept.facts


def of(facts: Iterable[Fact], *predicates: str) -> set[Fact]:
    """Without the predicate, if there is one."""
    if len(predicates) == 1:
        return {fact[1:] for fact in facts if fact[0] == predicates[0]}
    return {fact for fact in facts if fact[0] in predicates}


def pairs(facts: Iterable[Fact], predicate: str) -> dict[object, object]:
    """Of a predicate with two arguments that has one fact for each first one."""
    found = of(facts, predicate)
    assert len({first for first, _ in found}) == len(found)
    return {first: second for first, second in found}  # noqa: C416  # a tuple of unknown length is no pair
