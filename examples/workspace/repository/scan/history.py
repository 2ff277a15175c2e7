"""The history of each file: last change, number of changes, number of authors.

Each commit is read once and cached by its hash, so a branch switch or a rewritten history costs only the new commits.
Commits are then replayed from oldest to newest. A renamed file keeps its history. Authors are stored as digests; no
fact contains their names.
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

__all__ = ["Commit", "FileHistory", "file_histories", "newest_commits", "read_commits"]

_FORMAT: Final = "--format=%x01%H%x00%ct%x00%aE"


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """The changes of one commit."""

    time: int
    author: str
    changes: tuple[tuple[str, str], ...]
    """Pairs of old and new path. The old path is empty unless the file was renamed or deleted; the new path is empty
    for a deleted file."""


@dataclass
class FileHistory:
    """The last change, the number of changes and the authors of one file."""

    time: int = 0
    commit: str = ""
    count: int = 0
    authors: set[str] = field(default_factory=set)

    @property
    def changed_at(self) -> str:
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def newest_commits(git: Git, head: str, most: int) -> list[str]:
    """Return the hashes of the newest commits, newest first."""
    return git.output("rev-list", f"--max-count={most}", head, "--").decode().split()


def read_commits(git: Git, names: list[str]) -> Iterator[tuple[str, Commit]]:
    """Yield the named commits. The boundary of a shallow clone is left out: it would appear to create all files."""
    boundary = _shallow_boundary(git.folders.shared)
    ids = "\n".join(name for name in names if name not in boundary).encode()
    if not ids:
        return
    options = ["log", "-z", _FORMAT, "--name-status", "--no-ext-diff", "--no-textconv", "--no-walk=unsorted", "--stdin"]
    found = 0
    try:
        for one in _parsed(git.stream(*options, "-M", "-l200", stdin=ids)):
            found += 1
            yield one
    except GitError:
        if found:
            raise
        # A partial clone has no contents to detect renames with.
        yield from _parsed(git.stream(*options, "--no-renames", stdin=ids))


def _shallow_boundary(folder: Path) -> frozenset[str]:
    """Return the oldest commits of a shallow clone."""
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


def file_histories(names: list[str], known: Mapping[str, Commit]) -> dict[str, FileHistory]:
    """Return the history of each file, from the hashes of commits, newest first."""
    found: dict[str, FileHistory] = {}
    for name in reversed(names):
        commit = known.get(name)
        if commit is None:
            continue
        for before, after in commit.changes:
            if not after:
                found.pop(before, None)
                continue
            past = found.pop(before, None) if before else None
            past = found.setdefault(after, past or FileHistory())
            past.count += 1
            past.authors.add(commit.author)
            if commit.time >= past.time:
                past.time, past.commit = commit.time, name
    return found
