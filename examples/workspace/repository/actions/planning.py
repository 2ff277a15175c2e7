"""What a patch would make of the files that are there, before anything is changed.

A file is known by its hash. One that is what the patch expects will be changed; one that is already what the patch
makes of it is done, so that a patch whose outcome nobody knows can be applied again. Anything else is a problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from ..refusal import Refused
from ..secrets import is_redacted, secret_lines
from .diffs import CONTEXT, FileDiff, applied, read_diff, reversed_diff, written
from .roots import LARGEST, Content, Root
from .texts import digest, text_of

__all__ = [
    "NOTHING",
    "FileChange",
    "Planned",
    "Problem",
    "changes_of",
    "digests_after",
    "digests_before",
    "plan",
    "quiet",
]

NOTHING: Final = ""
"""The hash of a file that is not there."""


class FileChange(TypedDict):
    path: str
    kind: Literal["changed", "new", "deleted"]
    added: int
    removed: int


class Problem(TypedDict):
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A file before and after; None is a file that is not there."""

    diff: FileDiff
    before: bytes | None
    after: bytes | None
    mode: int
    done: bool
    """It is after the change already."""


def plan(
    root: Root, patch: str, expected: Mapping[str, str] | None, *, exact: bool = True
) -> tuple[list[Planned], list[Problem]]:
    """What the patch would do, and what is in its way.

    ``expected`` are the hashes of all its files; without it they may be anything that the patch fits. Without ``exact``
    a file may be another one, if all hunks find their lines.
    """
    diffs = read_diff(patch)
    if expected is not None and set(expected) != {diff.path for diff in diffs}:
        raise Refused("the hashes are not those of the files in the patch: check it first")
    planned: list[Planned] = []
    problems: list[Problem] = []
    for diff in diffs:
        try:
            wanted = None if expected is None else expected[diff.path]
            planned.append(_planned(diff, root.look(diff.path), wanted, exact))
        except Refused as refused:
            problems.append({"path": diff.path, "problem": str(refused)})
    return planned, problems


def _planned(diff: FileDiff, now: Content | None, expected: str | None, exact: bool) -> Planned:
    if any(is_redacted(text) for hunk in diff.hunks for sign, text in hunk.lines if sign == "+"):
        raise Refused(f"{diff.path!r}: the patch would write the mark of a redacted secret into it")
    mode = 0o644 if now is None else now.mode
    data = None if now is None else now.data
    is_known = expected is not None and _hash(data) == expected
    if expected is not None and not is_known:
        before = _undone(diff, data)
        if before is not False and _hash(before) == expected:
            return Planned(diff, before, data, mode, done=True)
        if exact:
            raise Refused(f"{diff.path!r} is not the file that the patch was made for: it has changed since")
    after = _after(diff, data, exact=is_known or (exact and expected is None and not diff.is_new))
    return Planned(diff, data, after, mode, done=False)


def _after(diff: FileDiff, data: bytes | None, *, exact: bool) -> bytes | None:
    if diff.is_new and data is not None:
        raise Refused(f"{diff.path!r} is there already")
    if not diff.is_new and data is None:
        raise Refused(f"there is no file {diff.path!r}")
    text = applied(diff, text_of(data or b"", diff.path), exact=exact or diff.is_new)
    if diff.is_deleted:
        if text:
            raise Refused(f"{diff.path!r} has lines that the patch does not delete")
        return None
    after = text.encode()
    if len(after) > LARGEST:
        raise Refused(f"{diff.path!r} would have more than {LARGEST:,} bytes")
    return after


def _undone(diff: FileDiff, data: bytes | None) -> bytes | Literal[False] | None:
    """What the file was, if the patch has been applied to it; False if it has not."""
    try:
        return _after(reversed_diff(diff), data, exact=True)
    except Refused:
        return False


def _hash(data: bytes | None) -> str:
    return NOTHING if data is None else digest(data)


def changes_of(planned: list[Planned]) -> list[FileChange]:
    return [
        {
            "path": one.diff.path,
            "kind": "new" if one.diff.is_new else "deleted" if one.diff.is_deleted else "changed",
            "added": one.diff.count("+"),
            "removed": one.diff.count("-"),
        }
        for one in planned
    ]


def digests_before(planned: list[Planned]) -> dict[str, str]:
    return {one.diff.path: _hash(one.before) for one in planned}


def digests_after(planned: list[Planned]) -> dict[str, str]:
    return {one.diff.path: _hash(one.after) for one in planned}


def quiet(path: str, before: str | None, after: str | None) -> tuple[str, bool]:
    """A diff whose lines of context hold no secret: where they would, it has none. And whether others do."""
    secret = secret_lines(before or "") | secret_lines(after or "")
    for context in (CONTEXT, 0):
        diff = written(path, before, after, context)
        touched = any(line[1:] in secret for line in diff.split("\n"))
        if not touched:
            break
    return diff, touched
