"""Every class and function that a package exports has a docstring. ruff's ``D1`` rules cannot express exports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"


@cache
def _definitions(module: Path) -> dict[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: node for node in ast.parse(module.read_text("utf-8")).body if isinstance(node, kinds)}


def _exports() -> Iterator[tuple[Path, str]]:
    """Yield the module and the name of everything that an ``__init__.pyi`` exports."""
    for stub in SOURCE.rglob("__init__.pyi"):
        for node in ast.parse(stub.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                folder = stub.parents[node.level - 1] if node.level else SOURCE
                module = folder.joinpath(*node.module.split(".")).with_suffix(".py")
                yield from ((module, alias.name) for alias in node.names)


def test_exports_have_docstrings() -> None:
    exports = {(module, name) for module, name in _exports() if module.exists()}
    if len(exports) < 100:
        pytest.fail("the exports were not found")
    missing = [
        f"{module.relative_to(SOURCE)}: {name}"
        for module, name in sorted(exports)
        if (node := _definitions(module).get(name)) is not None and ast.get_docstring(node) is None
    ]
    assert not missing, "\n".join(missing)
