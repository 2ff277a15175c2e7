"""The relations between files: imports, packages, tests and the definitions that tests use.

If Python files are added or removed, or the configuration changes, all imports are resolved again. Otherwise only those
of changed files, and of tests whose names were resolved through a changed file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from .configuration import FILES, Configuration, read_configuration
from .file_kinds import PYTHON
from .file_reader import read
from .files import ScannedFile
from .modules import Modules
from .pytest_collection import collect_tests, is_test_file, used_symbols
from .python import Outline
from .scan_facts import Fact

__all__ = ["Relations"]


class Relations:
    """The relations of a repository, kept from pass to pass."""

    def __init__(self, root: Path) -> None:
        self._root: Final = root
        self._config_digests: dict[str, str] = {}
        self._configuration = Configuration()
        self._modules = Modules(())
        self._names: frozenset[str] = frozenset()
        self._resolved_through: dict[str, set[str]] = {}

    def stale(self, known: Mapping[str, ScannedFile], changed: set[str]) -> Iterable[str]:
        """Return the files whose relations must be computed again."""
        names = frozenset(name for name, one in known.items() if one.language == PYTHON)
        config_digests = {name: known[name].digest for name in FILES if name in known}
        if names == self._names and config_digests == self._config_digests:
            resolved_through = (
                test for test, through in self._resolved_through.items() if not through.isdisjoint(changed)
            )
            return {name for name in changed if name in names}.union(resolved_through)
        if config_digests != self._config_digests:
            self._configuration = read_configuration({name: self._text(name) for name in config_digests})
        gone = self._names - names
        self._names, self._config_digests = names, config_digests
        self._modules = Modules(names, self._configuration.import_roots)
        self._resolved_through = {}
        return names | gone

    def facts(self, name: str, known: Mapping[str, ScannedFile]) -> Iterator[Fact]:
        """Yield the facts about the relations of one file."""
        if name not in self._names:
            return
        outline = known[name].analysis.outline
        module = self._modules.module_name(name)
        if all(part.isidentifier() for part in module.split(".")):
            yield "module", name, module
        for init in self._modules.packages(name):
            yield "in_package", name, init
        targets = [self._modules.resolve_import(one, name) for one in outline.imports]
        yield from (("imports", name, target.module) for target in targets if target.module)
        yield from (("imports_file", name, target.file) for target in targets if target.file not in (None, name))
        if is_test_file(name, self._configuration):
            yield from self._tests(name, outline, known)

    def _tests(self, name: str, outline: Outline, known: Mapping[str, ScannedFile]) -> Iterator[Fact]:
        yield "test_file", name
        folder = name
        while folder:
            folder = folder.rpartition("/")[0]
            conftest = f"{folder}/conftest.py".lstrip("/")
            if conftest in self._names:
                yield "conftest_of", name, conftest
        ids: dict[str, list[str]] = {}
        for test, symbol in collect_tests(name, outline, self._configuration):
            ids.setdefault(symbol.name, []).append(test)
            yield "test", test, name, symbol.line
        resolved_through: set[str] = set()

        def outline_of(file: str) -> Outline | None:
            resolved_through.add(file)
            return known[file].analysis.outline if file in known else None

        for definition, file, used in used_symbols(name, outline, self._modules, outline_of):
            yield from (("tests_symbol", test, file, used) for test in ids.get(definition, ()))
        self._resolved_through[name] = resolved_through

    def _text(self, name: str) -> str:
        try:
            data = read(self._root, name).data
        except OSError:
            return ""
        return (data or b"").decode("utf-8-sig", "replace")
