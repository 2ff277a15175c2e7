"""Branches: the one that is checked out, and those that others build on, to which nobody commits here.

Nobody but a person can say for sure which ones others build on. Rather one too many is closed than one too few.
"""

from __future__ import annotations

from typing import Final

from .git import Git

__all__ = ["branch_of", "closed_branches"]

_HEADS: Final = "refs/heads/"
_REMOTES: Final = "refs/remotes/"
_USUAL: Final = ("main", "master", "trunk")


def branch_of(git: Git) -> str:
    """The branch that is checked out, also before its first commit; empty if none is."""
    said = git.line("symbolic-ref", "--quiet", "HEAD") or ""
    return said.removeprefix(_HEADS) if said.startswith(_HEADS) else ""


def closed_branches(git: Git, named: str) -> set[str]:
    """Those that are named, with spaces between them, what remotes call theirs, and those with the usual names.

    Where none of them is found, every branch there is; and the usual names where there is none. Besides, each name that
    stands for another branch.
    """
    heads = _leads(git, _HEADS)
    closed = set(named.replace(",", " ").split())
    closed |= {to.removeprefix(head.removesuffix("HEAD")) for head, to in _leads(git, _REMOTES, "**/HEAD").items()}
    closed |= {name for name in heads if name in _USUAL}
    closed = closed - {""} or set(heads) or {branch_of(git)} - {""} or set(_USUAL)
    # Whoever writes to a name that stands for another branch writes to that one.
    return closed | {name for name, to in heads.items() if to}


def _leads(git: Git, prefix: str, pattern: str = "") -> dict[str, str]:
    """Names, and what some of them stand for; both without the prefix."""
    said = git.ask("for-each-ref", "--format=%(refname) %(symref)", prefix + pattern).decode(errors="replace")
    pairs = (line.split(" ") for line in said.split("\n") if line)
    return {name.removeprefix(prefix): to.removeprefix(prefix) for name, to in pairs}
