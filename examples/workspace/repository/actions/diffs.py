"""Parse, format, reverse and apply unified diffs. This module does not access files.

Parsing is strict: line counts in hunk headers must be correct, and renames, mode changes and binary content are
refused. A hunk is applied at the line that it states, or at the only other position where all of its lines match. There
is no fuzzy matching.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from ..refusal import Refusal
from .roots import path_components
from .texts import split_lines

__all__ = ["CONTEXT", "FileDiff", "Hunk", "apply_diff", "format_diff", "read_diff", "reverse_diff"]

_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ABOUT: Final = ("diff --git ", "index ", "new file mode 100", "deleted file mode 100")
_REFUSED: Final = {
    "rename ": "renames a file: delete it and create another",
    "copy ": "copies a file: create another",
    "similarity ": "renames a file: delete it and create another",
    "old mode ": "changes a file mode, which is not supported",
    "new mode ": "changes a file mode, which is not supported",
    "Binary files ": "is about binary content",
    "GIT binary patch": "is about binary content",
}
_NOWHERE: Final = "/dev/null"
_NO_END: Final = "\\ No newline at end of file\n"
_MOST_FILES: Final = 100
CONTEXT: Final = 3
_SLOW: Final = 3_000
"""The most lines that are compared one by one; a longer change becomes one hunk."""


@dataclass(frozen=True, slots=True)
class Hunk:
    start: int
    """The index of its first line before the change, from 0."""
    lines: tuple[tuple[str, str], ...]
    """Pairs of a sign (``' '``, ``'-'`` or ``'+'``) and a line."""

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
    """Parse a diff into one :class:`FileDiff` for each file.

    Raises :class:`Refusal` with the line number if the diff is malformed.
    """
    reader = _Reader(split_lines(text))
    found: list[FileDiff] = []
    while (one := reader.file()) is not None:
        found.append(one)
        if len(found) > _MOST_FILES:
            raise Refusal(f"the patch changes more than {_MOST_FILES} files: split it")
    if not found:
        raise Refusal("the patch has no '--- a/PATH' line, and so changes nothing")
    if len({one.path for one in found}) < len(found):
        raise Refusal("the patch names one file twice: put its hunks together")
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
                raise self._wrong("is not part of a unified diff")
            self._at += 1
        old = self._name()
        if not self._starts("+++ "):
            raise self._wrong("should be '+++ b/PATH'")
        new = self._name()
        hunks = []
        while self._starts("@@ "):
            hunks.append(self._hunk())
        path = _path(old, new)
        path_components(path)
        if not hunks and _NOWHERE not in (old, new):
            raise Refusal(f"the patch has no hunk for {path!r}")
        return FileDiff(path, tuple(hunks), is_new=old == _NOWHERE, is_deleted=new == _NOWHERE)

    def _name(self) -> str:
        name = self._lines[self._at][4:].rstrip("\n").partition("\t")[0].rstrip()
        if name.startswith('"'):
            raise self._wrong("has a quoted file name: only unquoted names are supported")
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
        if old < 0 or new < 0 or self._has_more_lines():
            raise Refusal(f"line {begun + 1} of the patch has line counts that do not match its hunk")
        # A hunk that only adds lines inserts them after the line that its header names.
        return Hunk(start if not any(sign != "+" for sign, _ in lines) else start - 1, tuple(lines))

    def _line(self, begun: int) -> tuple[str, str]:
        if self._at == len(self._lines):
            raise Refusal(f"line {begun + 1} of the patch counts more lines than its hunk has")
        line = self._lines[self._at]
        self._at += 1
        if line == "\n":  # an empty context line whose leading space was stripped
            return " ", line
        if line[0] not in " +-":
            self._at -= 1
            raise self._wrong("should begin with ' ', '+' or '-'")
        return line[0], line[1:] if line.endswith("\n") else f"{line[1:]}\n"

    def _has_more_lines(self) -> bool:
        """Return whether the next line can only belong to the current hunk."""
        return self._at < len(self._lines) and self._lines[self._at][0] in " +-" and not self._starts("--- ")

    def _starts(self, word: str) -> bool:
        return self._at < len(self._lines) and self._lines[self._at].startswith(word)

    def _wrong(self, problem: str) -> Refusal:
        line = self._lines[self._at].rstrip("\n")[:80] if self._at < len(self._lines) else ""
        return Refusal(f"line {self._at + 1} of the patch ({line!r}) {problem}")


def _path(old: str, new: str) -> str:
    if _NOWHERE in (old, new):
        if old == new:
            raise Refusal("the patch names /dev/null as both the old and the new file")
        named, prefix = (new, "b/") if old == _NOWHERE else (old, "a/")
        return named.removeprefix(prefix)
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    if old != new:
        raise Refusal(f"the patch names {old!r} and {new!r} for one file: to rename it, delete it and create another")
    return new


# ----------------------------------------------------------------------------------------------------------- applying


def apply_diff(diff: FileDiff, before: str, *, exact: bool) -> str:
    """Return the text after the change. ``exact``: the hash of ``before`` is that of the diff's original text.

    Raises :class:`Refusal` if a hunk does not match, or matches at several positions.
    """
    lines = split_lines(before)
    out: list[str] = []
    taken = shift = 0
    for number, hunk in enumerate(diff.hunks, 1):
        old = hunk.before
        at = _position(lines, old, hunk.start + shift, taken, exact)
        if isinstance(at, str):
            raise Refusal(f"{diff.path!r}: hunk {number} (line {hunk.start + 1}) {at}")
        shift = at - hunk.start
        out += [*lines[taken:at], *hunk.after]
        taken = at + len(old)
    out += lines[taken:]
    if any(not line.endswith("\n") for line in out[:-1]):
        raise Refusal(f"{diff.path!r}: a line without a line break would be followed by other lines")
    return "".join(out)


def _position(lines: list[str], old: list[str], wanted: int, least: int, exact: bool) -> int | str:
    """Return the index at which the lines of a hunk match, or a text with the reason why there is none."""
    if least <= wanted <= len(lines) - len(old) and lines[wanted : wanted + len(old)] == old:
        if old or exact or not lines:
            return wanted
        return "has no context lines, and the file is not the one that the patch was made for"
    if not old:
        return "is after the end of the file"
    positions = [at for at in range(least, len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
    if len(positions) == 1:
        return positions[0]
    return "does not fit: its lines are not in the file" if not positions else f"fits at {len(positions)} places"


def reverse_diff(diff: FileDiff) -> FileDiff:
    """Return the diff that reverts the change."""
    turned = {"+": "-", "-": "+", " ": " "}
    hunks, shift = [], 0
    for hunk in diff.hunks:
        hunks.append(Hunk(hunk.start + shift, tuple((turned[sign], text) for sign, text in hunk.lines)))
        shift += len(hunk.after) - len(hunk.before)
    return replace(diff, hunks=tuple(hunks), is_new=diff.is_deleted, is_deleted=diff.is_new)


# ------------------------------------------------------------------------------------------------------------ writing


def format_diff(path: str, before: str | None, after: str | None, context: int = CONTEXT) -> str:
    """Return the diff between two texts; empty if they are equal. None stands for a missing file."""
    if before == after:
        return ""
    names = f"--- {_NOWHERE if before is None else f'a/{path}'}\n+++ {_NOWHERE if after is None else f'b/{path}'}\n"
    old, new = split_lines(before or ""), split_lines(after or "")
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
    # The common start and end are already reduced to context. A long change becomes one hunk, to bound the run time.
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
    output: list[str] = []
    for group in groups:
        (_, old_from, _, new_from, _), (_, _, old_to, _, new_to) = group[0], group[-1]
        output.append(f"@@ -{_range(old_from, old_to, first)} +{_range(new_from, new_to, first)} @@\n")
        for kind, old_at, old_end, new_at, new_end in group:
            if kind == "equal":
                output += map(_line_formatter(" "), old[old_at:old_end])
            else:
                output += map(_line_formatter("-"), old[old_at:old_end])
                output += map(_line_formatter("+"), new[new_at:new_end])
    return output


def _range(start: int, end: int, first: int) -> str:
    count = end - start
    return f"{first + start + (1 if count else 0)},{count}"


def _line_formatter(sign: str) -> Callable[[str], str]:
    return lambda line: f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n{_NO_END}"
