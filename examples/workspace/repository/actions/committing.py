"""Committing named files to a branch that nobody builds on, without touching anything else.

A commit is made from parts: an index of its own, a tree, a commit, and a branch that moves only if it is where it was
seen. So no hook runs, what somebody has put into the index stays there, what is checked out stays checked out, and a
branch that moved meanwhile is not overwritten.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from manglecp import Context, Limits, action

from ..branches import branch_of, closed_branches
from ..credentials import refuse_credentials
from ..git import Git
from ..refusal import Refused
from ..secrets import found
from .roots import Root, plain
from .swapping import locked

__all__ = ["Committed", "commit"]

_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){0,5}")
_WHO: Final = re.compile(r"[^\x00-\x1f\x7f<>]{1,200}")


class Committed(TypedDict):
    branch: str
    commit: str
    """Empty if it was only tried."""
    parent: str
    """Empty for the first commit of all."""
    files: list[str]
    """Those of the named files that differ from the parent."""
    problem: str
    """Why nothing was committed; empty if there is no problem."""


@action(effects=["process", "filesystem"], spawn=["git"], reversible=True, idempotent=True, timeout=120)
def commit(
    context: Context,
    paths: Annotated[list[str], Limits(min_length=1, max_length=500)],
    message: Annotated[str, Limits(min_length=1, max_length=10_000)],
    branch: Annotated[str, Limits(min_length=1, max_length=200)],
    dry_run: bool = False,
    refuse: bool = True,
) -> Committed:
    """Commit some files as they are to a branch that is not a default one. It is made if there is none.

    Args:
        paths: files, deleted ones too; nothing else is committed
        branch: where the commit goes; what is checked out stays as it is
        dry_run: say what would be committed, and commit nothing
        refuse: fail if it cannot be committed, in place of saying so
    """
    try:
        return _commit(context, paths, message, branch, dry_run)
    except Refused as refused:
        if refuse:
            raise
        return {"branch": branch, "commit": "", "parent": "", "files": [], "problem": str(refused)}


def _commit(context: Context, paths: list[str], message: str, branch: str, dry_run: bool) -> Committed:
    for path in paths:
        plain(path)
    if "\0" in message or not message.strip():
        raise Refused("a commit has a message: say what was done and why")
    who = _author(context)
    named = b"".join(path.encode() + b"\0" for path in paths)
    with Root.opened(context.settings) as root, locked(root), tempfile.TemporaryDirectory(prefix="commit-") as folder:
        git = Git(root.path, context.settings.get("git_dir", ""))
        _refuse_default(git, branch, context.settings)
        _refuse_elsewhere(git, branch)
        _refuse_filtered(git, named)
        _refuse_secrets(root, paths)
        tip = git.tip(f"refs/heads/{branch}")
        parent = tip or git.tip("HEAD")
        own = {"GIT_INDEX_FILE": f"{folder}/index", **who}
        git.ask("read-tree", *([parent] if parent else ["--empty"]), environ=own)
        git.ask("update-index", "--add", "--remove", "-z", "--stdin", stdin=named, environ=own)
        tree = git.ask("write-tree", environ=own).decode().strip()
        files = _changed(git, parent, tree)
        _refuse_stored_secrets(git, tree, files)
        made = ""
        if not files:
            # Made already, by a call whose outcome nobody knows? Then it is that commit.
            made, parent, files = tip, git.tip(f"{tip}^"), _made_before(git, tip, message, paths)
        elif not dry_run:
            parents = ["-p", parent] if parent else []
            made = git.ask("commit-tree", tree, *parents, stdin=message.encode(), environ=own).decode().strip()
            # An empty name of the old commit says that there must be none.
            git.ask("update-ref", "--no-deref", "-m", "commit: manglecp", f"refs/heads/{branch}", made, tip)
        if made and branch_of(git) == branch:  # or the files would seem to be changed back in the index
            git.ask("update-index", "--add", "--remove", "-z", "--stdin", stdin=named)
    return {"branch": branch, "commit": made, "parent": parent, "files": files, "problem": ""}


def _author(context: Context) -> dict[str, str]:
    who: dict[str, str] = {}
    for word, default in (("name", "manglecp"), ("email", "manglecp@localhost")):
        value = context.settings.get(f"author_{word}") or default
        if _WHO.fullmatch(value) is None:
            raise Refused(
                f"the setting 'author_{word}' is nothing that git takes: serve the pack with --set author_{word}=TEXT"
            )
        for role in ("AUTHOR", "COMMITTER"):
            who[f"GIT_{role}_{word.upper()}"] = value
    return who


def _refuse_default(git: Git, branch: str, settings: Mapping[str, str]) -> None:
    if _BRANCH.fullmatch(branch) is None or ".." in branch or branch.endswith((".lock", ".")) or ".lock/" in branch:
        raise Refused(f"{branch!r} is no name for a branch here: letters, digits, '.', '_', '-' and '/'")
    closed = closed_branches(git, f"{settings.get('default_branch', '')} {settings.get('protected_branches', '')}")
    # A file system may take two names for one that differ only in the case of letters.
    if branch.casefold() in {name.casefold() for name in closed} or branch.casefold() == "head":
        hint = "name another one, or say which branch that is with --set default_branch=NAME"
        raise Refused(f"{branch!r} is a branch that others build on: {hint}")


def _refuse_elsewhere(git: Git, branch: str) -> None:
    """Whoever has the branch checked out elsewhere would see all of the commit as a change of theirs."""
    if branch_of(git) != branch and git.line("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{branch}"):
        raise Refused(f"{branch!r} is checked out in another work tree: name another one, or commit there")


def _refuse_filtered(git: Git, named: bytes) -> None:
    """What a filter would make of a file is not known here, and the file itself is not what is to be committed."""
    said = git.ask("check-attr", "-z", "--stdin", "filter", stdin=named).split(b"\0")
    for path, value in zip(said[0::3], said[2::3], strict=False):
        if value not in (b"unspecified", b"unset"):
            raise Refused(f"{path.decode(errors='replace')!r} goes through a filter of git: commit it by hand")


def _refuse_secrets(root: Root, paths: list[str]) -> None:
    """Rules look for them before; but the file may have changed since the last scan."""
    for path in paths:
        refuse_credentials(path)
        try:
            content = root.look(path)
        except Refused:  # a link, a folder, or too large to have been written by a person: git says what it can do
            continue
        if content is not None:
            _refuse_secret(path, content.data)


def _refuse_stored_secrets(git: Git, tree: str, files: list[str]) -> None:
    """The same for what git has read, which may be another file by now, or one that was too large to be looked at."""
    said = git.ask("cat-file", "--batch", stdin="".join(f"{tree}:{path}\n" for path in files).encode())
    at = 0
    for path in files:
        end = said.index(b"\n", at)
        about, at = said[at:end], end + 1
        if not about.endswith(b" missing"):  # it is deleted
            size = int(about.rpartition(b" ")[2])
            _refuse_secret(path, said[at : at + size])
            at += size + 1


def _refuse_secret(path: str, data: bytes) -> None:
    if found(data.decode(errors="replace")):
        raise Refused(f"{path!r} has a secret in it: take it out first, or commit it by hand")


def _made_before(git: Git, tip: str, message: str, paths: list[str]) -> list[str]:
    """The files of the newest commit of a branch, if it is the one that is asked for."""
    if tip and git.ask("log", "-1", "--format=%B", tip).decode(errors="replace").rstrip() == message.rstrip():
        files = _changed(git, git.tip(f"{tip}^"), f"{tip}^{{tree}}")
        if files and set(files) <= set(paths):
            return files
    raise Refused("the files are on that branch already as they are: there is nothing to commit")


def _changed(git: Git, parent: str, tree: str) -> list[str]:
    before = parent or git.ask("mktree").decode().strip()
    said = git.ask("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", before, tree)
    return [name for name in said.decode(errors="backslashreplace").split("\0") if name]
