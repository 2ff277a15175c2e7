"""Find the git folders of a work tree.

Usually this is the folder ``.git`` in the root. In a linked work tree (``git worktree add``) and in a submodule, it is
a file with the path of a folder outside of the root. Actions may access that folder only if the operator has named it
in the setting ``git_dir``. A linked work tree has a private folder and one that it shares with the main work tree.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .refusal import Refusal

__all__ = ["GitFolders", "git_folders"]


class GitFolders(NamedTuple):
    """The private git folder of a work tree and the shared one; they are equal unless the work tree is linked."""

    own: Path
    shared: Path


def git_folders(root: Path, named: str = "") -> GitFolders:
    """Return the git folders of a work tree. ``named`` is the setting ``git_dir``.

    Raises :class:`Refusal` if ``.git`` is missing or does not match ``named``.
    """
    dot = root / ".git"
    if dot.is_dir() and not dot.is_symlink():
        if named and Path(named) != dot:  # actions would get access to a folder that they do not need
            raise Refusal("the root has its own .git: git_dir is for linked work trees and submodules, leave it out")
        return GitFolders(dot, dot)
    if not dot.exists() and not dot.is_symlink():
        raise Refusal("the root is not the top folder of a git repository: name the folder that has .git in it")
    own = dot.resolve() if dot.is_symlink() else _pointed(dot)
    shared = own.parent.parent if own.parent.name == "worktrees" else own
    if not named:
        raise Refusal(
            "the root is a linked work tree or a submodule, whose history lies elsewhere: "
            f"name that folder too, with --set git_dir={shared}, or name the main work tree"
        )
    if Path(named) != shared:
        raise Refusal(f"git_dir is not the folder that .git names: that would be --set git_dir={shared}")
    if own != shared and _pointed(own / "gitdir", "") != dot:
        raise Refusal("the folder that .git names belongs to another work tree: repair it with git worktree repair")
    return GitFolders(own, shared)


def _pointed(file: Path, word: str = "gitdir: ") -> Path:
    """Return the folder whose path is in a file."""
    try:
        text = file.read_text("utf-8").rstrip("\n")
    except (OSError, ValueError):
        text = ""
    if not text.startswith(word) or not text.isprintable() or len(text) <= len(word):
        raise Refusal(f"{file.name} is neither a folder nor a file that names one: is this a git repository?")
    return (file.parent / text.removeprefix(word)).resolve()
