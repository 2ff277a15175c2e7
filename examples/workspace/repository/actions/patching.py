"""Making a patch, trying it, applying it, and taking it back.

A patch is a unified diff together with the hashes of the files that it was made for. It never holds what was redacted:
a change that has to do with a secret is left to a person.

What is needed to take a patch back is a patch too, with the hashes of the files as they are afterwards. It holds no
more of them than was changed, and refuses to undo what somebody has worked on since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypedDict

from manglecp import Context, Limits, action

from ..refusal import Refused
from ..secrets import is_redacted
from .diffs import written
from .planning import (
    FileChange,
    Planned,
    Problem,
    changes_of,
    digests_after,
    digests_before,
    plan,
    refuse_secrets,
)
from .roots import Root, plain
from .swapping import Change, locked, swap_all
from .texts import digest, text_of

__all__ = [
    "Applied",
    "Backup",
    "Checked",
    "Edit",
    "Made",
    "Reverted",
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
    """One place in one file. Without old text a file is made; several edits of a file are made one after the other."""

    path: Annotated[str, Limits(min_length=1, max_length=1024)]
    old: Annotated[str, Limits(max_length=_LONGEST_PATCH)] = ""
    new: Annotated[str, Limits(max_length=_LONGEST_PATCH)] = ""
    delete: bool = False
    """Delete the file; ``old`` and ``new`` are empty."""


class Checked(TypedDict):
    applies: bool
    problems: list[Problem]
    files: list[FileChange]
    expected: dict[str, str]
    """By path, the hash that each file has now; empty for one that is not there."""
    after: dict[str, str]
    """By path, the hash that each file would have."""


class Made(Checked):
    patch: str
    """Empty if it does not apply."""


class Backup(TypedDict):
    """What takes a patch back."""

    patch: str
    expected: dict[str, str]
    modes: dict[str, int]
    """Of files that were deleted."""


_NOTHING: Final[Backup] = {"patch": "", "expected": {}, "modes": {}}


class Applied(TypedDict):
    files: list[FileChange]
    after: dict[str, str]
    backup: Backup
    problems: list[Problem]
    """Why nothing was changed."""


class Reverted(Applied):
    label: str


@action(effects=["filesystem"], mutates=False, idempotent=True)
def make_patch(
    context: Context,
    edits: Annotated[list[Edit], Limits(min_length=1, max_length=200)],
    only: Annotated[list[str], Limits(max_length=500)] | None = None,
    refuse: bool = False,
) -> Made:
    """Make a patch from pieces of text and what should stand in their place. Nothing is changed.

    Args:
        edits: the old text has to be in its file exactly once; without old text a file is made
        only: the files that it may change
        refuse: fail if it does not apply, in place of saying so
    """
    problems: list[Problem] = []
    texts: dict[str, tuple[str | None, str | None]] = {}
    with Root.opened(context.settings) as root:
        for edit in edits:
            try:
                plain(edit.path)
                root.refuse_protected(edit.path)
                if only is not None and edit.path not in only:
                    raise Refused(
                        f"{edit.path!r} is not among the files that were to be changed: declare the intent with it, too"
                    )
                before, now = texts[edit.path] if edit.path in texts else (_text(root, edit.path),) * 2
                refuse_secrets(edit.path, before)
                texts[edit.path] = before, _edited(edit, now)
                refuse_secrets(edit.path, texts[edit.path][1])
            except Refused as refused:
                problems.append({"path": edit.path, "problem": str(refused)})
        patch = "" if problems else _patch(texts, problems)
        planned: list[Planned] = []
        if patch and not problems:
            planned, problems = plan(root, patch, None)
    if refuse:
        _refuse(problems)
    return {"patch": "" if problems else patch, **_checked(planned, problems)}


@action(effects=["filesystem"], mutates=False, idempotent=True)
def check_patch(context: Context, patch: Patch, expected: Hashes | None = None) -> Checked:
    """Say what a patch would change, and whether it can be applied. Nothing is changed.

    Args:
        patch: a unified diff
        expected: by path, the SHA-256 of each file as the patch expects it, empty for one that is not there
    """
    with Root.opened(context.settings) as root:
        try:
            planned, problems = plan(root, patch, expected)
        except Refused as refused:
            planned, problems = [], [{"path": "", "problem": str(refused)}]
    return _checked(planned, problems)


@action(effects=["filesystem"], reversible=True, idempotent=True, timeout=120)
def apply_patch(context: Context, patch: Patch, expected: Hashes, refuse: bool = True) -> Applied:
    """Apply a patch to all of its files, or to none of them.

    Args:
        patch: a unified diff
        expected: by path, the SHA-256 of each file as it was checked, empty for one that is not there
        refuse: fail if it cannot be applied, in place of saying so
    """
    try:
        with Root.opened(context.settings) as root, locked(root):
            planned, problems = plan(root, patch, expected)
            _refuse(problems)
            backup = _backup(planned)
            _swap(root, planned, patch)
    except Refused as refused:
        if refuse:
            raise
        return {"files": [], "after": {}, "backup": _NOTHING, "problems": [{"path": "", "problem": str(refused)}]}
    return {"files": changes_of(planned), "after": digests_after(planned), "backup": backup, "problems": []}


@action(effects=["filesystem"], reversible=True, idempotent=True, timeout=120)
def revert_patch(
    context: Context,
    backup: Backup,
    force: bool = False,
    refuse: bool = True,
    label: Annotated[str, Limits(max_length=200)] = "",
) -> Reverted:
    """Take a patch back with what applying it gave as its backup.

    Args:
        backup: the backup of apply_patch
        force: also where files were changed since, if what the patch wrote is still there
        refuse: fail if files were changed since, in place of saying so
        label: what the patch is called, for whoever reads the result
    """
    with Root.opened(context.settings) as root, locked(root):
        planned, problems = plan(root, backup["patch"], backup["expected"], exact=not force)
        if problems and not refuse:
            return {"files": [], "after": {}, "backup": _NOTHING, "problems": problems, "label": label}
        _refuse(problems)
        again = _backup(planned)
        _swap(root, planned, backup["patch"], backup["modes"])
    return {
        "files": changes_of(planned),
        "after": digests_after(planned),
        "backup": again,
        "problems": [],
        "label": label,
    }


def _text(root: Root, path: str) -> str | None:
    content = root.look(path)
    return None if content is None else text_of(content.data, path)


def _edited(edit: Edit, now: str | None) -> str | None:
    if is_redacted(edit.old) or is_redacted(edit.new):
        raise Refused("this has the mark of a redacted secret in it: that part of the file is left to a person")
    if edit.delete:
        if now is None:
            raise Refused(f"there is no file {edit.path!r}")
        if edit.old or edit.new:
            raise Refused("an edit that deletes a file has no other text")
        return None
    if now is None:
        if edit.old:
            raise Refused(f"there is no file {edit.path!r}: without old text it is made")
        return edit.new
    if not edit.old:
        raise Refused(f"{edit.path!r} is there already: say which text of it to change")
    old, new = (_with_ends_of(now, text) for text in (edit.old, edit.new))
    count = now.count(old)
    if count != 1:
        lines = [str(now.count("\n", 0, at) + 1) for at in _places(now, old)]
        where = (
            f"is there {count} times (lines {', '.join(lines[:5])}): say more of it"
            if count
            else "is not there: read those lines again"
        )
        raise Refused(f"{edit.path!r}: the old text {where}")
    return now.replace(old, new)


def _with_ends_of(text: str, part: str) -> str:
    """Where all lines end as on Windows, so do those of an edit: whoever wrote it did not see the difference."""
    foreign = "\r\n" in text and text.count("\n") == text.count("\r\n") and "\r" not in part
    return part.replace("\n", "\r\n") if foreign else part


def _places(text: str, part: str) -> list[int]:
    places, at = [], text.find(part)
    while at >= 0:
        places.append(at)
        at = text.find(part, at + len(part))
    return places


def _patch(texts: dict[str, tuple[str | None, str | None]], problems: list[Problem]) -> str:
    patch = "".join(written(path, before, after) for path, (before, after) in texts.items())
    if not patch:
        problems.append({"path": "", "problem": "the edits change nothing"})
    elif len(patch) > _LONGEST_PATCH:
        problems.append({"path": "", "problem": f"the patch has more than {_LONGEST_PATCH:,} characters: make several"})
    return patch


def _checked(planned: list[Planned], problems: list[Problem]) -> Checked:
    return {
        "applies": not problems,
        "problems": problems,
        "files": changes_of(planned),
        "expected": digests_before(planned),
        "after": digests_after(planned),
    }


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Refused("; ".join(one["problem"] for one in problems[:5]))


def _backup(planned: list[Planned]) -> Backup:
    pieces = []
    for one in planned:
        after, before = (None if data is None else text_of(data, one.diff.path) for data in (one.after, one.before))
        pieces.append(written(one.diff.path, after, before))
    modes = {one.diff.path: one.mode for one in planned if one.diff.is_deleted}
    return {"patch": "".join(pieces), "expected": digests_after(planned), "modes": modes}


def _swap(root: Root, planned: list[Planned], patch: str, modes: dict[str, int] | None = None) -> None:
    changes = [
        Change(
            one.diff.path,
            one.after if one.done else one.before,
            one.after,
            (modes or {}).get(one.diff.path, one.mode) if one.diff.is_new else one.mode,
        )
        for one in planned
    ]
    swap_all(root, changes, digest(patch.encode())[:_LABEL])
