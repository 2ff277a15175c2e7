"""The diff between a commit and the work tree or the index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, TypedDict

from manglecp import Context, Limits, action

from ..credentials import holds_credentials, refuse_credentials
from ..git import Git
from ..refusal import Refusal
from ..secrets import redact_diff
from .diffs import format_diff
from .roots import Root, path_components
from .texts import decode_text, split_lines, truncate

__all__ = ["Diff", "git_diff"]

_MOST_FILES: Final = 2_000
_MOST_CHARACTERS: Final = 150_000
_MOST_READ: Final = 4 * _MOST_CHARACTERS


class DiffFile(TypedDict):
    path: str
    added: int
    removed: int
    """For a binary file, ``added`` and ``removed`` are -1."""


class Diff(TypedDict):
    diff: str
    """Secrets are redacted and credential files are left out; the text cannot be applied as a patch."""
    files: list[DiffFile]
    more: bool
    """Whether the text of the diff is truncated."""
    problem: str
    """The reason why there is no diff; empty on success."""


@action(effects=["process"], spawn=["git"], idempotent=True, timeout=120)
def git_diff(
    context: Context,
    paths: Annotated[list[str], Limits(max_length=500)] | None = None,
    base: Annotated[str, Limits(max_length=200)] = "HEAD",
    staged: bool = False,
    refuse: bool = True,
) -> Diff:
    """Return the changes since a commit, untracked files included.

    Args:
        paths: limit the diff to these files and folders
        base: the commit to compare with: a hash, a branch or a tag
        staged: compare the index instead of the work tree
        refuse: fail if there is no such diff, instead of returning the problem
    """
    try:
        return _diff(context, paths or [], base, staged)
    except Refusal as refusal:
        if refuse:
            raise
        return {"diff": "", "files": [], "more": False, "problem": str(refusal)}


def _diff(context: Context, paths: list[str], base: str, staged: bool) -> Diff:
    for path in paths:
        path_components(path)
    with Root.open(context.settings) as root:
        git = Git(root.path, context.settings.get("git_dir", ""))
        unborn = base == "HEAD" and not git.resolve(base)
        since = git.output("hash-object", "-t", "tree", "--stdin").decode().strip() if unborn else git.commit_id(base)
        how = ["--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=all"]
        how += ["--cached"] if staged else []
        counted = git.output("diff", "--numstat", "-z", *how, since, "--", *paths)
        files = list(_counted(counted.decode(errors="backslashreplace")))
        exact = (file["path"] for file in _counted(counted.decode(errors="surrogateescape")))
        hidden = filter(holds_credentials, exact)
        how += ["--src-prefix=a/", "--dst-prefix=b/", since, "--"]
        which = [*(f":(literal){path}" for path in paths), *(f":(exclude,literal){path}" for path in hidden)]
        text, cut = git.output_prefix("diff", *how, *which, most=_MOST_READ, environ={"GIT_LITERAL_PATHSPECS": "0"})
        for path, file in () if staged else _untracked(root, git, paths):
            text, cut = text + ("" if cut else file), cut or len(text) > _MOST_READ
            files.append(
                {"path": path, "added": len(split_lines(file)) - 3 if file else -1, "removed": 0 if file else -1}
            )
    diff, more = truncate(redact_diff(text), _MOST_CHARACTERS)
    return {"diff": diff, "files": files[:_MOST_FILES], "more": more or cut, "problem": ""}


def _untracked(root: Root, git: Git, paths: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each untracked file that is not ignored, with the diff that creates it; empty for a binary file."""
    output = git.output("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    for path in output.decode(errors="backslashreplace").split("\0")[:_MOST_FILES]:
        if path:
            try:
                refuse_credentials(path)
                yield path, format_diff(path, None, decode_text(root.read(path).data, path))
            except Refusal:  # binary, too large, a link, deleted, or a credential file
                yield path, ""


def _counted(numstat: str) -> Iterator[DiffFile]:
    for entry in numstat.split("\0"):
        match entry.split("\t", 2):
            case [added, removed, path]:
                if added == removed == "-":
                    yield {"path": path, "added": -1, "removed": -1}
                elif added.isdecimal() and removed.isdecimal():
                    yield {"path": path, "added": int(added), "removed": int(removed)}
                else:
                    raise Refusal("the output of git diff --numstat cannot be parsed: is another git on PATH?")
