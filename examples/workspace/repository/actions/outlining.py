"""Outlining: what a Python file defines and imports, from its syntax tree. Nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypedDict

from manglecp import Context, Limits, action

from ..refusal import Refused
from ..secrets import found, redacted
from .roots import Root
from .texts import digest, text_of

__all__ = ["Outline", "Symbol", "outline"]

_LARGEST: Final = 1024 * 1024
_MOST: Final = 2_000
_LONGEST: Final = 300


class Symbol(TypedDict):
    kind: Literal["class", "function", "method", "variable"]
    name: str
    """With the names of what it is defined in: ``Basket.add``."""
    line: int
    end: int
    signature: str
    summary: str
    """The first line of its docstring."""


class Outline(TypedDict):
    path: str
    sha256: str
    summary: str
    imports: list[str]
    symbols: list[Symbol]
    more: bool
    """There are more symbols than are listed."""
    problem: str
    """Why there is no outline; empty if there is no problem."""


@action(effects=["filesystem"], mutates=False, idempotent=True)
def outline(
    context: Context, path: Annotated[str, Limits(min_length=1, max_length=1024)], refuse: bool = True
) -> Outline:
    """List what a Python file defines and imports.

    Args:
        path: relative to the repository
        refuse: fail if there is no outline of it, in place of saying so
    """
    try:
        return _outline(context, path)
    except Refused as refused:
        if refuse:
            raise
        problem = str(refused)
    return {
        "path": path,
        "sha256": "",
        "summary": "",
        "imports": [],
        "symbols": [],
        "more": False,
        "problem": problem,
    }


def _outline(context: Context, path: str) -> Outline:
    if not path.endswith((".py", ".pyi")):
        raise Refused(f"{path!r} is no Python file: read it instead")
    with Root.opened(context.settings) as root:
        data = root.read(path).data
    if len(data) > _LARGEST:
        raise Refused(f"{path!r} has more than {_LARGEST:,} bytes: read a part of it instead")
    text = text_of(data, path)
    try:
        tree = ast.parse(text)
        symbols = list(_symbols(tree, "", "function"))
    except SyntaxError as error:
        raise Refused(f"{path!r} is no Python: line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise Refused(f"{path!r} is nested too deeply: read a part of it instead") from None
    return {
        "path": path,
        "sha256": "" if found(text) else digest(data),
        "summary": _summary(tree),
        "imports": sorted(set(_imports(tree))),
        "symbols": symbols[:_MOST],
        "more": len(symbols) > _MOST,
        "problem": "",
    }


def _symbols(scope: ast.AST, within: str, function: Literal["function", "method"]) -> Iterator[Symbol]:
    """Definitions of a scope in their order, also such as stand under a condition."""
    for node in ast.iter_child_nodes(scope):
        match node:
            case ast.ClassDef(name=name):
                bases = ", ".join(map(ast.unparse, [*node.bases, *(word.value for word in node.keywords)]))
                yield _symbol("class", within + name, node, f"class {name}({bases})" if bases else f"class {name}")
                yield from _symbols(node, f"{within}{name}.", "method")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
                back = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                yield _symbol(function, within + name, node, f"{start} {name}({ast.unparse(node.args)}){back}")
            case ast.Assign() | ast.AnnAssign():
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        hint = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
                        yield _symbol("variable", within + target.id, node, target.id + hint)
            case ast.If() | ast.Try() | ast.With() | ast.ExceptHandler():
                yield from _symbols(node, within, function)


def _symbol(
    kind: Literal["class", "function", "method", "variable"],
    name: str,
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign,
    signature: str,
) -> Symbol:
    return {
        "kind": kind,
        "name": name,
        "line": node.lineno,
        "end": node.end_lineno or node.lineno,
        "signature": redacted(signature)[:_LONGEST],
        "summary": "" if isinstance(node, ast.Assign | ast.AnnAssign) else _summary(node),
    }


def _summary(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    said = (ast.get_docstring(node) or "").strip()
    return redacted(said.partition("\n")[0])[:_LONGEST]


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules, those of relative imports with their dots."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, level=level):
                yield "." * level + (module or "")
