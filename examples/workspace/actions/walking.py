"""The files of a repository that somebody would look through.

Left out are links, what belongs to tools (``.git`` and other hidden folders, environments, caches, installed packages),
and what is no plain file. Every folder is opened relative to the one above it and never through a link. Names come in
their order, so the same repository always gives the same list.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from .refusal import Refused
from .roots import Root, plain

__all__ = ["MOST_FILES", "files"]

MOST_FILES: Final = 50_000
_DEEPEST: Final = 64
_TOOLS: Final = frozenset({"__pycache__", "node_modules"})
_WANTED: Final = frozenset({".github", ".gitlab", ".circleci"})
_ENVIRONMENT: Final = "pyvenv.cfg"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def files(root: Root, under: str = "", glob: str = "") -> Iterator[str]:
    """Paths below a folder, or the one file that is named; of these such as fit a pattern for their names or paths."""
    parts = plain(under) if under else ()
    if parts and root.kind(under) == "file":
        yield under
        return
    count = 0
    with root.folder(parts) as folder:
        for path in _below(folder, "/".join(parts), _DEEPEST):
            if not glob or fnmatchcase(path, glob) or fnmatchcase(path.rpartition("/")[2], glob):
                yield path
            count += 1
            if count >= MOST_FILES:
                raise Refused(f"there are more than {MOST_FILES:,} files: name a folder")


def _below(folder: int, name: str, depth: int) -> Iterator[str]:
    entries = sorted(os.listdir(folder))
    if _ENVIRONMENT in entries:
        return
    for entry in entries:
        path = f"{name}/{entry}" if name else entry
        if not path.isprintable() or "\\" in path:  # it has no name that an action could be given
            continue
        try:
            mode = os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode
        except OSError:  # it was there a moment ago
            continue
        if stat.S_ISREG(mode):
            yield path
        elif stat.S_ISDIR(mode) and depth and not _is_of_tools(entry):
            try:
                below = os.open(entry, _FOLDER, dir_fd=folder)
            except OSError:
                continue
            try:
                yield from _below(below, path, depth - 1)
            finally:
                os.close(below)


def _is_of_tools(name: str) -> bool:
    return name in _TOOLS or (name.startswith(".") and name not in _WANTED)
