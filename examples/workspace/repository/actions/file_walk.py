"""List the source files of a repository.

Symbolic links, ignored files, tool folders (``.git`` and other hidden folders, virtual environments, caches, installed
packages) and special files are left out. Each folder is opened relative to its parent, without following links. Names
are sorted, so the result is deterministic.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from ..confined_open import FOLDER
from ..refusal import Refusal
from .ignore_rules import FILE as IGNORED, IgnoreRules, parse_rules
from .roots import Root, path_components, read_at
from .texts import decode_text

__all__ = ["MOST_FILES", "files"]

MOST_FILES: Final = 50_000
_DEEPEST: Final = 64
_TOOLS: Final = frozenset({"__pycache__", "node_modules"})
_WANTED: Final = frozenset({".github", ".gitlab", ".circleci"})
_ENVIRONMENT: Final = "pyvenv.cfg"


def files(root: Root, under: str = "", glob: str = "") -> Iterator[str]:
    """Yield the files below a folder, or the file ``under`` itself, whose name or path matches ``glob``.

    Raises :class:`Refusal` if there are more than MOST_FILES.
    """
    parts = path_components(under) if under else ()
    if parts and root.kind(under) == "file":
        yield under
        return
    count = 0
    above: tuple[IgnoreRules, ...] = ()
    for depth in range(len(parts)):
        with root.folder(parts[:depth]) as folder:
            above += _rules(folder, "/".join(parts[:depth]))
    with root.folder(parts) as folder:
        for path in _below(folder, "/".join(parts), _DEEPEST, above):
            if not glob or fnmatchcase(path, glob) or fnmatchcase(path.rpartition("/")[2], glob):
                yield path
            count += 1
            if count >= MOST_FILES:
                raise Refusal(f"there are more than {MOST_FILES:,} files: name a folder")


def _below(folder: int, name: str, depth: int, above: tuple[IgnoreRules, ...]) -> Iterator[str]:
    entries = sorted(os.listdir(folder))
    if _ENVIRONMENT in entries:
        return
    rules = above + (_rules(folder, name) if IGNORED in entries else ())
    for entry in entries:
        path = f"{name}/{entry}" if name else entry
        if not path.isprintable() or "\\" in path:  # no action accepts such a path
            continue
        try:
            mode = os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode
        except OSError:  # deleted since the folder was listed
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or _is_ignored(rules, path, stat.S_ISDIR(mode)):
            continue
        if stat.S_ISREG(mode):
            yield path
        elif depth and not _is_tool_folder(entry):
            try:
                below = os.open(entry, FOLDER, dir_fd=folder)
            except OSError:
                continue
            try:
                yield from _below(below, path, depth - 1, rules)
            finally:
                os.close(below)


def _rules(folder: int, name: str) -> tuple[IgnoreRules, ...]:
    path = f"{name}/{IGNORED}" if name else IGNORED
    try:
        content = read_at(folder, IGNORED, path)
        return () if content is None else (parse_rules(f"{name}/" if name else "", decode_text(content.data, path)),)
    except Refusal:  # a link, or not a text
        return ()


def _is_ignored(rules: tuple[IgnoreRules, ...], path: str, is_folder: bool) -> bool:
    """Return whether a path is ignored; the nearest folder with a matching rule decides."""
    for each in reversed(rules):
        decided = each.decide(path, is_folder)
        if decided is not None:
            return decided
    return False


def _is_tool_folder(name: str) -> bool:
    return name in _TOOLS or (name.startswith(".") and name not in _WANTED)
