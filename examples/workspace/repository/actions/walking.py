"""The files of a repository that somebody would look through.

Left out are links, what git ignores, what belongs to tools (``.git`` and other hidden folders, environments, caches,
installed packages), and what is no plain file. Every folder is opened relative to the one above it and never through a
link. Names come in their order, so the same repository always gives the same list.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from ..opening import FOLDER
from ..refusal import Refused
from .ignoring import FILE as IGNORED, Rules, rules_of
from .roots import Root, plain, read_at
from .texts import text_of

__all__ = ["MOST_FILES", "files"]

MOST_FILES: Final = 50_000
_DEEPEST: Final = 64
_TOOLS: Final = frozenset({"__pycache__", "node_modules"})
_WANTED: Final = frozenset({".github", ".gitlab", ".circleci"})
_ENVIRONMENT: Final = "pyvenv.cfg"


def files(root: Root, under: str = "", glob: str = "") -> Iterator[str]:
    """Paths below a folder, or the one file that is named; of these such as fit a pattern for their names or paths."""
    parts = plain(under) if under else ()
    if parts and root.kind(under) == "file":
        yield under
        return
    count = 0
    above: tuple[Rules, ...] = ()
    for depth in range(len(parts)):
        with root.folder(parts[:depth]) as folder:
            above += _rules(folder, "/".join(parts[:depth]))
    with root.folder(parts) as folder:
        for path in _below(folder, "/".join(parts), _DEEPEST, above):
            if not glob or fnmatchcase(path, glob) or fnmatchcase(path.rpartition("/")[2], glob):
                yield path
            count += 1
            if count >= MOST_FILES:
                raise Refused(f"there are more than {MOST_FILES:,} files: name a folder")


def _below(folder: int, name: str, depth: int, above: tuple[Rules, ...]) -> Iterator[str]:
    entries = sorted(os.listdir(folder))
    if _ENVIRONMENT in entries:
        return
    rules = above + (_rules(folder, name) if IGNORED in entries else ())
    for entry in entries:
        path = f"{name}/{entry}" if name else entry
        if not path.isprintable() or "\\" in path:  # it has no name that an action could be given
            continue
        try:
            mode = os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode
        except OSError:  # it was there a moment ago
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or _is_ignored(rules, path, stat.S_ISDIR(mode)):
            continue
        if stat.S_ISREG(mode):
            yield path
        elif depth and not _is_of_tools(entry):
            try:
                below = os.open(entry, FOLDER, dir_fd=folder)
            except OSError:
                continue
            try:
                yield from _below(below, path, depth - 1, rules)
            finally:
                os.close(below)


def _rules(folder: int, name: str) -> tuple[Rules, ...]:
    path = f"{name}/{IGNORED}" if name else IGNORED
    try:
        content = read_at(folder, IGNORED, path)
        return () if content is None else (rules_of(f"{name}/" if name else "", text_of(content.data, path)),)
    except Refused:  # a link, or no text
        return ()


def _is_ignored(rules: tuple[Rules, ...], path: str, is_folder: bool) -> bool:
    """The nearest folder that says something about it decides."""
    for each in reversed(rules):
        decided = each.decide(path, is_folder)
        if decided is not None:
            return decided
    return False


def _is_of_tools(name: str) -> bool:
    return name in _TOOLS or (name.startswith(".") and name not in _WANTED)
