"""Imports mean the files that Python itself would load."""

from __future__ import annotations

import random
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from examples.workspace.repository.scan.modules import Modules
from examples.workspace.repository.scan.python import Import, parse_outline


def by_python(root: Path, path: list[str], module: str) -> str | None:
    """The file that a name leads to on an import path; None for a namespace. Nothing is run."""
    PathFinder.invalidate_caches()
    folders: list[str] = [str(root / entry) for entry in path]
    origin = None
    for part in module.split("."):  # by its last part alone: a namespace would look for the one around it
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            raise ModuleNotFoundError(module)
        inside = spec.submodule_search_locations or []
        folders, origin = [*getattr(inside, "_path", inside)], spec.origin
    return str(Path(origin).relative_to(root)) if origin is not None else None


@pytest.mark.parametrize("seed", range(20))
def test_what_python_finds_is_found(tmp_path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    folders = ["", "src"]
    for _ in range(14):
        folders.append("/".join(filter(None, [rnd.choice(folders), rnd.choice("abc")])))
    files = {
        "/".join(filter(None, [folder, name]))
        for folder in folders
        for name in ("a.py", "b.py", "d.py", "__init__.py")
        if rnd.random() < 0.4 and (folder, name) != ("src", "__init__.py")
    }
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    modules = Modules(files)
    found = 0
    for importer in sorted(files):
        path = [modules.package_root(importer), *(["src"] if any(f.startswith("src/") for f in files) else []), ""]
        for _ in range(20):
            name = ".".join(rnd.choice("abcd") for _ in range(rnd.randint(1, 3)))
            try:
                wanted = by_python(tmp_path, path, name)
            except ModuleNotFoundError:
                continue
            if wanted is not None:
                found += 1
                assert modules.find(name, importer) == wanted, (importer, name)
    assert found


TREE = (
    "src/shop/__init__.py",
    "src/shop/core.py",
    "src/shop/sub/__init__.py",
    "src/shop/sub/leaf.py",
    "src/space/inner/mod.py",
    "libs/one/pkg/__init__.py",
    "libs/one/pkg/here.py",
    "libs/one/main.py",
    "libs/two/pkg/__init__.py",
    "libs/two/pkg/here.py",
    "libs/two/json/__init__.py",
    "tests/test_core.py",
    "tests/tools.py",
    "tests/tools/below.py",
    "given/extra.py",
)


@pytest.mark.parametrize(
    ("importer", "line", "file", "module"),
    [
        ("tests/test_core.py", "import shop.core", "src/shop/core.py", "shop.core"),
        ("tests/test_core.py", "from shop import core as c", "src/shop/core.py", "shop.core"),
        ("tests/test_core.py", "from shop import VERSION", "src/shop/__init__.py", "shop"),
        ("tests/test_core.py", "from shop.core import *", "src/shop/core.py", "shop.core"),
        ("tests/test_core.py", "import tools", "tests/tools.py", "tools"),
        ("tests/test_core.py", "import space.inner.mod", "src/space/inner/mod.py", "space.inner.mod"),
        ("tests/test_core.py", "import space.inner", None, "space.inner"),
        ("tests/test_core.py", "import extra", "given/extra.py", "extra"),
        ("tests/test_core.py", "import json", None, "json"),
        ("tests/test_core.py", "import numpy.linalg", None, "numpy.linalg"),
        ("src/shop/sub/leaf.py", "from . import other", "src/shop/sub/__init__.py", "shop.sub"),
        ("src/shop/sub/leaf.py", "from .. import core", "src/shop/core.py", "shop.core"),
        ("src/shop/sub/leaf.py", "from ..core import x", "src/shop/core.py", "shop.core"),
        ("src/shop/sub/__init__.py", "from .leaf import x", "src/shop/sub/leaf.py", "shop.sub.leaf"),
        ("src/shop/sub/leaf.py", "from ....... import x", None, "......."),
        ("src/shop/sub/leaf.py", "import leaf", None, "leaf"),  # not beside it: it is in a package
        ("libs/one/main.py", "import pkg.here", "libs/one/pkg/here.py", "pkg.here"),  # the nearer of two
        ("libs/two/other.py", "import pkg.here", "libs/two/pkg/here.py", "pkg.here"),
        ("libs/two/tests/test_a.py", "import pkg.here", "libs/two/pkg/here.py", "pkg.here"),
        ("tests/test_core.py", "import tools.below", None, "tools.below"),  # tools.py is no package
    ],
)
def test_an_import_means(importer: str, line: str, file: str | None, module: str) -> None:
    modules = Modules({*TREE, importer}, ["given"])
    (one,) = parse_outline(line.encode()).imports
    target = modules.resolve_import(one, importer)
    assert (target.file, target.module) == (file, module)


def test_every_way_to_import_is_seen() -> None:
    text = """
import a, b.c as d
from e import (f, g as h)
from . import i
from .j import *
pytest_plugins = ["k.l", "not a name"]
def function():
    import m
    class Inner:
        from n import o
try:
    import p
except ImportError:
    import q
else:
    import r
finally:
    import s
if x:
    import t
elif y:
    import u
with z:
    async def coroutine():
        import v
match w:
    case 1:
        import x
for i in y:
    import z
"""
    imports = parse_outline(text.encode()).imports
    assert [*imports[:7]] == [
        Import(0, "a", "", "a"),
        Import(0, "b.c", "", "d"),
        Import(0, "e", "f", "f"),
        Import(0, "e", "g", "h"),
        Import(1, "", "i", "i"),
        Import(1, "j", "*", "*"),
        Import(0, "k.l", "", "k"),
    ]
    assert [one.module for one in imports[7:]] == ["m", "n", "p", "q", "r", "s", "t", "u", "v", "x", "z"]
