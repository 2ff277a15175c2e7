"""The files of a work tree and their changes since the last commit.

Files come from the index and from ``git status``, without ignored files. Links are not followed, and a nested
repository is one entry. A name that is not UTF-8 appears escaped in facts, and its file is not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..branches import protected_branches
from ..git import Git
from .scan_facts import Fact

__all__ = ["Tree", "read_tree"]

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
    """The state of a work tree. Paths are relative to the root."""

    head: str | None = None
    """The current commit; None before the first commit."""
    branch: str | None = None
    """None if HEAD is detached."""
    files: list[str] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    """For each file that differs from the last commit, the git object id of the committed content."""
    facts: list[Fact] = field(default_factory=list)
    """Facts about names, changes and branches."""


def read_tree(git: Git, protected: str) -> Tree:
    """Return the current state of the work tree. ``protected`` are branches that the settings protect."""
    tree = Tree()
    _Status(tree).read(git)
    names: set[bytes] = set()
    for entry in git.output("ls-files", "-z", "--stage").split(b"\0"):
        if entry:
            about, _, name = entry.partition(b"\t")
            if about.startswith(b"160000"):
                tree.facts.append(("unreadable", _escape(name), "submodule"))
            else:
                names.add(name)
    for name in names:
        _add(tree, name)
    tree.files.sort()
    tree.facts += _branches(git, tree, protected)
    tree.facts += [("under_way", what) for mark, what in _UNDER_WAY.items() if (git.folders.own / mark).exists()]
    return tree


class _Status:
    """A parser of ``git status --porcelain=v2``."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, git: Git) -> None:
        parts = iter(
            git.output(
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
                self._tree.facts.append(("renamed", _escape(next(parts)), _escape(name)))
            elif kind == b"u":
                self._tree.facts.append(("changed", _escape(rest.split(b" ", 9)[-1]), "conflicted"))

    def _branch(self, line: str) -> None:
        key, _, value = line.partition(" ")
        if key == "branch.oid" and value != "(initial)":
            self._tree.head = value
        elif key == "branch.head" and value != "(detached)":
            self._tree.branch = value

    def _untracked(self, name: bytes) -> None:
        if name.endswith(b"/"):
            self._tree.facts.append(("unreadable", _escape(name[:-1]), "nested repository"))
        else:
            self._tree.facts.append(("changed", _escape(name), "untracked"))
            _add(self._tree, name)

    def _changed(self, fields: list[bytes]) -> None:
        changes = fields[0].decode()
        in_index, in_tree = changes[0], changes[1]
        name = _escape(fields[-1])
        # The change in the work tree counts, unless the work tree is equal to the index.
        how = "deleted" if "D" in (in_index, in_tree) else _HOW[in_tree if in_index == "." else in_index]
        self._tree.facts.append(("changed", name, how))
        committed = fields[5].decode()
        if committed.strip("0"):  # zeros: the file is not in the last commit
            self._tree.before[name] = committed
        if in_index != ".":
            self._tree.facts.append(("staged", name))


def _add(tree: Tree, name: bytes) -> None:
    try:
        path = name.decode()
    except UnicodeDecodeError:
        tree.facts.append(("unreadable", _escape(name), "name not UTF-8"))
        return
    tree.files.append(path)
    if not path.isprintable():
        tree.facts.append(("odd_name", path))


def _escape(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _branches(git: Git, tree: Tree, protected: str) -> list[Fact]:
    facts: list[Fact] = []
    if tree.branch is not None:
        facts.append(("current_branch", tree.branch))
    if tree.head is not None:
        facts.append(("head", tree.head))
    return [*facts, *(("default_branch", name) for name in sorted(protected_branches(git, protected)))]
