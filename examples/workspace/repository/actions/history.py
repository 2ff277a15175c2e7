"""How the working files differ from a commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, TypedDict

from manglecp import Context, Limits, action

from ..credentials import holds_credentials, refuse_credentials
from ..git import Git
from ..refusal import Refused
from ..secrets import redacted_diff
from .diffs import written
from .roots import Root, plain
from .texts import lines_of, shown, text_of

__all__ = ["Diff", "git_diff"]

_MOST_FILES: Final = 2_000
_MOST_CHARACTERS: Final = 150_000
_MOST_READ: Final = 4 * _MOST_CHARACTERS


class DiffFile(TypedDict):
    path: str
    added: int
    removed: int
    """-1, both of them, for what is no text."""


class Diff(TypedDict):
    diff: str
    """Without what looks like a secret, and without files of credentials: not meant to be applied."""
    files: list[DiffFile]
    more: bool
    """The text of the diff goes on."""
    problem: str
    """Why there is no diff; empty if there is no problem."""


@action(effects=["process"], spawn=["git"], idempotent=True, timeout=120)
def git_diff(
    context: Context,
    paths: Annotated[list[str], Limits(max_length=500)] | None = None,
    base: Annotated[str, Limits(max_length=200)] = "HEAD",
    staged: bool = False,
    refuse: bool = True,
) -> Diff:
    """Show what has changed since a commit; files that git does not know yet too.

    Args:
        paths: only these files and folders
        base: a commit: a name, a branch or a tag
        staged: what is in the index, instead of the files as they are
        refuse: fail if there is no such diff, in place of saying so
    """
    try:
        return _diff(context, paths or [], base, staged)
    except Refused as refused:
        if refuse:
            raise
        return {"diff": "", "files": [], "more": False, "problem": str(refused)}


def _diff(context: Context, paths: list[str], base: str, staged: bool) -> Diff:
    for path in paths:
        plain(path)
    with Root.opened(context.settings) as root:
        git = Git(root.path, context.settings.get("git_dir", ""))
        unborn = base == "HEAD" and not git.tip(base)
        since = git.ask("hash-object", "-t", "tree", "--stdin").decode().strip() if unborn else git.revision(base)
        how = ["--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=all"]
        how += ["--cached"] if staged else []
        counted = git.ask("diff", "--numstat", "-z", *how, since, "--", *paths)
        files = list(_counted(counted.decode(errors="backslashreplace")))
        exact = (file["path"] for file in _counted(counted.decode(errors="surrogateescape")))
        hidden = filter(holds_credentials, exact)
        how += ["--src-prefix=a/", "--dst-prefix=b/", since, "--"]
        which = [*(f":(literal){path}" for path in paths), *(f":(exclude,literal){path}" for path in hidden)]
        text, cut = git.begin("diff", *how, *which, most=_MOST_READ, environ={"GIT_LITERAL_PATHSPECS": "0"})
        for path, file in () if staged else _untracked(root, git, paths):
            text, cut = text + ("" if cut else file), cut or len(text) > _MOST_READ
            files.append({"path": path, "added": len(lines_of(file)) - 3 if file else -1, "removed": 0 if file else -1})
    diff, more = shown(redacted_diff(text), _MOST_CHARACTERS)
    return {"diff": diff, "files": files[:_MOST_FILES], "more": more or cut, "problem": ""}


def _untracked(root: Root, git: Git, paths: list[str]) -> Iterator[tuple[str, str]]:
    """Files that are not in the index and not ignored, each with a diff that makes it; empty for what is no text."""
    said = git.ask("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    for path in said.decode(errors="backslashreplace").split("\0")[:_MOST_FILES]:
        if path:
            try:
                refuse_credentials(path)
                yield path, written(path, None, text_of(root.read(path).data, path))
            except Refused:  # binary, too large, a link, gone, or not to be shown
                yield path, ""


def _counted(said: str) -> Iterator[DiffFile]:
    for entry in said.split("\0"):
        match entry.split("\t", 2):
            case [added, removed, path]:
                if added == removed == "-":
                    yield {"path": path, "added": -1, "removed": -1}
                elif added.isdecimal() and removed.isdecimal():
                    yield {"path": path, "added": int(added), "removed": int(removed)}
                else:
                    raise Refused("git says something else than was asked")
