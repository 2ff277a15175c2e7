"""Where git keeps what it knows of a work tree.

Usually that is the folder ``.git`` at its top. A linked work tree (``git worktree add``) and a submodule have a file
there, which names a folder that lies elsewhere: outside of the root, where nobody may look unless a person has named it
as well. Of a linked work tree one part lies in that folder for it alone, and the rest is shared with others.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .refusal import Refused

__all__ = ["GitFolders", "git_folders"]


class GitFolders(NamedTuple):
    """The folder of this work tree, and that of all of them; mostly they are one."""

    own: Path
    shared: Path


def git_folders(root: Path, named: str = "") -> GitFolders:
    """Of a work tree; ``named`` is the folder that a person has named for it, and may be empty."""
    dot = root / ".git"
    if dot.is_dir() and not dot.is_symlink():
        if named and Path(named) != dot:  # it would be open to actions for nothing
            raise Refused("the root has its own .git: git_dir is for linked work trees and submodules, leave it out")
        return GitFolders(dot, dot)
    if not dot.exists() and not dot.is_symlink():
        raise Refused("the root is not the top folder of a git repository: name the folder that has .git in it")
    own = dot.resolve() if dot.is_symlink() else _pointed(dot)
    shared = own.parent.parent if own.parent.name == "worktrees" else own
    if not named:
        raise Refused(
            "the root is a linked work tree or a submodule, whose history lies elsewhere: "
            f"name that folder too, with --set git_dir={shared}, or name the main work tree"
        )
    if Path(named) != shared:
        raise Refused(f"git_dir is not the folder that .git names: that would be --set git_dir={shared}")
    if own != shared and _pointed(own / "gitdir", "") != dot:
        raise Refused("the folder that .git names belongs to another work tree: repair it with git worktree repair")
    return GitFolders(own, shared)


def _pointed(file: Path, word: str = "gitdir: ") -> Path:
    """The folder that a file names."""
    try:
        said = file.read_text("utf-8").rstrip("\n")
    except (OSError, ValueError):
        said = ""
    if not said.startswith(word) or not said.isprintable() or len(said) <= len(word):
        raise Refused(f"{file.name} is neither a folder nor a file that names one: is this a git repository?")
    return (file.parent / said.removeprefix(word)).resolve()
