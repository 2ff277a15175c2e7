"""The tree of a commit: the parent's tree with the current content of the named files.

It is built with plumbing commands in an index of its own, so the index of the repository does not change. A preview
also has an object folder of its own, and writes nothing to the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..git import Git

__all__ = ["CommitTree", "build_tree", "is_branch_name", "private_index", "private_objects", "stored_contents"]

_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){0,5}")


class CommitTree(NamedTuple):
    """A tree that is not committed yet, or that a repeated call finds committed."""

    tip: str
    """The newest commit of the branch; empty if there is no such branch."""
    parent: str
    """Empty for the first commit of a repository."""
    base: str
    """The tree of the parent."""
    tree: str
    files: list[str]
    """The paths that differ from the parent."""
    blobs: dict[str, str]
    """The mode and the blob id of each named file, such as ``100644 1f7a…``; a deleted file has no entry."""
    is_committed: bool
    """Whether the tip is this very commit, of an earlier call."""


def is_branch_name(branch: str) -> bool:
    if _BRANCH.fullmatch(branch) is None:
        return False
    return not (".." in branch or branch.endswith((".lock", ".")) or ".lock/" in branch)


def private_index(folder: str) -> dict[str, str]:
    """Return the environment of git for an index in this folder."""
    return {"GIT_INDEX_FILE": f"{folder}/index"}


def private_objects(git: Git, folder: str) -> dict[str, str]:
    """Return the environment of git to store new objects in this folder."""
    objects = Path(folder, "objects")
    (objects / "info").mkdir(parents=True)
    (objects / "info" / "alternates").write_text(f"{git.folders.shared / 'objects'}\n", "utf-8")
    return {"GIT_OBJECT_DIRECTORY": str(objects)}


def build_tree(
    git: Git, paths: Sequence[str], branch: str, message: str | None, environ: Mapping[str, str]
) -> CommitTree:
    """Build the tree; ``environ`` has at least a private index. Raises :class:`GitError`.

    With a message, a tip with that message and these very files counts as this commit, made by an earlier call.
    """
    tip = git.resolve(f"refs/heads/{branch}") if is_branch_name(branch) else ""
    parent, named = tip or git.resolve("HEAD"), b"".join(path.encode() + b"\0" for path in paths)
    git.output("read-tree", *([parent] if parent else ["--empty"]), environ=environ)
    git.output("update-index", "--add", "--remove", "-z", "--stdin", stdin=named, environ=environ)
    tree = git.output("write-tree", environ=environ).decode().strip()
    base = _tree_of(git, parent, environ)
    files, is_committed = _changed(git, base, tree, environ), False
    if not files and tip and message is not None and _message(git, tip) == message.rstrip():
        before = git.resolve(f"{tip}^")
        made = _changed(git, _tree_of(git, before, environ), tree, environ)
        if made and set(made) <= set(paths):
            parent, base, files, is_committed = before, _tree_of(git, before, environ), made, True
    return CommitTree(tip, parent, base, tree, files, _blobs(git, tree, paths, environ), is_committed)


def stored_contents(
    git: Git, tree: str, files: Sequence[str], environ: Mapping[str, str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files that the tree has, with the content that git stored."""
    asked = "".join(f"{tree}:{path}\n" for path in files).encode()
    output, at = git.output("cat-file", "--batch", stdin=asked, environ=environ), 0
    for path in files:
        end = output.index(b"\n", at)
        header, at = output[at:end], end + 1
        if not header.endswith(b" missing"):
            size = int(header.rpartition(b" ")[2])
            yield path, output[at : at + size]
            at += size + 1


def _tree_of(git: Git, commit: str, environ: Mapping[str, str]) -> str:
    """Return the tree of a commit; the empty tree without one."""
    if not commit:
        return git.output("mktree", environ=environ).decode().strip()
    return git.output("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}").decode().strip()


def _changed(git: Git, before: str, tree: str, environ: Mapping[str, str]) -> list[str]:
    how = ["-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--ignore-submodules=none"]
    output = git.output("diff-tree", *how, before, tree, environ=environ)
    return [name for name in output.decode(errors="backslashreplace").split("\0") if name]


def _blobs(git: Git, tree: str, paths: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    output = git.output("ls-tree", "-z", "--full-tree", tree, "--", *paths, environ=environ)
    found = {}
    for entry in filter(None, output.split(b"\0")):
        about, _, path = entry.partition(b"\t")
        mode, _, oid = about.decode().split(" ")
        found[path.decode(errors="backslashreplace")] = f"{mode} {oid}"
    return found


def _message(git: Git, commit: str) -> str:
    return git.output("log", "-1", "--format=%B", commit).decode(errors="replace").rstrip()
