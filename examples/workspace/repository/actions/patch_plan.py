"""Compute the effect of a patch on the current files, without changing them.

Files are compared by hash. A file with the expected hash will be changed. A file that already has the content after the
change is marked as done, so that a patch can be applied again after an unknown outcome. Any other content is a problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from ..credentials import refuse_credentials
from ..refusal import Refusal
from ..secrets import find_secrets, is_redacted
from .diffs import FileDiff, apply_diff, read_diff, reverse_diff
from .roots import LARGEST, Content, Root
from .texts import decode_text, digest

__all__ = [
    "NOTHING",
    "FileChange",
    "FilePlan",
    "Problem",
    "digests_after",
    "digests_before",
    "file_changes",
    "plan",
    "refuse_secrets",
]

NOTHING: Final = ""
"""The hash of a missing file."""


class FileChange(TypedDict):
    path: str
    kind: Literal["changed", "new", "deleted"]
    added: int
    removed: int


class Problem(TypedDict):
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The content of a file before and after the change; None for a missing file."""

    diff: FileDiff
    before: bytes | None
    after: bytes | None
    mode: int
    done: bool
    """Whether the file already has the content after the change."""


def plan(
    root: Root, patch: str, expected: Mapping[str, str] | None, *, exact: bool = True
) -> tuple[list[FilePlan], list[Problem]]:
    """Return the changes of a patch and the problems that prevent it.

    ``expected`` has the hash of each file of the patch; with None, any content that the hunks match is accepted.
    Without ``exact``, a file with another hash is accepted if all hunks match.
    """
    diffs = read_diff(patch)
    if expected is not None and set(expected) != {diff.path for diff in diffs}:
        raise Refusal("the hashes are not those of the files in the patch: check the patch first")
    planned: list[FilePlan] = []
    problems: list[Problem] = []
    for diff in diffs:
        try:
            root.refuse_protected(diff.path)
            wanted = None if expected is None else expected[diff.path]
            planned.append(_planned(diff, root.read_optional(diff.path), wanted, exact))
        except Refusal as refusal:
            problems.append({"path": diff.path, "problem": str(refusal)})
    return planned, problems


def _planned(diff: FileDiff, now: Content | None, expected: str | None, exact: bool) -> FilePlan:
    if any(is_redacted(text) for hunk in diff.hunks for sign, text in hunk.lines if sign == "+"):
        raise Refusal(f"{diff.path!r}: the patch would write the mark of a redacted secret into it")
    mode = 0o644 if now is None else now.mode
    data = None if now is None else now.data
    refuse_secrets(diff.path, None if data is None else decode_text(data, diff.path))
    is_known = expected is not None and _hash(data) == expected
    if expected is not None and not is_known:
        before = _undone(diff, data)
        if before is not False and _hash(before) == expected:
            return FilePlan(diff, before, data, mode, done=True)
        if exact:
            raise Refusal(
                f"{diff.path!r} is not the file that the patch was made for: it has changed since, so read it again"
            )
    after = _after(diff, data, exact=is_known or (exact and expected is None and not diff.is_new))
    refuse_secrets(diff.path, None if after is None else decode_text(after, diff.path))
    return FilePlan(diff, data, after, mode, done=False)


def _after(diff: FileDiff, data: bytes | None, *, exact: bool) -> bytes | None:
    if diff.is_new and data is not None:
        raise Refusal(f"{diff.path!r} already exists: change it instead")
    if not diff.is_new and data is None:
        raise Refusal(f"there is no file {diff.path!r}")
    text = apply_diff(diff, decode_text(data or b"", diff.path), exact=exact or diff.is_new)
    if diff.is_deleted:
        if text:
            raise Refusal(f"{diff.path!r} has lines that the patch does not delete: read the file again")
        return None
    after = text.encode()
    if len(after) > LARGEST:
        raise Refusal(f"{diff.path!r} would have more than {LARGEST:,} bytes: split it")
    return after


def _undone(diff: FileDiff, data: bytes | None) -> bytes | Literal[False] | None:
    """Return the content before the patch if it has been applied; False if it has not."""
    try:
        return _after(reverse_diff(diff), data, exact=True)
    except Refusal:
        return False


def _hash(data: bytes | None) -> str:
    return NOTHING if data is None else digest(data)


def file_changes(planned: list[FilePlan]) -> list[FileChange]:
    return [
        {
            "path": one.diff.path,
            "kind": "new" if one.diff.is_new else "deleted" if one.diff.is_deleted else "changed",
            "added": one.diff.count("+"),
            "removed": one.diff.count("-"),
        }
        for one in planned
    ]


def digests_before(planned: list[FilePlan]) -> dict[str, str]:
    return {one.diff.path: _hash(one.before) for one in planned}


def digests_after(planned: list[FilePlan]) -> dict[str, str]:
    return {one.diff.path: _hash(one.after) for one in planned}


def refuse_secrets(path: str, *texts: str | None) -> None:
    """Raise :class:`Refusal` for a file with a secret, so that an agent cannot guess it by trying which edits match."""
    refuse_credentials(path)
    if any(text is not None and find_secrets(text) for text in texts):
        raise Refusal(f"{path!r} has to do with a secret: a person has to change it")
