"""Who changed which file, when and how often.

Each commit is asked for once and kept by its name, which says everything about it; so another branch, or a history that
was rewritten, costs no more than the commits that are new. They are then gone through from the oldest to the newest. A
file that is renamed takes its history along. Authors are counted, and kept as digests: no fact names them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from ..git import Git, GitError

__all__ = ["Commit", "Past", "commits", "order", "pasts"]

_FORMAT: Final = "--format=%x01%H%x00%ct%x00%aE"


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """What a commit did to names of files."""

    time: int
    author: str
    changes: tuple[tuple[str, str], ...]
    """The name before, if it was another, else empty; and the name. A file that is removed has no name afterwards."""


@dataclass
class Past:
    """What became of one file."""

    time: int = 0
    commit: str = ""
    count: int = 0
    authors: set[str] = field(default_factory=set)

    @property
    def when(self) -> str:
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def order(git: Git, head: str, most: int) -> list[str]:
    """The newest commits of a history, newest first."""
    return git.ask("rev-list", f"--max-count={most}", head, "--").decode().split()


def commits(git: Git, names: list[str]) -> Iterator[tuple[str, Commit]]:
    """What is not known yet. A commit whose parents were cut off is left out: it seems to have made all files."""
    cut_off = _cut_off(git.folders.shared)
    asked = "\n".join(name for name in names if name not in cut_off).encode()
    if not asked:
        return
    options = ["log", "-z", _FORMAT, "--name-status", "--no-ext-diff", "--no-textconv", "--no-walk=unsorted", "--stdin"]
    found = 0
    try:
        for one in _parsed(git.stream(*options, "-M", "-l200", stdin=asked)):
            found += 1
            yield one
    except GitError:
        if found:
            raise
        # In a clone without all contents, renames cannot be found by them.
        yield from _parsed(git.stream(*options, "--no-renames", stdin=asked))


def _cut_off(folder: Path) -> frozenset[str]:
    """The last commits of a clone that is shallow."""
    try:
        return frozenset((folder / "shallow").read_text("ascii").split())
    except (OSError, ValueError):
        return frozenset()


def _parsed(parts: Iterator[bytes]) -> Iterator[tuple[str, Commit]]:
    name, time, author = "", 0, ""
    changes: list[tuple[str, str]] = []

    for part in parts:
        if part.startswith(b"\x01"):
            if name:
                yield name, Commit(time, author, tuple(changes))
            name, changes = part[1:].decode(), []
            time = int(next(parts))
            author = hashlib.sha256(next(parts).lower()).hexdigest()[:16]
            continue
        kind = part.strip(b"\n")[:1]
        if not kind:
            continue
        first = _name(next(parts))
        if kind in (b"R", b"C"):
            second = _name(next(parts))
            changes.append((first if kind == b"R" else "", second))
        else:
            changes.append((first, "") if kind == b"D" else ("", first))
    if name:
        yield name, Commit(time, author, tuple(changes))


def _name(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def pasts(names: list[str], known: Mapping[str, Commit]) -> dict[str, Past]:
    """What became of each file, by commits newest first."""
    found: dict[str, Past] = {}
    for name in reversed(names):
        commit = known.get(name)
        if commit is None:
            continue
        for before, after in commit.changes:
            if not after:
                found.pop(before, None)
                continue
            past = found.pop(before, None) if before else None
            past = found.setdefault(after, past or Past())
            past.count += 1
            past.authors.add(commit.author)
            if commit.time >= past.time:
                past.time, past.commit = commit.time, name
    return found
