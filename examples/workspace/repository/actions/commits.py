"""Commit named files to an unprotected branch, without side effects on the index, the work tree or other branches.

A commit is built with plumbing commands: an index in the temporary folder of this call, a tree, a commit object, and a
compare-and-swap of the branch reference. Therefore no hook runs, staged changes stay staged, the checked-out branch
does not change, and a branch that moved in the meantime is not overwritten. The tree is compared before it becomes a
commit: with its parent, a path that was not named is refused; with the approved preview, any other content is refused.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple, TypedDict

from manglecp import Context, Limits, action

from ..branches import current_branch, protected_branches
from ..credentials import refuse_credentials
from ..git import Git
from ..refusal import Refusal
from ..secrets import find_secrets
from .atomic_swap import lock_repository
from .commit_trees import CommitTree, build_tree, is_branch_name, private_index, stored_contents
from .roots import Root, path_components

__all__ = ["CommitResult", "commit"]

_AUTHOR: Final = re.compile(r"[^\x00-\x1f\x7f<>]{1,200}")


class CommitResult(TypedDict):
    branch: str
    commit: str
    """Empty after a dry run."""
    parent: str
    """Empty for the first commit of a repository."""
    files: list[str]
    """The named files that differ from the parent commit."""
    problem: str
    """The reason why no commit was created; empty on success."""


class _Approved(NamedTuple):
    """What the approver was shown; None without an approval."""

    parent: str | None
    blobs: Mapping[str, str] | None


@action(
    effects=["process", "filesystem"],
    spawn=["git"],
    reversible=True,
    idempotent=True,
    timeout=120,
    preview="preview_commit",
)
def commit(
    context: Context,
    paths: Annotated[list[str], Limits(min_length=1, max_length=500)],
    message: Annotated[str, Limits(min_length=1, max_length=10_000)],
    branch: Annotated[str, Limits(min_length=1, max_length=200)],
    dry_run: bool = False,
    refuse: bool = True,
    parent: Annotated[str, Limits(max_length=64)] | None = None,
    blobs: dict[str, str] | None = None,
) -> CommitResult:
    """Commit the current content of some files to an unprotected branch. The branch is created if it does not exist.

    Args:
        paths: the files to commit, deleted files included; no other file is committed
        branch: the branch that receives the commit; the checked-out branch does not change
        dry_run: return what would be committed, without a commit
        refuse: fail if the commit is not possible, instead of returning the problem
        parent: the parent of the approved preview; with another one nothing is committed
        blobs: the modes and blob ids of the approved preview; with other ones nothing is committed
    """
    try:
        return _commit(context, paths, message, branch, dry_run, _Approved(parent, blobs))
    except Refusal as refusal:
        if refuse:
            raise
        return {"branch": branch, "commit": "", "parent": "", "files": [], "problem": str(refusal)}


def _commit(
    context: Context, paths: list[str], message: str, branch: str, dry_run: bool, approved: _Approved
) -> CommitResult:
    for path in paths:
        path_components(path)
    if "\0" in message or not message.strip():
        raise Refusal("the commit message is empty: describe what was done and why")
    author = _author_environment(context)
    named = b"".join(path.encode() + b"\0" for path in paths)
    with (
        Root.open(context.settings) as root,
        lock_repository(root),
        tempfile.TemporaryDirectory(prefix="commit-") as folder,
    ):
        git = Git(root.path, context.settings.get("git_dir", ""))
        _refuse_default(git, branch, context.settings)
        _refuse_elsewhere(git, branch)
        _refuse_filtered(git, named)
        _refuse_secrets(root, paths)
        own = {**private_index(folder), **author}
        built = build_tree(git, paths, branch, message, own)
        if not built.files:
            raise Refusal("the branch already contains the files as they are: there is nothing to commit")
        _refuse_unnamed(built.files, paths)
        _refuse_unapproved(built, approved)
        _refuse_stored_secrets(git, built, own)
        created = built.tip if built.is_committed else ""
        if not created and not dry_run:
            parents = ["-p", built.parent] if built.parent else []
            stored = git.output("commit-tree", built.tree, *parents, stdin=message.encode(), environ=own)
            created = stored.decode().strip()
            # An empty old value means: the branch must not exist yet.
            git.output("update-ref", "--no-deref", "-m", "commit: manglecp", f"refs/heads/{branch}", created, built.tip)
        if created and current_branch(git) == branch:  # otherwise the index would show the files as reverted
            git.output("update-index", "--add", "--remove", "-z", "--stdin", stdin=named)
    return {"branch": branch, "commit": created, "parent": built.parent, "files": built.files, "problem": ""}


def _author_environment(context: Context) -> dict[str, str]:
    environment: dict[str, str] = {}
    for word, default in (("name", "manglecp"), ("email", "manglecp@localhost")):
        value = context.settings.get(f"author_{word}") or default
        if _AUTHOR.fullmatch(value) is None:
            raise Refusal(
                f"the setting 'author_{word}' is not accepted by git: serve the pack with --set author_{word}=TEXT"
            )
        for role in ("AUTHOR", "COMMITTER"):
            environment[f"GIT_{role}_{word.upper()}"] = value
    return environment


def _refuse_default(git: Git, branch: str, settings: Mapping[str, str]) -> None:
    if not is_branch_name(branch):
        raise Refusal(f"{branch!r} is not a valid branch name here: use letters, digits, '.', '_', '-' and '/'")
    named = f"{settings.get('default_branch', '')} {settings.get('protected_branches', '')}"
    protected = protected_branches(git, named)
    # On a case-insensitive file system, two names that differ in case are one branch.
    if branch.casefold() in {name.casefold() for name in protected} or branch.casefold() == "head":
        hint = "name another branch, or set the default branch with --set default_branch=NAME"
        raise Refusal(f"{branch!r} is a branch that others build on: {hint}")


def _refuse_elsewhere(git: Git, branch: str) -> None:
    """Refuse a branch that is checked out in another work tree: there the commit would show as local changes."""
    if current_branch(git) != branch and git.output_line(
        "for-each-ref", "--format=%(worktreepath)", f"refs/heads/{branch}"
    ):
        raise Refusal(f"{branch!r} is checked out in another work tree: name another one, or commit there")


def _refuse_filtered(git: Git, named: bytes) -> None:
    """Refuse files with a git filter: filters are disabled here, so the stored content would be wrong."""
    fields = git.output("check-attr", "-z", "--stdin", "filter", stdin=named).split(b"\0")
    for path, value in zip(fields[0::3], fields[2::3], strict=False):
        if value not in (b"unspecified", b"unset"):
            raise Refusal(f"{path.decode(errors='replace')!r} goes through a filter of git: commit it by hand")


def _refuse_secrets(root: Root, paths: list[str]) -> None:
    """Refuse secrets in the files themselves. The rules check the last scan, and a file may have changed since."""
    for path in paths:
        refuse_credentials(path)
        try:
            content = root.read_optional(path)
        except Refusal:  # a link, a folder or a very large file: git decides, and the stored content is checked later
            continue
        if content is not None:
            _refuse_secret(path, content.data)


def _refuse_unnamed(files: list[str], paths: list[str]) -> None:
    """Refuse a tree that is not the parent's with the named files: another process has changed the index."""
    if unnamed := sorted(set(files) - set(paths)):
        raise Refusal(f"{unnamed[0]!r} would be committed and was not named: another process changed the index")


def _refuse_unapproved(built: CommitTree, approved: _Approved) -> None:
    """Refuse another commit than the one that the approver was shown."""
    again = "invoke again to request another approval"
    if approved.parent is not None and approved.parent != built.parent:
        raise Refusal(f"the parent of the commit has changed since the approval: {again}")
    if approved.blobs is not None:
        for path in sorted({*approved.blobs, *built.blobs}):
            if approved.blobs.get(path) != built.blobs.get(path):
                raise Refusal(f"{path!r} has changed since the approval: {again}")


def _refuse_stored_secrets(git: Git, built: CommitTree, environ: Mapping[str, str]) -> None:
    """Refuse secrets in the content that git stored: the file may have changed, or was too large to be read."""
    for path, content in stored_contents(git, built.tree, built.files, environ):
        _refuse_secret(path, content)


def _refuse_secret(path: str, data: bytes) -> None:
    if find_secrets(data.decode(errors="replace")):
        raise Refusal(f"{path!r} has a secret in it: remove it first, or commit the file by hand")
