"""A ``.gitignore`` parser, for actions that must not start git.

The rules are those of git: the last matching pattern decides, ``!`` re-includes, a pattern with a slash is relative to
its own folder, a pattern without a slash matches in all folders below, ``**`` stands for any number of folders. Tracked
files that match a pattern are treated as ignored, because the index is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["FILE", "IgnoreRules", "parse_rules"]

FILE: Final = ".gitignore"
_MOST_LINES: Final = 5_000
_LONGEST: Final = 500
_STARS: Final = 6
"""A pattern with more asterisks is skipped: its regular expression could take exponential time."""


class _Rule(NamedTuple):
    ignores: bool
    only_folders: bool
    expression: re.Pattern[str]


class IgnoreRules(NamedTuple):
    """The rules of one folder, whose path ends with a slash; empty for the root."""

    folder: str
    rules: tuple[_Rule, ...]

    def decide(self, path: str, is_folder: bool) -> bool | None:
        """Return whether the path is ignored; None if no rule matches."""
        below = path[len(self.folder) :]
        for rule in reversed(self.rules):
            if (is_folder or not rule.only_folders) and rule.expression.fullmatch(below):
                return rule.ignores
        return None


def parse_rules(folder: str, text: str) -> IgnoreRules:
    lines = (_rule(line) for line in text.split("\n")[:_MOST_LINES])
    return IgnoreRules(folder, tuple(rule for rule in lines if rule is not None))


def _rule(line: str) -> _Rule | None:
    line = _without_spaces(line.removesuffix("\r"))
    if not line or line.startswith("#") or len(line) > _LONGEST:
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    only_folders = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern or pattern.count("*") > _STARS:
        return None
    try:
        return _Rule(
            ignores,
            only_folders,
            re.compile(("" if anchored else "(?:.*/)?") + "".join(_translated(pattern)), re.DOTALL),
        )
    except re.error:  # a malformed character class, which git accepts
        return None


def _without_spaces(line: str) -> str:
    """Strip trailing spaces, except one that is escaped with a backslash."""
    stripped = line.rstrip(" ")
    slashes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if slashes % 2 and stripped != line else stripped


def _translated(pattern: str) -> Iterable[str]:
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            yield "(?:.*/)?"
            at += 3
        elif pattern[at:] == "**" and (at == 0 or pattern[at - 1] == "/"):
            yield ".+"
            at += 2
        elif pattern[at] == "*":
            yield "[^/]*"
            while pattern[at : at + 1] == "*":
                at += 1
        elif pattern[at] == "?":
            yield "[^/]"
            at += 1
        elif pattern[at] == "[" and (found := _CLASS.match(pattern, at)):
            negated, members = found.groups()
            yield f"(?!/)[{'^' if negated else ''}{_members(members)}]"
            at = found.end()
        else:
            at += pattern[at] == "\\" and at + 1 < len(pattern)
            yield re.escape(pattern[at])
            at += 1


_CLASS: Final = re.compile(r"\[([!^]?)(\]?(?:\\.|[^\]\\])*)\]")


def _members(text: str) -> str:
    """Translate the members of a character class to Python's syntax."""
    text = re.sub(r"\\(.)", lambda found: f"\\{found[1]}" if not found[1].isalnum() else found[1], text)
    return text.replace("[", "\\[") if not text.startswith("]") else f"\\]{text[1:]}".replace("[", "\\[")
