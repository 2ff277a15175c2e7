"""What ``__all__`` says is the API: it is there, it is typed, and it says what it is for."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module, resources
from types import ModuleType

import pytest

import manglecp
from manglecp.base.lazy import exported_names
from tests.docs.test_pages import FENCE, ROOT


def exports(package: ModuleType) -> Iterable[str]:
    return getattr(package, "__all__", None) or exported_names(str(package.__file__))


ROOMS = ("manglecp", "manglecp.mangle", "manglecp.harness", "manglecp.client", "manglecp.testing", "manglecp.cli")
NAMES = [(room, name) for room in ROOMS for name in exports(import_module(room))]
API = [
    *("ActionError", "Client", "Context", "Limits", "Part", "Progress", "Secret", "Server"),
    *("__version__", "action", "external", "facts", "lifespan"),
]
"""What may be imported from the package itself. Whoever changes this changes what others rely on."""


def test_the_api_is_what_it_was() -> None:
    assert sorted([*exports(manglecp), "__version__"]) == sorted(API)


def documented(thing: object) -> bool:
    """Somebody wrote that; a dataclass that says nothing gets its signature."""
    text = (thing.__doc__ or "").strip()
    return bool(text) and not text.startswith(f"{getattr(thing, '__name__', '')}(")


@pytest.mark.parametrize(("room", "name"), NAMES, ids=[f"{room}.{name}" for room, name in NAMES])
def test_a_public_name_is_there_and_says_what_it_is_for(room: str, name: str) -> None:
    thing = getattr(import_module(room), name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert documented(thing), f"{room}.{name} has no docstring"
    if inspect.isfunction(thing):
        signature = inspect.signature(thing)
        untyped = [one.name for one in signature.parameters.values() if one.annotation is one.empty]
        assert not untyped, f"{room}.{name}: {untyped}"
        assert signature.return_annotation is not signature.empty, f"{room}.{name}"


def test_star_imports_take_exactly_the_api() -> None:
    code = "from manglecp import *; print(*sorted(n for n in dir() if n == '__version__' or not n.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(set(API) - {"__version__"})


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sorcerer'"):
        _ = manglecp.Sorcerer  # type: ignore[attr-defined]


def test_the_package_says_that_it_is_typed() -> None:
    assert (resources.files("manglecp") / "py.typed").is_file()


def imported_on_pages() -> list[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for language, body in FENCE.findall(page.read_text("utf-8")):
            if language == "python" and not re.search(r"^\s*\.\.\.|…", body, re.MULTILINE):
                for node in ast.walk(ast.parse(body)):
                    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "manglecp":
                        found |= {(str(node.module), alias.name) for alias in node.names}
    return sorted(found)


@pytest.mark.parametrize(("module", "name"), imported_on_pages())
def test_what_pages_import_is_public(module: str, name: str) -> None:
    """A page must not lead to a name that its module does not offer."""
    home = import_module(module)
    thing = getattr(home, name, None) or import_module(f"{module}.{name}")
    if not inspect.ismodule(thing):
        assert name in getattr(home, "__all__", [one for one in vars(home) if not one.startswith("_")])
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert documented(thing), f"{module}.{name} has no docstring"
