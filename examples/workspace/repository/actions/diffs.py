"""Unified diffs: read, written, turned round, and applied to lines. No files here.

A diff is read strictly: what it says about its own size has to be true, and what it cannot say about text (renames,
modes, binary content) is refused. A hunk fits where it says, or at the only other place where all of its lines are.
There is no guessing beyond that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from ..refusal import Refused
from .roots import plain
from .texts import lines_of

__all__ = ["CONTEXT", "FileDiff", "Hunk", "applied", "read_diff", "reversed_diff", "written"]

_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ABOUT: Final = ("diff --git ", "index ", "new file mode 100", "deleted file mode 100")
_REFUSED: Final = {
    "rename ": "renames a file: delete it and make another",
    "copy ": "copies a file: make another",
    "similarity ": "renames a file: delete it and make another",
    "old mode ": "changes a mode, which is not done here",
    "new mode ": "changes a mode, which is not done here",
    "Binary files ": "is about binary content",
    "GIT binary patch": "is about binary content",
}
_NOWHERE: Final = "/dev/null"
_NO_END: Final = "\\ No newline at end of file\n"
_MOST_FILES: Final = 100
CONTEXT: Final = 3
_SLOW: Final = 3_000
"""Lines that are compared one by one; a longer change is told as one."""


@dataclass(frozen=True, slots=True)
class Hunk:
    start: int
    """The first of its lines before the change, from 0."""
    lines: tuple[tuple[str, str], ...]
    """Each with ``' '``, ``'-'`` or ``'+'``."""

    @property
    def before(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def after(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "-"]


@dataclass(frozen=True, slots=True)
class FileDiff:
    path: str
    hunks: tuple[Hunk, ...]
    is_new: bool = False
    is_deleted: bool = False

    def count(self, sign: str) -> int:
        return sum(mark == sign for hunk in self.hunks for mark, _ in hunk.lines)


# ------------------------------------------------------------------------------------------------------------ reading


def read_diff(text: str) -> list[FileDiff]:
    """What a diff says of each file; :class:`Refused` names the line that is wrong."""
    reader = _Reader(lines_of(text))
    found: list[FileDiff] = []
    while (one := reader.file()) is not None:
        found.append(one)
        if len(found) > _MOST_FILES:
            raise Refused(f"the patch is about more than {_MOST_FILES} files: make several")
    if not found:
        raise Refused("the patch has no '--- a/PATH' line, and so changes nothing")
    if len({one.path for one in found}) < len(found):
        raise Refused("the patch is about one file twice: put its hunks together")
    return found


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def file(self) -> FileDiff | None:
        while not self._starts("--- "):
            if self._at == len(self._lines):
                return None
            line = self._lines[self._at]
            for word, problem in _REFUSED.items():
                if line.startswith(word):
                    raise self._wrong(problem)
            if line.strip() and not line.startswith(_ABOUT):
                raise self._wrong("is no part of a unified diff")
            self._at += 1
        old = self._name()
        if not self._starts("+++ "):
            raise self._wrong("should be '+++ b/PATH'")
        new = self._name()
        hunks = []
        while self._starts("@@ "):
            hunks.append(self._hunk())
        path = _path(old, new)
        plain(path)
        if not hunks and _NOWHERE not in (old, new):
            raise Refused(f"the patch has no hunk for {path!r}")
        return FileDiff(path, tuple(hunks), is_new=old == _NOWHERE, is_deleted=new == _NOWHERE)

    def _name(self) -> str:
        name = self._lines[self._at][4:].rstrip("\n").partition("\t")[0].rstrip()
        if name.startswith('"'):
            raise self._wrong("has a quoted name: only plain ones are taken")
        self._at += 1
        return name

    def _hunk(self) -> Hunk:
        head = _HUNK.match(self._lines[self._at])
        if head is None:
            raise self._wrong("should be '@@ -LINE,COUNT +LINE,COUNT @@'")
        begun, start = self._at, int(head[1])
        old, new = (int(head[n]) if head[n] is not None else 1 for n in (2, 4))
        self._at += 1
        lines: list[tuple[str, str]] = []
        while old > 0 or new > 0:
            sign, text = self._line(begun)
            old -= sign != "+"
            new -= sign != "-"
            lines.append((sign, text))
            if self._starts("\\"):
                lines[-1] = (sign, text.removesuffix("\n"))
                self._at += 1
        if old < 0 or new < 0 or self._goes_on():
            raise Refused(f"line {begun + 1} of the patch counts other lines than the hunk has")
        # A hunk without lines before it is one that stands behind the line that it names.
        return Hunk(start if not any(sign != "+" for sign, _ in lines) else start - 1, tuple(lines))

    def _line(self, begun: int) -> tuple[str, str]:
        if self._at == len(self._lines):
            raise Refused(f"line {begun + 1} of the patch counts more lines than the hunk has")
        line = self._lines[self._at]
        self._at += 1
        if line == "\n":  # an empty line of context that lost its space on the way
            return " ", line
        if line[0] not in " +-":
            self._at -= 1
            raise self._wrong("should begin with ' ', '+' or '-'")
        return line[0], line[1:] if line.endswith("\n") else f"{line[1:]}\n"

    def _goes_on(self) -> bool:
        """A line that can only belong to the hunk before it."""
        return self._at < len(self._lines) and self._lines[self._at][0] in " +-" and not self._starts("--- ")

    def _starts(self, word: str) -> bool:
        return self._at < len(self._lines) and self._lines[self._at].startswith(word)

    def _wrong(self, problem: str) -> Refused:
        line = self._lines[self._at].rstrip("\n")[:80] if self._at < len(self._lines) else ""
        return Refused(f"line {self._at + 1} of the patch ({line!r}) {problem}")


def _path(old: str, new: str) -> str:
    if _NOWHERE in (old, new):
        if old == new:
            raise Refused("the patch turns nothing into nothing")
        named, prefix = (new, "b/") if old == _NOWHERE else (old, "a/")
        return named.removeprefix(prefix)
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    if old != new:
        raise Refused(f"the patch names {old!r} and {new!r} for one file: to rename it, delete it and make another")
    return new


# ----------------------------------------------------------------------------------------------------------- applying


def applied(diff: FileDiff, before: str, *, exact: bool) -> str:
    """The text after the change. ``exact``: it is known to be the text that the diff was made from."""
    lines = lines_of(before)
    out: list[str] = []
    taken = shift = 0
    for number, hunk in enumerate(diff.hunks, 1):
        old = hunk.before
        at = _place(lines, old, hunk.start + shift, taken, exact)
        if isinstance(at, str):
            raise Refused(f"{diff.path!r}: hunk {number} (line {hunk.start + 1}) {at}")
        shift = at - hunk.start
        out += [*lines[taken:at], *hunk.after]
        taken = at + len(old)
    out += lines[taken:]
    if any(not line.endswith("\n") for line in out[:-1]):
        raise Refused(f"{diff.path!r}: a line without an end would stand before others")
    return "".join(out)


def _place(lines: list[str], old: list[str], wanted: int, least: int, exact: bool) -> int | str:
    """Where the lines of a hunk are, or why it is not known."""
    if least <= wanted <= len(lines) - len(old) and lines[wanted : wanted + len(old)] == old:
        if old or exact or not lines:
            return wanted
        return "has no lines to be known by, and the file is not the one that it was made for"
    if not old:
        return "stands behind the end of the file"
    places = [at for at in range(least, len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
    if len(places) == 1:
        return places[0]
    return "does not fit: its lines are not there" if not places else f"fits at {len(places)} places"


def reversed_diff(diff: FileDiff) -> FileDiff:
    """The diff that takes the change back."""
    turned = {"+": "-", "-": "+", " ": " "}
    hunks, shift = [], 0
    for hunk in diff.hunks:
        hunks.append(Hunk(hunk.start + shift, tuple((turned[sign], text) for sign, text in hunk.lines)))
        shift += len(hunk.after) - len(hunk.before)
    return replace(diff, hunks=tuple(hunks), is_new=diff.is_deleted, is_deleted=diff.is_new)


# ------------------------------------------------------------------------------------------------------------ writing


def written(path: str, before: str | None, after: str | None, context: int = CONTEXT) -> str:
    """The diff between two texts; None is a file that is not there. Empty if they are the same."""
    if before == after:
        return ""
    names = f"--- {_NOWHERE if before is None else f'a/{path}'}\n+++ {_NOWHERE if after is None else f'b/{path}'}\n"
    old, new = lines_of(before or ""), lines_of(after or "")
    same = _same(old, new)
    end = _same(old[same:][::-1], new[same:][::-1])
    first, last = max(same - context, 0), max(end - context, 0)
    return names + "".join(_hunks(old[first : len(old) - last], new[first : len(new) - last], first, context))


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _hunks(old: list[str], new: list[str], first: int, context: int) -> list[str]:
    # What is compared begins and ends with context only; of something long, all between is one change.
    if len(old) + len(new) > _SLOW:
        head, tail = _same(old, new), 0
        tail = _same(old[head:][::-1], new[head:][::-1])
        groups = [
            [
                ("equal", 0, head, 0, head),
                ("replace", head, len(old) - tail, head, len(new) - tail),
                ("equal", len(old) - tail, len(old), len(new) - tail, len(new)),
            ]
        ]
    else:
        groups = [list(group) for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(context)]
    told: list[str] = []
    for group in groups:
        (_, old_from, _, new_from, _), (_, _, old_to, _, new_to) = group[0], group[-1]
        told.append(f"@@ -{_range(old_from, old_to, first)} +{_range(new_from, new_to, first)} @@\n")
        for kind, old_at, old_end, new_at, new_end in group:
            if kind == "equal":
                told += map(_told(" "), old[old_at:old_end])
            else:
                told += map(_told("-"), old[old_at:old_end])
                told += map(_told("+"), new[new_at:new_end])
    return told


def _range(start: int, end: int, first: int) -> str:
    count = end - start
    return f"{first + start + (1 if count else 0)},{count}"


def _told(sign: str) -> Callable[[str], str]:
    return lambda line: f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n{_NO_END}"
