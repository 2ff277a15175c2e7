"""What files have to do with each other: imports, packages, tests and what they name.

If files came, went or are configured differently, every import may mean something else, and all are looked at again.
Otherwise only files that changed are, and the tests whose names were followed through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from .collecting import collected_in, is_test_file, used_symbols
from .configuration import FILES, Configuration, configured
from .files import Known
from .marks import PYTHON
from .modules import Modules
from .python import Outline
from .reading import read
from .told import Fact

__all__ = ["Relations"]


class Relations:
    """All of them, from one pass to the next."""

    def __init__(self, root: Path) -> None:
        self._root: Final = root
        self._spoken: dict[str, str] = {}
        self._configuration = Configuration()
        self._modules = Modules(())
        self._names: frozenset[str] = frozenset()
        self._followed: dict[str, set[str]] = {}

    def stale(self, known: Mapping[str, Known], changed: set[str]) -> Iterable[str]:
        """Which files have to be looked at again."""
        names = frozenset(name for name, one in known.items() if one.language == PYTHON)
        spoken = {name: known[name].digest for name in FILES if name in known}
        if names == self._names and spoken == self._spoken:
            followed = (test for test, through in self._followed.items() if not through.isdisjoint(changed))
            return {name for name in changed if name in names}.union(followed)
        if spoken != self._spoken:
            self._configuration = configured({name: self._text(name) for name in spoken})
        gone = self._names - names
        self._names, self._spoken = names, spoken
        self._modules = Modules(names, self._configuration.import_roots)
        self._followed = {}
        return names | gone

    def facts(self, name: str, known: Mapping[str, Known]) -> Iterator[Fact]:
        """What is to be said of one file."""
        if name not in self._names:
            return
        outline = known[name].analysis.outline
        module = self._modules.name(name)
        if all(part.isidentifier() for part in module.split(".")):
            yield "module", name, module
        for init in self._modules.packages(name):
            yield "in_package", name, init
        targets = [self._modules.imported(one, name) for one in outline.imports]
        yield from (("imports", name, target.module) for target in targets if target.module)
        yield from (("imports_file", name, target.file) for target in targets if target.file not in (None, name))
        if is_test_file(name, self._configuration):
            yield from self._tests(name, outline, known)

    def _tests(self, name: str, outline: Outline, known: Mapping[str, Known]) -> Iterator[Fact]:
        yield "test_file", name
        folder = name
        while folder:
            folder = folder.rpartition("/")[0]
            conftest = f"{folder}/conftest.py".lstrip("/")
            if conftest in self._names:
                yield "conftest_of", name, conftest
        ids: dict[str, list[str]] = {}
        for test, symbol in collected_in(name, outline, self._configuration):
            ids.setdefault(symbol.name, []).append(test)
            yield "test", test, name, symbol.line
        followed: set[str] = set()

        def outline_of(file: str) -> Outline | None:
            followed.add(file)
            return known[file].analysis.outline if file in known else None

        for definition, file, used in used_symbols(name, outline, self._modules, outline_of):
            yield from (("tests_symbol", test, file, used) for test in ids.get(definition, ()))
        self._followed[name] = followed

    def _text(self, name: str) -> str:
        try:
            data = read(self._root, name).data
        except OSError:
            return ""
        return (data or b"").decode("utf-8-sig", "replace")
