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

    Where none of them is found, every branch there is; and the usual names where there is none.
    """
    heads = _names(git.ask("for-each-ref", "--format=%(refname)", _HEADS), _HEADS)
    remote = git.ask("for-each-ref", "--format=%(symref)", f"{_REMOTES}*/HEAD", f"{_REMOTES}*/*/HEAD")
    closed = set(named.replace(",", " ").split())
    closed |= {name.partition("/")[2] for name in _names(remote, _REMOTES)}
    closed |= {name for name in heads if name in _USUAL}
    return closed or heads or {branch_of(git)} - {""} or set(_USUAL)


def _names(said: bytes, prefix: str) -> set[str]:
    lines = said.decode(errors="replace").split("\n")
    return {line.removeprefix(prefix) for line in lines if line.startswith(prefix)}
