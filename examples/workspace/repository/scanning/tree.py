"""Which files a work tree has, and what became of them since the last commit.

The index and ``git status`` name the files: what is ignored is not among them. A link is not followed, and a repository
in the repository is one entry and nothing below it. Names that are no UTF-8 cannot be told in a fact: they are told
escaped, and their files are not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..branches import closed_branches
from ..git import Git
from .told import Fact

__all__ = ["Tree", "look"]

_HOW: Final = {"M": "modified", "T": "modified", "A": "added", "D": "deleted", "R": "renamed", "C": "added"}
_UNDER_WAY: Final = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}


@dataclass
class Tree:
    """What was seen. Names are relative to the root and have slashes."""

    head: str | None = None
    """The commit; None before the first one."""
    branch: str | None = None
    """None where none is checked out."""
    files: list[str] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    """By name of a file that differs from the last commit: the name that git has for what it held there."""
    facts: list[Fact] = field(default_factory=list)
    """What is to be said of names, changes and branches."""


def look(git: Git, closed: str) -> Tree:
    """The tree as it is now; ``closed`` are branches that a person has named for nobody to commit to."""
    tree = Tree()
    _Status(tree).read(git)
    names: set[bytes] = set()
    for entry in git.ask("ls-files", "-z", "--stage").split(b"\0"):
        if entry:
            about, _, name = entry.partition(b"\t")
            if about.startswith(b"160000"):
                tree.facts.append(("unreadable", _shown(name), "submodule"))
            else:
                names.add(name)
    for name in names:
        _add(tree, name)
    tree.files.sort()
    tree.facts += _branches(git, tree, closed)
    tree.facts += [("under_way", what) for mark, what in _UNDER_WAY.items() if (git.folders.own / mark).exists()]
    return tree


class _Status:
    """Reads the second format of ``git status --porcelain``."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, git: Git) -> None:
        parts = iter(
            git.ask(
                *("status", "--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--ignored=no"),
                *("--ignore-submodules=all", "--find-renames", "--no-ahead-behind"),
            ).split(b"\0")
        )
        for part in parts:
            kind, _, rest = part.partition(b" ")
            if kind == b"#":
                self._branch(rest.decode("utf-8", "replace"))
            elif kind == b"?":
                self._untracked(rest)
            elif kind == b"1":
                self._changed(rest.split(b" ", 7))
            elif kind == b"2":
                *fields, _, name = rest.split(b" ", 8)
                self._changed([*fields, name])
                self._tree.facts.append(("renamed", _shown(next(parts)), _shown(name)))
            elif kind == b"u":
                self._tree.facts.append(("changed", _shown(rest.split(b" ", 9)[-1]), "conflicted"))

    def _branch(self, line: str) -> None:
        key, _, value = line.partition(" ")
        if key == "branch.oid" and value != "(initial)":
            self._tree.head = value
        elif key == "branch.head" and value != "(detached)":
            self._tree.branch = value

    def _untracked(self, name: bytes) -> None:
        if name.endswith(b"/"):
            self._tree.facts.append(("unreadable", _shown(name[:-1]), "nested repository"))
        else:
            self._tree.facts.append(("changed", _shown(name), "untracked"))
            _add(self._tree, name)

    def _changed(self, fields: list[bytes]) -> None:
        changes = fields[0].decode()
        in_index, in_tree = changes[0], changes[1]
        name = _shown(fields[-1])
        # What is on the disk counts, unless that is what the index has.
        how = "deleted" if "D" in (in_index, in_tree) else _HOW[in_tree if in_index == "." else in_index]
        self._tree.facts.append(("changed", name, how))
        was = fields[5].decode()
        if was.strip("0"):  # it was there
            self._tree.before[name] = was
        if in_index != ".":
            self._tree.facts.append(("staged", name))


def _add(tree: Tree, name: bytes) -> None:
    try:
        path = name.decode()
    except UnicodeDecodeError:
        tree.facts.append(("unreadable", _shown(name), "name not UTF-8"))
        return
    tree.files.append(path)
    if not path.isprintable():
        tree.facts.append(("odd_name", path))


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _branches(git: Git, tree: Tree, closed: str) -> list[Fact]:
    facts: list[Fact] = []
    if tree.branch is not None:
        facts.append(("current_branch", tree.branch))
    if tree.head is not None:
        facts.append(("head", tree.head))
    return [*facts, *(("default_branch", name) for name in sorted(closed_branches(git, closed)))]
