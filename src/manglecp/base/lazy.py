"""Package façades that import a submodule when one of its names is first used.

A package lists its exports once, as lines ``from .module import Name as Name`` in the stub ``__init__.pyi``, which type
checkers read. Its ``__init__.py`` calls :func:`attach`, which reads the same lines. Then a process that uses one name
of the package imports only the module of that name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module


def attach(package: str, init_file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, for the exports of the stub beside ``init_file``."""
    modules: dict[str, str] = {}  # by exported name; read from the stub at the first use

    def exports() -> dict[str, str]:
        if not modules:
            modules.update(exported_names(init_file))
        return modules

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return list(exports())
        # The import system looks up dunder names at every import, so the stub is not read for dunder names.
        if name.startswith("__") or name not in exports():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exports()})

    return __getattr__, __dir__


def exported_names(init_file: str) -> dict[str, str]:
    """Return the names that a package's stub exports, each with its module as a relative name (``.module``)."""
    with open(init_file + "i", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib would slow the start of a host
        text = stub.read()
    exports: dict[str, str] = {}
    for line in text.replace("(\n", "").replace(",\n    ", ", ").splitlines():  # each import on one line
        if line.startswith("from ."):
            module, _, names = line.removeprefix("from ").partition(" import ")
            for name in names.strip(" ,)").split(","):
                exports[name.partition(" as ")[0].strip()] = module
    return exports
