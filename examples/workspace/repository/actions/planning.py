"""What a patch would make of the files that are there, before anything is changed.

A file is known by its hash. One that is what the patch expects will be changed; one that is already what the patch
makes of it is done, so that a patch whose outcome nobody knows can be applied again. Anything else is a problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from ..credentials import refuse_credentials
from ..refusal import Refused
from ..secrets import found, is_redacted
from .diffs import FileDiff, applied, read_diff, reversed_diff
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
    "refuse_secrets",
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
            root.refuse_protected(diff.path)
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
    refuse_secrets(diff.path, None if data is None else text_of(data, diff.path))
    is_known = expected is not None and _hash(data) == expected
    if expected is not None and not is_known:
        before = _undone(diff, data)
        if before is not False and _hash(before) == expected:
            return Planned(diff, before, data, mode, done=True)
        if exact:
            raise Refused(
                f"{diff.path!r} is not the file that the patch was made for: it has changed since, so read it again"
            )
    after = _after(diff, data, exact=is_known or (exact and expected is None and not diff.is_new))
    refuse_secrets(diff.path, None if after is None else text_of(after, diff.path))
    return Planned(diff, data, after, mode, done=False)


def _after(diff: FileDiff, data: bytes | None, *, exact: bool) -> bytes | None:
    if diff.is_new and data is not None:
        raise Refused(f"{diff.path!r} is there already: change it instead")
    if not diff.is_new and data is None:
        raise Refused(f"there is no file {diff.path!r}")
    text = applied(diff, text_of(data or b"", diff.path), exact=exact or diff.is_new)
    if diff.is_deleted:
        if text:
            raise Refused(f"{diff.path!r} has lines that the patch does not delete: read it again")
        return None
    after = text.encode()
    if len(after) > LARGEST:
        raise Refused(f"{diff.path!r} would have more than {LARGEST:,} bytes: part it")
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


def refuse_secrets(path: str, *texts: str | None) -> None:
    """A file with a secret is left to a person: nobody guesses it by trying which edits fit, and no patch has it."""
    refuse_credentials(path)
    if any(text is not None and found(text) for text in texts):
        raise Refused(f"{path!r} has to do with a secret, and is left to a person")
