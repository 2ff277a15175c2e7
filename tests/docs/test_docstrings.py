"""Whatever a module offers says what it gives: its functions, its classes, and what is public in those.

Read from the sources, without importing anything. A method needs no words of its own where others speak for it:

* a base class in this package, or a protocol that the class fulfils, says it of the method with the same name;
* it is a property in place of an attribute of such a base class;
* it overrides one of somebody else's class and calls it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.docs.test_pages import ROOT

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Package:
    """Modules by their paths, and their classes by name: whoever inherits from a name may mean each of that name."""

    def __init__(self, sources: Mapping[Path, str]) -> None:
        self.modules = {path: ast.parse(text) for path, text in sources.items()}
        self.classes: dict[str, list[ast.ClassDef]] = {}
        for module in self.modules.values():
            for node in module.body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, []).append(node)
        every = [one for found in self.classes.values() for one in found]
        self.protocols = [one for one in every if "Protocol" in bases(one) and len(methods(one)) > 1]

    def silent(self) -> Iterator[str]:
        """Where something public says nothing."""
        for path, module in self.modules.items():
            if ast.get_docstring(module) is None:
                yield f"{path}: the module"
            offered = names_offered(module)
            for node in module.body:
                if not isinstance(node, Function | ast.ClassDef) or node.name not in offered:
                    continue
                if ast.get_docstring(node) is None:
                    yield f"{path}:{node.lineno}: {node.name}"
                if isinstance(node, ast.ClassDef):
                    for method in methods(node).values():
                        if ast.get_docstring(method) is None and not self.spoken_for(node, method):
                            yield f"{path}:{method.lineno}: {node.name}.{method.name}"

    def spoken_for(self, owner: ast.ClassDef, method: Function) -> bool:
        """Do others say what the method gives?"""
        name, ancestors = method.name, self.ancestors(owner)
        if calls_overridden(method) or any(name in members(one) and name not in methods(one) for one in ancestors):
            return True
        has = members(owner)
        fulfilled = (
            [] if "Protocol" in bases(owner) else [one for one in self.protocols if has.issuperset(methods(one))]
        )
        return any(says(one, name) for one in (*ancestors, *fulfilled))

    def ancestors(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """All of them that are classes of the package."""
        found: list[ast.ClassDef] = []
        waiting = [owner]
        while waiting:
            new = [one for name in bases(waiting.pop()) for one in self.classes.get(name, ()) if one not in found]
            found += new
            waiting += new
        return found


def names_offered(module: ast.Module) -> frozenset[str]:
    """What stands in ``__all__``; where there is none, everything without an underscore."""
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return frozenset(ast.literal_eval(node.value))
    names = (node.name for node in module.body if isinstance(node, Function | ast.ClassDef))
    return frozenset(name for name in names if not name.startswith("_"))


def bases(owner: ast.ClassDef) -> list[str]:
    plain = (one.value if isinstance(one, ast.Subscript) else one for one in owner.bases)
    return [ast.unparse(one).rpartition(".")[2] for one in plain]


def methods(owner: ast.ClassDef) -> dict[str, Function]:
    """The first of each name: a setter goes with its property."""
    found: dict[str, Function] = {}
    for node in owner.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            found.setdefault(node.name, node)
    return found


def members(owner: ast.ClassDef) -> set[str]:
    """Methods, and what is assigned in the class or to ``self``: an attribute may stand for a property."""
    found = set(methods(owner))
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {ast.unparse(one).removeprefix("self.") for one in targets}
    return found


def says(owner: ast.ClassDef, name: str) -> bool:
    method = methods(owner).get(name)
    return method is not None and ast.get_docstring(method) is not None


def calls_overridden(method: Function) -> bool:
    called = (node.func for node in ast.walk(method) if isinstance(node, ast.Call))
    return any(ast.unparse(one) == f"super().{method.name}" for one in called)


def test_public_names_say_what_they_give() -> None:
    folder = ROOT / "src" / "manglecp"
    package = Package({path.relative_to(folder): path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))})
    assert list(package.silent()) == []
    assert sum(len(names_offered(module)) for module in package.modules.values()) > 1_500, "they were not found"


@pytest.mark.parametrize(
    ("source", "silent"),
    [
        ("def give(): ...", ["give"]),
        ("async def give(): ...", ["give"]),
        ("def _give(): ...", []),
        ("__all__ = ['give']\ndef give(): ...\ndef take(): ...", ["give"]),
        ("class Given:\n    def give(self): ...", ["Given", "Given.give"]),
        ("class Given:\n    '''Said.'''\n    @property\n    def give(self): ...", ["Given.give"]),
        ("class Given:\n    '''Said.'''\n    def _give(self): ...", []),
        ("class A:\n    '''Said.'''\n    def give(self):\n        super().give()", []),
        ("class A:\n    '''Said.'''\n    def give(self):\n        super().take()", ["A.give"]),
    ],
)
def test_silence_is_found(source: str, silent: list[str]) -> None:
    assert found_in(source) == silent


DOCUMENTED: Final = (
    "    '''Said.'''\n    def give(self):\n        '''Said.'''\n    def take(self):\n        '''Said.'''\n"
)
METHODS: Final = "    def give(self): ...\n    def take(self): ...\n"


@pytest.mark.parametrize(
    ("source", "silent"),
    [
        (f"class _A:\n{DOCUMENTED}class B(_A):\n    '''Said.'''\n{METHODS}", []),
        (f"class _A:\n{DOCUMENTED}class _B(_A): ...\nclass C(_B[int]):\n    '''Said.'''\n{METHODS}", []),
        (f"class _A:\n{METHODS}class B(_A):\n    '''Said.'''\n{METHODS}", ["B.give", "B.take"]),
        (f"class _A:\n{DOCUMENTED}class B:\n    '''Said.'''\n{METHODS}", ["B.give", "B.take"]),
        (f"class _A:\n    give: int\n    take: int\nclass B(_A):\n    '''Said.'''\n{METHODS}", []),
        (f"class _A(Protocol):\n{DOCUMENTED}class B:\n    '''Said.'''\n{METHODS}", []),
        (f"class _A(Protocol):\n{DOCUMENTED}class B:\n    '''Said.'''\n    take = 1\n    def give(self): ...", []),
        (f"class _A(Protocol):\n{DOCUMENTED}class B:\n    '''Said.'''\n    def give(self): ...", ["B.give"]),
        (f"class _A(Protocol):\n{DOCUMENTED}class B(Protocol):\n    '''Said.'''\n{METHODS}", ["B.give", "B.take"]),
    ],
)
def test_others_speak_for_a_method(source: str, silent: list[str]) -> None:
    assert found_in(source) == silent


def found_in(source: str) -> list[str]:
    package = Package({Path("a.py"): f"'''Said.'''\n{source}"})
    return [line.rpartition(" ")[2] for line in package.silent()]
