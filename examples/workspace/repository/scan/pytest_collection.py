"""Collect tests as pytest would, and the definitions that each test uses, without importing a module.

Limits: generated tests, tests that a class inherits from another file, and parameter values are not seen;
``test_x[1]`` is reported as ``test_x``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from .configuration import Configuration
from .modules import Modules
from .python import Outline, Symbol

__all__ = ["collect_tests", "is_test_file", "used_symbols"]

_DEEPEST: Final = 8
"""The most re-exports that are followed."""


def is_test_file(path: str, configuration: Configuration) -> bool:
    """Return whether pytest collects the file."""
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path if "/" in pattern else name, pattern) for pattern in configuration.test_files)


def collect_tests(path: str, outline: Outline, configuration: Configuration) -> Iterator[tuple[str, Symbol]]:
    """Yield the id and the definition of each test in a test file."""
    classes = {symbol.name: symbol for symbol in outline.symbols if symbol.kind == "class"}
    methods: dict[str, dict[str, Symbol]] = {"": {}}
    for symbol in outline.symbols:
        if symbol.kind in ("function", "method"):
            within, _, name = symbol.name.rpartition(".")
            methods.setdefault(within, {})[name] = symbol
    for name, symbol in methods[""].items():
        if _fits(name, configuration.test_functions):
            yield f"{path}::{name}", symbol
    for around in classes:
        bases = _linearise(around, classes)
        inherited = {name: symbol for each in reversed(bases) for name, symbol in methods.get(each, {}).items()}
        if any(base.endswith("TestCase") for each in bases for base in classes[each].bases):
            wanted: tuple[str, ...] = ("test",)
        elif all(_fits(part, configuration.test_classes) for part in around.split(".")) and "__init__" not in inherited:
            wanted = configuration.test_functions
        else:
            continue
        for name, symbol in inherited.items():
            if _fits(name, wanted):
                yield "::".join([path, *around.split("."), name]), symbol


def _linearise(name: str, classes: Mapping[str, Symbol]) -> list[str]:
    """Return a class and its base classes in the same file, nearest first."""
    found, queue = [], [name]
    while queue:
        each = queue.pop(0)
        if each in classes and each not in found:
            found.append(each)
            queue += classes[each].bases
    return found


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name.startswith(each) or ("*" in each and fnmatchcase(name, each)) for each in patterns)


def used_symbols(
    path: str, outline: Outline, modules: Modules, outline_of: Callable[[str], Outline | None]
) -> Iterator[tuple[str, str, str]]:
    """Yield test name, file and definition for each definition of the repository that a test of the file uses."""
    for test, names in outline.uses:
        found = {
            target for name in names for target in _targets(path, outline, name.split("."), modules, outline_of, 0)
        }
        yield from ((test, file, symbol) for file, symbol in sorted(found))


def _targets(
    path: str,
    outline: Outline,
    parts: list[str],
    modules: Modules,
    outline_of: Callable[[str], Outline | None],
    depth: int,
) -> Iterator[tuple[str, str]]:
    """Yield file and name of the definitions of a dotted name, following re-exports."""
    if depth > _DEEPEST:
        return
    for one in outline.imports:
        if one.name == "*" and not parts[0].startswith("_"):
            file, rest = modules.resolve_import(one, path).file, parts
        elif one.bound != parts[0]:
            continue
        elif one.name:
            target = modules.resolve_import(one, path)
            file, rest = target.file, parts[1:] if target.whole else [one.name, *parts[1:]]
        else:
            renamed = one.bound != one.module.partition(".")[0]
            file, rest = _longest([*one.module.split("."), *parts[1:]] if renamed else parts, path, modules)
        target_outline = outline_of(file) if file is not None else None
        if file is None or target_outline is None or not rest:
            continue
        names = {symbol.name for symbol in target_outline.symbols}
        defined = next((".".join(rest[:n]) for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in names), None)
        if defined is not None:
            yield file, defined
        else:
            yield from _targets(file, target_outline, rest, modules, outline_of, depth + 1)


def _longest(parts: list[str], path: str, modules: Modules) -> tuple[str | None, list[str]]:
    """Return the file of the longest module that is a prefix of the name, and the rest of the name."""
    for count in range(len(parts), 0, -1):
        file = modules.find(".".join(parts[:count]), path)
        if file is not None:
            return file, parts[count:]
    return None, []
