"""Show what a commit would contain, without writing to the repository: the approver of a commit reads it.

The diff is made from the stored objects that the blob ids name, not from the files. So it shows exactly the content
that a commit with these ids has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from manglecp import Context, Limits, action

from ..credentials import refuse_credentials
from ..git import Git
from ..refusal import Refusal
from ..secrets import redact_diff
from .atomic_swap import lock_repository
from .commit_trees import CommitTree, build_tree, private_index, private_objects, stored_contents
from .roots import Root, path_components

__all__ = ["CommitPreview", "preview_commit"]

_MOST_CHARACTERS: Final = 150_000
_MOST_READ: Final = 4 * _MOST_CHARACTERS


class CommitPreview(TypedDict):
    parent: str
    """The commit that the new one follows; empty for the first commit of a repository."""
    blobs: dict[str, str]
    """The mode and the blob id of each named file, as git would store it."""
    deleted: list[str]
    """The named files that the commit deletes."""
    diff: str
    """The whole diff against the parent. Secrets are redacted; of a binary file it has the name only."""


@action(effects=["process"], spawn=["git"], mutates=False, idempotent=True, timeout=60)
def preview_commit(
    context: Context,
    paths: Annotated[list[str], Limits(min_length=1, max_length=500)],
    branch: Annotated[str, Limits(min_length=1, max_length=200)],
    message: Annotated[str, Limits(max_length=10_000)] | None = None,
) -> CommitPreview:
    """Return the content of a commit before it is created. Fails if the diff is too long to be read.

    Args:
        paths: the files to commit, deleted files included
        branch: the branch that would receive the commit
        message: if the branch has the commit already, with this message, return its content
    """
    for path in paths:
        path_components(path)
        refuse_credentials(path)
    with (
        Root.open(context.settings) as root,
        lock_repository(root),
        tempfile.TemporaryDirectory(prefix="preview-") as folder,
    ):
        git = Git(root.path, context.settings.get("git_dir", ""))
        environ = {**private_index(folder), **private_objects(git, folder)}
        built = build_tree(git, paths, branch, message, environ)
        diff = _diff(git, built, environ)
    deleted = [path for path in built.files if path not in built.blobs]
    return {"parent": built.parent, "blobs": built.blobs, "deleted": deleted, "diff": diff}


def _diff(git: Git, built: CommitTree, environ: Mapping[str, str]) -> str:
    binary = {
        path
        for tree in (built.base, built.tree)
        for path, content in stored_contents(git, tree, built.files, environ)
        if b"\0" in content
    }
    how = ["-p", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"]
    how += ["--ignore-submodules=none", "--src-prefix=a/", "--dst-prefix=b/"]
    text, cut = "", False
    # Attributes of the repository can declare any file binary, which would hide its content.
    for option, files in (["--text"], set(built.files) - binary), ([], binary):
        if files:
            command = ["diff-tree", *how, *option, built.base, built.tree, "--", *sorted(files)]
            part, is_part = git.output_prefix(*command, most=_MOST_READ, environ=environ)
            text, cut = text + part, cut or is_part
    diff = redact_diff(text)
    if cut or len(diff) > _MOST_CHARACTERS:
        raise Refusal(
            f"the diff has more than {_MOST_CHARACTERS:,} characters, and an approver has to read all of it: "
            "commit fewer files at a time"
        )
    return diff
