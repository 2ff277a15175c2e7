"""The definitions, imports and tests of a Python file, from its syntax tree.

All nested statements are visited; expressions only in tests, to find the imported names that each test uses. The file
is parsed and never executed. If it cannot be parsed, the outline has only the reason.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Final

import msgspec

__all__ = ["Import", "Outline", "Symbol", "parse_outline"]

_BODIES: Final = ("body", "handlers", "cases", "orelse", "finalbody")
_LONGEST: Final = 8
"""The most parts of a dotted name; of a longer name only the prefixes are recorded."""
_CODING: Final = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


class Symbol(msgspec.Struct, frozen=True, array_like=True):
    """A definition that other modules can refer to."""

    name: str
    """The qualified name, such as ``Basket.total``."""
    kind: str
    line: int
    end: int
    bases: tuple[str, ...] = ()
    """The last part of the name of each base class."""


class Import(msgspec.Struct, frozen=True, array_like=True):
    """A name or a module that an import statement binds."""

    level: int
    module: str
    name: str = ""
    """The imported name; empty for the module itself."""
    bound: str = ""
    """The local name."""


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """The symbols, imports and tests of a file."""

    symbols: tuple[Symbol, ...] = ()
    imports: tuple[Import, ...] = ()
    uses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Pairs of a test and the dotted imported names that it uses."""
    problem: str = ""
    """The reason why the file has no outline; empty otherwise."""
    line: int = 0
    """The line of the problem, or 0."""


def parse_outline(data: bytes) -> Outline:
    """Return the outline of a file. The encoding is the one that the file declares."""
    if b"\0" in data:
        return Outline(problem="NUL byte", line=data.count(b"\n", 0, data.index(b"\0")) + 1)
    invalid_line = _invalid_utf8_line(data)  # ast.parse accepts invalid bytes in comments, the interpreter does not
    if invalid_line:
        return Outline(problem="not UTF-8", line=invalid_line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escape sequences
            tree = ast.parse(data)
        return _Reader().read(tree)
    except SyntaxError as error:
        return Outline(problem="syntax error", line=error.lineno or 0)
    except (MemoryError, RecursionError):
        return Outline(problem="nested too deeply")
    except ValueError:  # an unknown encoding, on some versions
        return Outline(problem="syntax error")


def _invalid_utf8_line(data: bytes) -> int:
    """Return the first line that is not UTF-8; 0 if there is none or the file declares another encoding."""
    if any(_CODING.match(line) for line in data.split(b"\n", 2)[:2]):
        return 0
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1
    return 0


class _Reader:
    def __init__(self) -> None:
        self._symbols: list[Symbol] = []
        self._imports: dict[Import, None] = {}
        self._tests: list[tuple[str, ast.AST]] = []

    def read(self, tree: ast.Module) -> Outline:
        waiting: list[tuple[ast.AST, str, str]] = [(node, "", "module") for node in reversed(tree.body)]
        while waiting:
            node, within, place = waiting.pop()
            inside = self._take(node, within, place)
            for field in reversed(_BODIES):
                below = getattr(node, field, ())
                if isinstance(below, list):  # the body of a lambda is an expression
                    waiting += [(child, *inside) for child in reversed(below)]
        bound = {one.bound for one in self._imports}
        uses = ((name, tuple(sorted(set(_used(node, bound))))) for name, node in self._tests)
        return Outline(tuple(self._symbols), tuple(self._imports), tuple(use for use in uses if use[1]))

    def _take(self, node: ast.AST, within: str, place: str) -> tuple[str, str]:
        """Record a statement, and return the name prefix and the kind of scope for its body."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if place == "function":
                return within, place  # not accessible from outside of the function
            name = f"{within}{node.name}"
            self._define(node, name, "method" if place == "class" else "function")
            if node.name.lower().startswith("test"):
                self._tests.append((name, node))
            return f"{name}.", "function"
        if isinstance(node, ast.ClassDef):
            if place == "function":
                return within, place
            name = f"{within}{node.name}"
            self._define(node, name, "class", tuple(filter(None, map(_last, node.bases))))
            return f"{name}.", "class"
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                self._imports[Import(0, alias.name, "", alias.asname or top)] = None
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self._imports[Import(node.level, node.module or "", alias.name, alias.asname or alias.name)] = None
        elif place == "module" and isinstance(node, ast.Assign | ast.AnnAssign):
            self._assign(node)
        return within, place

    def _define(self, node: ast.stmt, name: str, kind: str, bases: tuple[str, ...] = ()) -> None:
        first = min((each.lineno for each in getattr(node, "decorator_list", ())), default=node.lineno)
        self._symbols.append(Symbol(name, kind, first, node.end_lineno or node.lineno, bases))

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                self._define(node, target.id, "variable")
                if target.id == "pytest_plugins" and node.value is not None:
                    for module in _texts(node.value):
                        self._imports[Import(0, module, "", module.partition(".")[0])] = None


def _texts(node: ast.expr) -> Iterator[str]:
    for each in node.elts if isinstance(node, ast.List | ast.Tuple) else [node]:
        value = each.value if isinstance(each, ast.Constant) else None
        if isinstance(value, str) and all(part.isidentifier() for part in value.split(".")):
            yield value


def _last(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def _used(node: ast.AST, bound: set[str]) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name | ast.Attribute):
            parts: list[str] = []
            inner: ast.expr = each
            while isinstance(inner, ast.Attribute) and len(parts) < _LONGEST:
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id in bound:
                yield ".".join([inner.id, *reversed(parts)])
