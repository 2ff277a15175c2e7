"""The definitions and imports of a Python file, from its syntax tree. The file is not executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypedDict

from manglecp import Context, Limits, action

from ..refusal import Refusal
from ..secrets import find_secrets, redact
from .roots import Root
from .texts import decode_text, digest

__all__ = ["Outline", "Symbol", "outline"]

_LARGEST: Final = 1024 * 1024
_MOST: Final = 2_000
_LONGEST: Final = 300


class Symbol(TypedDict):
    kind: Literal["class", "function", "method", "variable"]
    name: str
    """The qualified name, such as ``Basket.add``."""
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
    """Whether the list of symbols is truncated."""
    problem: str
    """The reason why there is no outline; empty on success."""


@action(effects=["filesystem"], mutates=False, idempotent=True)
def outline(
    context: Context, path: Annotated[str, Limits(min_length=1, max_length=1024)], refuse: bool = True
) -> Outline:
    """List the definitions and imports of a Python file.

    Args:
        path: relative to the repository
        refuse: fail if the file has no outline, instead of returning the problem
    """
    try:
        return _outline(context, path)
    except Refusal as refusal:
        if refuse:
            raise
        problem = str(refusal)
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
        raise Refusal(f"{path!r} is not a Python file: read it instead")
    with Root.open(context.settings) as root:
        data = root.read(path).data
    if len(data) > _LARGEST:
        raise Refusal(f"{path!r} has more than {_LARGEST:,} bytes: read a part of it instead")
    text = decode_text(data, path)
    try:
        tree = ast.parse(text)
        symbols = list(_symbols(tree, "", "function"))
    except SyntaxError as error:
        raise Refusal(f"{path!r} is not valid Python: line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise Refusal(f"{path!r} is nested too deeply: read a part of it instead") from None
    return {
        "path": path,
        "sha256": "" if find_secrets(text) else digest(data),
        "summary": _summary(tree),
        "imports": sorted(set(_imports(tree))),
        "symbols": symbols[:_MOST],
        "more": len(symbols) > _MOST,
        "problem": "",
    }


def _symbols(scope: ast.AST, within: str, function: Literal["function", "method"]) -> Iterator[Symbol]:
    """Yield the definitions of a scope in source order, conditional definitions included."""
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
        "signature": redact(signature)[:_LONGEST],
        "summary": "" if isinstance(node, ast.Assign | ast.AnnAssign) else _summary(node),
    }


def _summary(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    docstring = (ast.get_docstring(node) or "").strip()
    return redact(docstring.partition("\n")[0])[:_LONGEST]


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the imported modules; relative imports keep their leading dots."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, level=level):
                yield "." * level + (module or "")
