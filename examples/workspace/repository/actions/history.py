"""What git says of the working files: which have changed, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypedDict

from manglecp import Context, Limits, action

from ..branches import branch_of, closed_branches
from ..git import Git
from ..refusal import Refused
from ..secrets import redacted_diff
from .diffs import written
from .roots import Root, plain
from .texts import lines_of, shown, text_of

__all__ = ["Diff", "Status", "git_diff", "git_status"]

_MOST_FILES: Final = 2_000
_MOST_CHARACTERS: Final = 150_000
_MOST_READ: Final = 4 * _MOST_CHARACTERS
_KINDS: Final = {"M": "modified", "T": "modified", "A": "added", "D": "deleted", "R": "renamed", "C": "added"}


class StatusFile(TypedDict):
    path: str
    kind: Literal["modified", "added", "deleted", "renamed", "untracked", "conflicted"]
    staged: bool
    """All or some of it is in the index."""


class Status(TypedDict):
    branch: str
    """Empty if none is checked out."""
    default_branches: list[str]
    head: str
    """Empty if there is no commit yet."""
    clean: bool
    files: list[StatusFile]
    more: bool


class DiffFile(TypedDict):
    path: str
    added: int
    removed: int
    """-1, both of them, for what is no text."""


class Diff(TypedDict):
    diff: str
    """Without what looks like a secret: not meant to be applied."""
    files: list[DiffFile]
    more: bool
    """The text of the diff goes on."""


@action(effects=["process"], spawn=["git"], idempotent=True, timeout=120)
def git_status(context: Context) -> Status:
    """Say which branch is checked out, and which files have changed since its last commit."""
    with Root.opened(context.settings) as root:
        git = Git(root.path, context.settings.get("git_dir", ""))
        files = list(_status_files(git.ask("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")))
        return {
            "branch": branch_of(git),
            "default_branches": sorted(closed_branches(git, "")),
            "head": git.tip("HEAD"),
            "clean": not files,
            "files": files[:_MOST_FILES],
            "more": len(files) > _MOST_FILES,
        }


@action(effects=["process"], spawn=["git"], idempotent=True, timeout=120)
def git_diff(
    context: Context,
    paths: Annotated[list[str], Limits(max_length=500)] | None = None,
    base: Annotated[str, Limits(max_length=200)] = "HEAD",
    staged: bool = False,
) -> Diff:
    """Show what has changed since a commit; files that git does not know yet too.

    Args:
        paths: only these files and folders
        base: a commit: a name, a branch or a tag
        staged: what is in the index, instead of the files as they are
    """
    for path in paths or ():
        plain(path)
    with Root.opened(context.settings) as root:
        git = Git(root.path, context.settings.get("git_dir", ""))
        unborn = base == "HEAD" and not git.tip(base)
        since = git.ask("hash-object", "-t", "tree", "--stdin").decode().strip() if unborn else git.revision(base)
        how = ["--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=all"]
        how += ["--cached"] if staged else []
        which = [since, "--", *(paths or ())]
        files = list(_counted(git.ask("diff", "--numstat", "-z", *how, *which)))
        text, cut = git.begin("diff", "--src-prefix=a/", "--dst-prefix=b/", *how, *which, most=_MOST_READ)
        for path, file in () if staged else _untracked(root, git, paths or []):
            text, cut = text + ("" if cut else file), cut or len(text) > _MOST_READ
            files.append({"path": path, "added": len(lines_of(file)) - 3 if file else -1, "removed": 0 if file else -1})
    diff, more = shown(redacted_diff(text), _MOST_CHARACTERS)
    return {"diff": diff, "files": files[:_MOST_FILES], "more": more or cut}


def _untracked(root: Root, git: Git, paths: list[str]) -> Iterator[tuple[str, str]]:
    """Files that are not in the index and not ignored, each with a diff that makes it; empty for what is no text."""
    said = git.ask("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    for path in said.decode(errors="backslashreplace").split("\0")[:_MOST_FILES]:
        if path:
            try:
                yield path, written(path, None, text_of(root.read(path).data, path))
            except Refused:  # binary, too large, a link, or gone
                yield path, ""


def _status_files(said: bytes) -> Iterator[StatusFile]:
    for entry in said.decode(errors="backslashreplace").split("\0"):
        if len(entry) < 4:
            continue
        index, tree, path = entry[0], entry[1], entry[3:]
        if "?" in (index, tree):
            yield {"path": path, "kind": "untracked", "staged": False}
        elif "U" in (index, tree) or (index, tree) in (("A", "A"), ("D", "D")):
            yield {"path": path, "kind": "conflicted", "staged": False}
        else:
            kind = _KINDS.get(tree if tree != " " else index, "modified")
            yield {"path": path, "kind": kind, "staged": index != " "}  # type: ignore[typeddict-item]  # one of them


def _counted(said: bytes) -> Iterator[DiffFile]:
    for entry in said.decode(errors="backslashreplace").split("\0"):
        match entry.split("\t", 2):
            case [added, removed, path]:
                if added == removed == "-":
                    yield {"path": path, "added": -1, "removed": -1}
                elif added.isdecimal() and removed.isdecimal():
                    yield {"path": path, "added": int(added), "removed": int(removed)}
                else:
                    raise Refused("git says something else than was asked")
