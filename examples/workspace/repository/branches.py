"""The checked-out branch, and the protected branches, which receive no commits from this pack.

Git does not record which branches are shared. In doubt a branch is treated as protected.
"""

from __future__ import annotations

from typing import Final

from .git import Git

__all__ = ["current_branch", "protected_branches"]

_HEADS: Final = "refs/heads/"
_REMOTES: Final = "refs/remotes/"
_USUAL: Final = ("main", "master", "trunk")


def current_branch(git: Git) -> str:
    """Return the checked-out branch, also before its first commit; empty if HEAD is detached."""
    reference = git.output_line("symbolic-ref", "--quiet", "HEAD") or ""
    return reference.removeprefix(_HEADS) if reference.startswith(_HEADS) else ""


def protected_branches(git: Git, named: str) -> set[str]:
    """Return the ``named`` branches (separated by spaces), the default branches of remotes, and main, master and trunk.

    If none of them exists, all branches are protected; in a repository without branches, main, master and trunk.
    Symbolic references are always protected.
    """
    heads = _references(git, _HEADS)
    protected = set(named.replace(",", " ").split())
    remote_heads = _references(git, _REMOTES, "**/HEAD")
    protected |= {to.removeprefix(head.removesuffix("HEAD")) for head, to in remote_heads.items()}
    protected |= {name for name in heads if name in _USUAL}
    protected = protected - {""} or set(heads) or {current_branch(git)} - {""} or set(_USUAL)
    # A write to a symbolic reference changes the branch that it points to.
    return protected | {name for name, to in heads.items() if to}


def _references(git: Git, prefix: str, pattern: str = "") -> dict[str, str]:
    """Return the references and, for symbolic ones, their targets; both without the prefix."""
    output = git.output("for-each-ref", "--format=%(refname) %(symref)", prefix + pattern).decode(errors="replace")
    pairs = (line.split(" ") for line in output.split("\n") if line)
    return {name.removeprefix(prefix): to.removeprefix(prefix) for name, to in pairs}
