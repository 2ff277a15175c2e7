"""Create, check, apply and revert patches.

A patch is a unified diff with the hashes of the files that it was made for. Patches to files with secrets are refused.

A backup is the reverse patch with the hashes of the files after the change. It contains only the changed lines, and a
revert is refused if a file has changed since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypedDict

from manglecp import Context, Limits, action

from ..refusal import Refusal
from ..secrets import is_redacted
from .atomic_swap import FileReplacement, lock_repository, replace_files
from .diffs import format_diff
from .patch_plan import (
    FileChange,
    FilePlan,
    Problem,
    digests_after,
    digests_before,
    file_changes,
    plan,
    refuse_secrets,
)
from .roots import Root, path_components
from .texts import decode_text, digest

__all__ = [
    "Backup",
    "Edit",
    "PatchCheck",
    "PatchDraft",
    "PatchResult",
    "RevertResult",
    "apply_patch",
    "check_patch",
    "make_patch",
    "revert_patch",
]

_LONGEST_PATCH: Final = 400_000
_LABEL: Final = 16

Patch = Annotated[str, Limits(min_length=1, max_length=_LONGEST_PATCH)]
Hashes = Annotated[dict[str, str], Limits(max_length=100)]


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in one file. Without old text a file is created. Edits of the same file are applied in order."""

    path: Annotated[str, Limits(min_length=1, max_length=1024)]
    old: Annotated[str, Limits(max_length=_LONGEST_PATCH)] = ""
    new: Annotated[str, Limits(max_length=_LONGEST_PATCH)] = ""
    delete: bool = False
    """Delete the file; ``old`` and ``new`` are empty."""


class PatchCheck(TypedDict):
    applies: bool
    problems: list[Problem]
    files: list[FileChange]
    expected: dict[str, str]
    """By path, the current hash of each file; empty for a file that does not exist."""
    after: dict[str, str]
    """By path, the hash of each file after the change."""


class PatchDraft(PatchCheck):
    patch: str
    """Empty if the edits cannot be applied."""


class Backup(TypedDict):
    """The reverse of an applied patch."""

    patch: str
    expected: dict[str, str]
    modes: dict[str, int]
    """The modes of deleted files."""


_NOTHING: Final[Backup] = {"patch": "", "expected": {}, "modes": {}}


class PatchResult(TypedDict):
    files: list[FileChange]
    after: dict[str, str]
    backup: Backup
    problems: list[Problem]
    """The reasons why no file was changed."""


class RevertResult(PatchResult):
    label: str


@action(effects=["filesystem"], mutates=False, idempotent=True)
def make_patch(
    context: Context,
    edits: Annotated[list[Edit], Limits(min_length=1, max_length=200)],
    only: Annotated[list[str], Limits(max_length=500)] | None = None,
    refuse: bool = False,
) -> PatchDraft:
    """Create a patch from text replacements, without changing a file.

    Args:
        edits: the old text must occur in its file exactly once; without old text a file is created
        only: the files that the patch may change
        refuse: fail if an edit cannot be applied, instead of returning the problems
    """
    problems: list[Problem] = []
    texts: dict[str, tuple[str | None, str | None]] = {}
    with Root.open(context.settings) as root:
        for edit in edits:
            try:
                path_components(edit.path)
                root.refuse_protected(edit.path)
                if only is not None and edit.path not in only:
                    raise Refusal(
                        f"{edit.path!r} is not among the files of the intent: declare the intent with this file, too"
                    )
                before, now = texts[edit.path] if edit.path in texts else (_text(root, edit.path),) * 2
                refuse_secrets(edit.path, before)
                texts[edit.path] = before, _apply_edit(edit, now)
                refuse_secrets(edit.path, texts[edit.path][1])
            except Refusal as refusal:
                problems.append({"path": edit.path, "problem": str(refusal)})
        patch = "" if problems else _format_patch(texts, problems)
        planned: list[FilePlan] = []
        if patch and not problems:
            planned, problems = plan(root, patch, None)
    if refuse:
        _refuse(problems)
    return {"patch": "" if problems else patch, **_checked(planned, problems)}


@action(effects=["filesystem"], mutates=False, idempotent=True)
def check_patch(context: Context, patch: Patch, expected: Hashes | None = None) -> PatchCheck:
    """Return what a patch would change and whether it can be applied, without changing a file.

    Args:
        patch: a unified diff
        expected: by path, the SHA-256 of each file before the change; empty for a file that does not exist
    """
    with Root.open(context.settings) as root:
        try:
            planned, problems = plan(root, patch, expected)
        except Refusal as refusal:
            planned, problems = [], [{"path": "", "problem": str(refusal)}]
    return _checked(planned, problems)


@action(effects=["filesystem"], reversible=True, idempotent=True, timeout=120)
def apply_patch(context: Context, patch: Patch, expected: Hashes, refuse: bool = True) -> PatchResult:
    """Apply a patch to all of its files, or to none of them.

    Args:
        patch: a unified diff
        expected: by path, the SHA-256 of each file as it was checked; empty for a file that does not exist
        refuse: fail if the patch cannot be applied, instead of returning the problem
    """
    try:
        with Root.open(context.settings) as root, lock_repository(root):
            planned, problems = plan(root, patch, expected)
            _refuse(problems)
            backup = _backup(planned)
            _swap(root, planned, patch)
    except Refusal as refusal:
        if refuse:
            raise
        return {"files": [], "after": {}, "backup": _NOTHING, "problems": [{"path": "", "problem": str(refusal)}]}
    return {"files": file_changes(planned), "after": digests_after(planned), "backup": backup, "problems": []}


@action(effects=["filesystem"], reversible=True, idempotent=True, timeout=120)
def revert_patch(
    context: Context,
    backup: Backup,
    force: bool = False,
    refuse: bool = True,
    label: Annotated[str, Limits(max_length=200)] = "",
) -> RevertResult:
    """Revert a patch with the backup that apply_patch returned.

    Args:
        backup: the backup of apply_patch
        force: revert also in files that have changed since, if the lines that the patch wrote are still there
        refuse: fail if files have changed since, instead of returning the problems
        label: a name for the patch, returned in the result
    """
    with Root.open(context.settings) as root, lock_repository(root):
        planned, problems = plan(root, backup["patch"], backup["expected"], exact=not force)
        if problems and not refuse:
            return {"files": [], "after": {}, "backup": _NOTHING, "problems": problems, "label": label}
        _refuse(problems)
        redo = _backup(planned)
        _swap(root, planned, backup["patch"], backup["modes"])
    return {
        "files": file_changes(planned),
        "after": digests_after(planned),
        "backup": redo,
        "problems": [],
        "label": label,
    }


def _text(root: Root, path: str) -> str | None:
    content = root.read_optional(path)
    return None if content is None else decode_text(content.data, path)


def _apply_edit(edit: Edit, now: str | None) -> str | None:
    if is_redacted(edit.old) or is_redacted(edit.new):
        raise Refusal("the edit contains the mark of a redacted secret: a person has to change that part of the file")
    if edit.delete:
        if now is None:
            raise Refusal(f"there is no file {edit.path!r}")
        if edit.old or edit.new:
            raise Refusal("an edit that deletes a file must have neither old nor new text")
        return None
    if now is None:
        if edit.old:
            raise Refusal(f"there is no file {edit.path!r}: leave out the old text to create it")
        return edit.new
    if not edit.old:
        raise Refusal(f"{edit.path!r} already exists: pass the old text that the edit replaces")
    old, new = (_with_line_ends_of(now, text) for text in (edit.old, edit.new))
    count = now.count(old)
    if count != 1:
        lines = [str(now.count("\n", 0, at) + 1) for at in _occurrences(now, old)]
        where = (
            f"occurs {count} times (lines {', '.join(lines[:5])}): pass more of the text around it"
            if count
            else "does not occur: read those lines again"
        )
        raise Refusal(f"{edit.path!r}: the old text {where}")
    return now.replace(old, new)


def _with_line_ends_of(text: str, part: str) -> str:
    """Convert the line breaks of an edit to CRLF if all lines of the file end with CRLF."""
    uses_crlf = "\r\n" in text and text.count("\n") == text.count("\r\n") and "\r" not in part
    return part.replace("\n", "\r\n") if uses_crlf else part


def _occurrences(text: str, part: str) -> list[int]:
    positions, at = [], text.find(part)
    while at >= 0:
        positions.append(at)
        at = text.find(part, at + len(part))
    return positions


def _format_patch(texts: dict[str, tuple[str | None, str | None]], problems: list[Problem]) -> str:
    patch = "".join(format_diff(path, before, after) for path, (before, after) in texts.items())
    if not patch:
        problems.append({"path": "", "problem": "the edits change nothing"})
    elif len(patch) > _LONGEST_PATCH:
        problems.append({"path": "", "problem": f"the patch has more than {_LONGEST_PATCH:,} characters: split it"})
    return patch


def _checked(planned: list[FilePlan], problems: list[Problem]) -> PatchCheck:
    return {
        "applies": not problems,
        "problems": problems,
        "files": file_changes(planned),
        "expected": digests_before(planned),
        "after": digests_after(planned),
    }


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Refusal("; ".join(one["problem"] for one in problems[:5]))


def _backup(planned: list[FilePlan]) -> Backup:
    pieces = []
    for one in planned:
        after, before = (None if data is None else decode_text(data, one.diff.path) for data in (one.after, one.before))
        pieces.append(format_diff(one.diff.path, after, before))
    modes = {one.diff.path: one.mode for one in planned if one.diff.is_deleted}
    return {"patch": "".join(pieces), "expected": digests_after(planned), "modes": modes}


def _swap(root: Root, planned: list[FilePlan], patch: str, modes: dict[str, int] | None = None) -> None:
    changes = [
        FileReplacement(
            one.diff.path,
            one.after if one.done else one.before,
            one.after,
            (modes or {}).get(one.diff.path, one.mode) if one.diff.is_new else one.mode,
        )
        for one in planned
    ]
    replace_files(root, changes, digest(patch.encode())[:_LABEL])
