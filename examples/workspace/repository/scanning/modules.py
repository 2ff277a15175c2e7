"""Which file an import means, among the files of the repository.

A module is looked for where Python would: below the folders that imports begin in. Those are, in this order, the
folder that the importing file's own package lies in; the top of the repository, every folder ``src`` and what the
configuration names; and folders that hold a package, the nearest to the importing file first. A folder without
``__init__.py`` may be a part of a name (a namespace package), but is no file. Modules that are in none of them come
from elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from .python import Import

__all__ = ["Modules", "Target"]


class Target(NamedTuple):
    """What an import means."""

    file: str | None
    """None if it is none of ours."""
    module: str
    """Its full name."""
    whole: bool
    """Whether the name that is bound is the module, and not something in it."""


class Modules:
    """The Python files of a repository, as modules."""

    def __init__(self, files: Iterable[str], import_roots: Iterable[str] = ()) -> None:
        self._files: Final = frozenset(files)
        self._declared: Final = sorted(
            {"", *import_roots, *_sources(self._files)}, key=lambda root: (root == "", root.count("/"), root)
        )
        self._deepest: Final = sorted(self._declared, key=lambda root: -len(root))
        self._holders: dict[str, set[str]] = {}
        for file in self._files:
            root = self.package_root(file)
            if root != _folder(file):  # it lies in a package
                top = file[len(root) + 1 if root else 0 :].partition("/")[0]
                self._holders.setdefault(top, set()).add(root)
        self._known: dict[tuple[str, str], str | None] = {}

    def package_root(self, file: str) -> str:
        """The folder that the outermost package around a file lies in; its own, if it is in none."""
        folder = _folder(file)
        while folder and f"{folder}/__init__.py" in self._files:
            folder = _folder(folder)
        return folder

    def name(self, file: str) -> str:
        """What a file is called as a module."""
        root = next((root for root in self._deepest if _is_below(file, root)), "")
        inside = file[len(root) + 1 if root else 0 :]
        stem = inside[: inside.rfind(".")] if "." in inside else inside
        return stem.removesuffix("/__init__").replace("/", ".") if stem != "__init__" else ""

    def packages(self, file: str) -> Iterator[str]:
        """The ``__init__.py`` files that run before a file is imported."""
        folder = _folder(file)
        while folder:
            init = f"{folder}/__init__.py"
            if init in self._files and init != file:
                yield init
            folder = _folder(folder)

    def find(self, module: str, importer: str) -> str | None:
        """The file of a module that is named with dots."""
        key = (_folder(importer), module)
        if key not in self._known:
            parts = module.split(".")
            path, holders = self._roots(parts[0], importer)
            # A package or module in one of the folders counts before a namespace in all of them.
            solid = [root for root in path if self._at(_join(root, parts[0])) is not None]
            found = (self._below(root, parts) for root in [*solid, *path, *holders])
            self._known[key] = next((file for file in found if file is not None), None)
        return self._known[key]

    def _below(self, root: str, parts: list[str]) -> str | None:
        """As Python goes down: a module that is no package has nothing below it."""
        folder = root
        for part in parts[:-1]:
            folder = _join(folder, part)
            if f"{folder}/__init__.py" not in self._files and f"{folder}.py" in self._files:
                return None
        return self._at(_join(folder, parts[-1]))

    def imported(self, one: Import, importer: str) -> Target:
        """What an import means, seen from the file that has it."""
        module = self._absolute(one, importer)
        base = self._relative(one, importer) if one.level else None
        if one.name and one.name != "*":
            name = f"{module}.{one.name}".lstrip(".") if base is not None or not one.level else module
            if not one.level:
                below = self.find(name, importer)
            else:
                below = self._at(_join(base, one.name)) if base is not None else None
            if below is not None:
                return Target(below, name, whole=True)
        if one.level:
            return Target(self._at(base) if base is not None else None, module, whole=False)
        return Target(self.find(module, importer), module, whole=not one.name)

    def _relative(self, one: Import, importer: str) -> str | None:
        """Where a relative import begins, as a path without an ending; None above the top."""
        folder = _folder(importer)
        for _ in range(one.level - 1):
            if not folder:
                return None
            folder = _folder(folder)
        return _join(folder, one.module.replace(".", "/"))

    def _absolute(self, one: Import, importer: str) -> str:
        if not one.level:
            return one.module
        base = self._relative(one, importer)
        if base is None:
            return "." * one.level + one.module
        return self.name(f"{base}/__init__.py" if base else "__init__.py")

    def _at(self, path: str) -> str | None:
        for candidate in (f"{path}/__init__.py" if path else "__init__.py", f"{path}.py", f"{path}.pyi"):
            if candidate in self._files:
                return candidate
        return None

    def _roots(self, top: str, importer: str) -> tuple[list[str], list[str]]:
        """The import path as far as it is known, and folders that may be on it because they hold the package."""
        own = self.package_root(importer)
        if top in sys.stdlib_module_names:
            return [own], []  # what lies beside a script hides it, nothing else does
        holders = sorted(self._holders.get(top, ()), key=lambda root: (-_shared(root, importer), root))
        return [own, *self._declared], holders


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name


def _is_below(path: str, folder: str) -> bool:
    return not folder or path.startswith(f"{folder}/")


def _shared(one: str, other: str) -> int:
    count = 0
    for a, b in zip(one.split("/"), other.split("/"), strict=False):
        if a != b:
            break
        count += 1
    return count


def _sources(files: frozenset[str]) -> set[str]:
    """Every folder called ``src`` that is no package."""
    found = set()
    for file in files:
        parts = file.split("/")[:-1]
        for number, part in enumerate(parts, 1):
            folder = "/".join(parts[:number])
            if part == "src" and f"{folder}/__init__.py" not in files:
                found.add(folder)
    return found
