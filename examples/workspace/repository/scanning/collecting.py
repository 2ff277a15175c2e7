"""Which tests there are, as pytest would collect them, and which definitions each of them names.

Nothing is imported to find out. So tests that a program makes up or that a class inherits from another file are not
seen, and neither are the values of parameters: ``test_x[1]`` is ``test_x``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from .configuration import Configuration
from .modules import Modules
from .python import Outline, Symbol

__all__ = ["collected_in", "is_test_file", "used_symbols"]

_DEEPEST: Final = 8
"""How many files may pass a name on."""


def is_test_file(path: str, configuration: Configuration) -> bool:
    """Whether pytest looks for tests in a file."""
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path if "/" in pattern else name, pattern) for pattern in configuration.test_files)


def collected_in(path: str, outline: Outline, configuration: Configuration) -> Iterator[tuple[str, Symbol]]:
    """The id of each test in a test file, and its definition."""
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
        line = _line_of(around, classes)
        inherited = {name: symbol for each in reversed(line) for name, symbol in methods.get(each, {}).items()}
        if any(base.endswith("TestCase") for each in line for base in classes[each].bases):
            wanted: tuple[str, ...] = ("test",)
        elif all(_fits(part, configuration.test_classes) for part in around.split(".")) and "__init__" not in inherited:
            wanted = configuration.test_functions
        else:
            continue
        for name, symbol in inherited.items():
            if _fits(name, wanted):
                yield "::".join([path, *around.split("."), name]), symbol


def _line_of(name: str, classes: Mapping[str, Symbol]) -> list[str]:
    """A class and those of the same file that it inherits from, the nearest first."""
    line, waiting = [], [name]
    while waiting:
        each = waiting.pop(0)
        if each in classes and each not in line:
            line.append(each)
            waiting += classes[each].bases
    return line


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name.startswith(each) or ("*" in each and fnmatchcase(name, each)) for each in patterns)


def used_symbols(
    path: str, outline: Outline, modules: Modules, outline_of: Callable[[str], Outline | None]
) -> Iterator[tuple[str, str, str]]:
    """For each test of a file: its name, and file and name of a definition of the repository that it names."""
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
    deep: int,
) -> Iterator[tuple[str, str]]:
    """Where a name with dots leads, through files that only pass it on."""
    if deep > _DEEPEST:
        return
    for one in outline.imports:
        if one.name == "*" and not parts[0].startswith("_"):
            file, rest = modules.imported(one, path).file, parts
        elif one.bound != parts[0]:
            continue
        elif one.name:
            target = modules.imported(one, path)
            file, rest = target.file, parts[1:] if target.whole else [one.name, *parts[1:]]
        else:
            renamed = one.bound != one.module.partition(".")[0]
            file, rest = _longest([*one.module.split("."), *parts[1:]] if renamed else parts, path, modules)
        there = outline_of(file) if file is not None else None
        if file is None or there is None or not rest:
            continue
        names = {symbol.name for symbol in there.symbols}
        defined = next((".".join(rest[:n]) for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in names), None)
        if defined is not None:
            yield file, defined
        else:
            yield from _targets(file, there, rest, modules, outline_of, deep + 1)


def _longest(parts: list[str], path: str, modules: Modules) -> tuple[str | None, list[str]]:
    """The longest module that a name begins with, and what is left of the name."""
    for count in range(len(parts), 0, -1):
        file = modules.find(".".join(parts[:count]), path)
        if file is not None:
            return file, parts[count:]
    return None, []
