"""Where the programs lie that actions may start, and what such a program reads.

An action names a program; whoever dispatches says whether it may be started, and where it lies: on their ``PATH``, or
where a setting of the same name says. That is looked up before a host is locked in, for a host is told paths.

A Python interpreter is a program that reads: its library, that of the one that its environment was made from, and the
folders of packages that are installed where they are worked on. All are found without running it, from where it lies,
from ``pyvenv.cfg`` and from ``.pth`` files. Nothing hidden is read because such a file names it, and no folder that
holds more than a project.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

__all__ = ["Places", "read_by"]

EVERY: Final = "*"
"""Stands for each program that is named and is there."""

_PYTHON: Final = re.compile(r"python(\d(\.\d+)?t?)?")
_SYSTEM: Final = frozenset({Path("/"), Path("/usr"), Path("/usr/local")})
"""Of these, a host reads the libraries anyway, and has no business with the rest."""
_MOST_FILES: Final = 200
_LARGEST: Final = 65_536
_LEAST_DEPTH: Final = 2
"""Parts of a path: what lies directly in the root of the disk is the system's or everybody's."""
_HOME: Final = re.compile(r"^home\s*=\s*(\S.*?)\s*$", re.MULTILINE)


class Places:
    """Programs by their names."""

    def __init__(self, environ: Mapping[str, str], settings: Mapping[str, str] | None = None) -> None:
        folders = environ.get("PATH", os.defpath).split(os.pathsep)
        # A folder of PATH that depends on where somebody stands does not count.
        self._search = os.pathsep.join(folder for folder in folders if folder.startswith("/"))
        self._settings = settings or {}

    def find(self, name: str) -> str | None:
        """The absolute path of a program that is named, or is a path itself."""
        said = self._settings.get(name, name)
        if said.startswith("/"):
            return shutil.which(said)
        return shutil.which(said, path=self._search) if said and "/" not in said and self._search else None

    def startable(self, name: str, allowed: Iterable[str]) -> str | None:
        """Where the program lies, if it is among those that are allowed, by name or by path."""
        path = self.find(name)
        if path is None:
            return None
        return path if any(each in (EVERY, name) or self.find(each) == path for each in allowed) else None


def read_by(program: str) -> Iterator[str]:
    """Folders and files that an interpreter needs beside the libraries of the system; none for other programs."""
    path = Path(program)
    if _PYTHON.fullmatch(path.name):
        yield from _environment(path.parent.parent)
        yield from _environment(path.resolve().parent.parent)


def _environment(prefix: Path) -> Iterator[str]:
    marker = prefix / "pyvenv.cfg"
    if marker.is_file():
        yield str(marker)
        if made_from := _HOME.search(marker.read_text(encoding="utf-8", errors="replace")):
            yield from _library(Path(made_from[1]).resolve().parent)
    yield from _library(prefix)


def _library(prefix: Path) -> Iterator[str]:
    if prefix not in _SYSTEM:
        yield from (str(folder) for folder in (prefix / "lib", prefix / "lib64") if folder.is_dir())
        for file in sorted(prefix.glob("lib/python3*/site-packages/*.pth"))[:_MOST_FILES]:
            yield from _worked_on(file)


def _worked_on(file: Path) -> Iterator[str]:
    """The folders that a ``.pth`` file adds to the path of imports."""
    home = Path.home()
    for line in file.read_bytes()[:_LARGEST].decode(errors="replace").splitlines():
        folder = Path(line.strip())
        hidden = any(part.startswith(".") for part in folder.parts)
        wide = len(folder.parts) <= _LEAST_DEPTH or home.is_relative_to(folder)
        if folder.is_absolute() and not hidden and not wide and folder.is_dir():
            yield str(folder)
