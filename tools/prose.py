"""Check the project's prose for words that ``docs/reference/glossary.md`` replaces with a term.

``python tools/prose.py [FILE ...]`` checks docstrings, comments and messages of Python files, the text of Markdown
pages, and the comments and texts of Mangle rules. It prints each finding as ``file:line: word: replacement``, and exits
with 1 if there is one. Without files it checks the whole project.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["AVOIDED", "SPEECH", "check_mangle", "check_markdown", "check_python"]

ROOT: Final = Path(__file__).resolve().parents[1]
AVOIDED: Final = {
    r"whoever|whomever|whom": "name the actor: the caller, client, operator, approver, worker",
    r"nobody|no one": "no client, no caller, no worker",
    r"somebody|someone|anybody|anyone|everybody|everyone": "a client, any caller, all clients",
    r"locked in": "sandboxed",
    r"goes? over": "overrides",
    r"carr(?:y|ies|ied|ying) out": "execute",
    r"tak(?:es?|en|ing) up": "resume",
    r"editions?": "pack revision",
    r"(?<!there )(?:is|are|was|were) (?-i:none)(?! of)": "is not a",
    r"thinks? up|made up of whole cloth": "invent",
}
"""Words to avoid in all text, with what to write instead."""
SPEECH: Final = {
    r"says?|said|tells?|told|hears?|heard|speaks? of": "return, raise, report, state, send, receive",
}
"""Words to avoid where control flow is described: docstrings and comments."""
_CODE: Final = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
_QUOTED: Final = re.compile(r"``[^`]*``|`[^`\n]*`|\"[^\"\n]*\"")
_MANGLE: Final = re.compile(r"(?P<comment>#[^\n]*)|\bdoc\(\"(?P<doc>(?:\\.|[^\"\\])*)\"|\"(?P<text>(?:\\.|[^\"\\])*)\"")

Finding = tuple[int, str, str]


def check_text(text: str, first_line: int, *tables: dict[str, str]) -> Iterator[Finding]:
    """Yield the line, the word and the replacement for each avoided word in ``text``."""
    for table in tables:
        for pattern, instead in table.items():
            for match in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
                yield first_line + text.count("\n", 0, match.start()), match[0], instead


def check_markdown(text: str) -> Iterator[Finding]:
    """Yield the findings in a page, without its code, links and comments."""
    yield from check_text(_CODE.sub(_blank, text), 1, AVOIDED)


def check_python(text: str) -> Iterator[Finding]:
    """Yield the findings in the docstrings, comments and messages of a module."""
    documentation = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documentation.add(id(node.value))
            source = "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
            yield from check_text(_QUOTED.sub(_blank, source.replace('"""', "")), node.lineno, AVOIDED, SPEECH)
        elif isinstance(node, ast.Constant) and id(node) not in documentation and _is_message(node.value):
            yield from ((node.lineno, word, instead) for _, word, instead in check_text(str(node.value), 0, AVOIDED))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from check_text(_QUOTED.sub(_blank, token.string), token.start[0], AVOIDED, SPEECH)


def check_mangle(text: str) -> Iterator[Finding]:
    """Yield the findings in the comments, the ``doc`` texts and the messages of Mangle rules."""
    for match in _MANGLE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["comment"] is not None or match["doc"] is not None:
            yield from check_text(_QUOTED.sub(_blank, match["comment"] or match["doc"]), line, AVOIDED, SPEECH)
        elif _is_message(match["text"]):
            yield from check_text(match["text"], line, AVOIDED)


def _is_message(value: object) -> bool:
    return isinstance(value, str) and " " in value


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


CHECKS: Final = {".md": check_markdown, ".mg": check_mangle, ".py": check_python}


def files() -> Iterator[Path]:
    """Yield the files that are checked. Pages of ``docs`` join when they are rewritten."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    yield ROOT / "docs" / "reference" / "glossary.md"
    for folder in ("src", "tools", "examples", "benchmarks"):
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in CHECKS)


def main(named: list[str]) -> int:
    findings = 0
    for path in map(Path, named) if named else files():
        if path.resolve() == Path(__file__).resolve():
            continue  # it contains the words
        text = path.read_text("utf-8")
        shown = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
        for line, word, instead in sorted(CHECKS[path.suffix](text)):
            print(f"{shown}:{line}: {word!r}: {instead}")
            findings += 1
    if findings:
        print(f"\n{findings} words to replace; docs/reference/glossary.md has the terms", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
