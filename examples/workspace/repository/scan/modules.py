"""Resolve imports to files of the repository.

Modules are searched like in Python, below the import roots in this order: the parent folder of the importing file's
package; the root of the repository, all ``src`` folders and the configured roots; other folders that contain a package,
the nearest to the importing file first. A folder without ``__init__.py`` can be part of a module name (a namespace
package), but has no file. All other modules are external.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from .python import Import

__all__ = ["ImportTarget", "Modules"]


class ImportTarget(NamedTuple):
    """The module to which an import resolves."""

    file: str | None
    """None for an external module."""
    module: str
    """The absolute name of the module."""
    whole: bool
    """Whether the import binds the module itself, not a name in it."""


class Modules:
    """The Python modules of a repository."""

    def __init__(self, files: Iterable[str], import_roots: Iterable[str] = ()) -> None:
        self._files: Final = frozenset(files)
        self._declared: Final = sorted(
            {"", *import_roots, *_sources(self._files)}, key=lambda root: (root == "", root.count("/"), root)
        )
        self._deepest: Final = sorted(self._declared, key=lambda root: -len(root))
        self._holders: dict[str, set[str]] = {}
        for file in self._files:
            root = self.package_root(file)
            if root != _folder(file):  # the file is in a package
                top = file[len(root) + 1 if root else 0 :].partition("/")[0]
                self._holders.setdefault(top, set()).add(root)
        self._known: dict[tuple[str, str], str | None] = {}

    def package_root(self, file: str) -> str:
        """Return the parent folder of the outermost package of a file; the file's folder if it is in no package."""
        folder = _folder(file)
        while folder and f"{folder}/__init__.py" in self._files:
            folder = _folder(folder)
        return folder

    def module_name(self, file: str) -> str:
        """Return the module name of a file."""
        root = next((root for root in self._deepest if _is_below(file, root)), "")
        inside = file[len(root) + 1 if root else 0 :]
        stem = inside[: inside.rfind(".")] if "." in inside else inside
        return stem.removesuffix("/__init__").replace("/", ".") if stem != "__init__" else ""

    def packages(self, file: str) -> Iterator[str]:
        """Yield the ``__init__.py`` files that Python executes before it imports the file."""
        folder = _folder(file)
        while folder:
            init = f"{folder}/__init__.py"
            if init in self._files and init != file:
                yield init
            folder = _folder(folder)

    def find(self, module: str, importer: str) -> str | None:
        """Return the file of a module by its absolute name."""
        key = (_folder(importer), module)
        if key not in self._known:
            parts = module.split(".")
            path, holders = self._roots(parts[0], importer)
            # A package or module in any root has precedence over namespace packages.
            solid = [root for root in path if self._at(_join(root, parts[0])) is not None]
            found = (self._below(root, parts) for root in [*solid, *path, *holders])
            self._known[key] = next((file for file in found if file is not None), None)
        return self._known[key]

    def _below(self, root: str, parts: list[str]) -> str | None:
        """Return the file of a module below a root; None if a parent is a module and not a package."""
        folder = root
        for part in parts[:-1]:
            folder = _join(folder, part)
            if f"{folder}/__init__.py" not in self._files and f"{folder}.py" in self._files:
                return None
        return self._at(_join(folder, parts[-1]))

    def resolve_import(self, one: Import, importer: str) -> ImportTarget:
        """Return the target of an import statement in the file ``importer``."""
        module = self._absolute(one, importer)
        base = self._relative(one, importer) if one.level else None
        if one.name and one.name != "*":
            name = f"{module}.{one.name}".lstrip(".") if base is not None or not one.level else module
            if not one.level:
                below = self.find(name, importer)
            else:
                below = self._at(_join(base, one.name)) if base is not None else None
            if below is not None:
                return ImportTarget(below, name, whole=True)
        if one.level:
            return ImportTarget(self._at(base) if base is not None else None, module, whole=False)
        return ImportTarget(self.find(module, importer), module, whole=not one.name)

    def _relative(self, one: Import, importer: str) -> str | None:
        """Return the base of a relative import as a path without extension; None above the root."""
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
        return self.module_name(f"{base}/__init__.py" if base else "__init__.py")

    def _at(self, path: str) -> str | None:
        for candidate in (f"{path}/__init__.py" if path else "__init__.py", f"{path}.py", f"{path}.pyi"):
            if candidate in self._files:
                return candidate
        return None

    def _roots(self, top: str, importer: str) -> tuple[list[str], list[str]]:
        """Return the known import roots, and the folders that contain a package of this name."""
        own = self.package_root(importer)
        if top in sys.stdlib_module_names:
            return [own], []  # only a module in the importing file's own folder shadows the standard library
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
    """Return the folders named ``src`` that are not packages."""
    found = set()
    for file in files:
        parts = file.split("/")[:-1]
        for number, part in enumerate(parts, 1):
            folder = "/".join(parts[:number])
            if part == "src" and f"{folder}/__init__.py" not in files:
                found.add(folder)
    return found
