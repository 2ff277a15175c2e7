"""Find the marks in the pages, and replace the text between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.reference import builtins, codes, commands, harness, kernel, manifests, metrics, packs

__all__ = ["BLOCKS", "DOCS", "current", "pages"]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
_MARKED: Final = re.compile(r"(^<!-- generated: ([^\n]+?) -->\n)(.*?)(^<!-- end -->$)", re.DOTALL | re.MULTILINE)

BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    **builtins.blocks(),
    **codes.blocks(),
    **commands.blocks(),
    **harness.blocks(),
    **kernel.blocks(),
    **manifests.blocks(),
    **metrics.blocks(),
    **packs.blocks(),
}


def pages() -> Iterator[tuple[Path, str, str]]:
    """Yield each page with generated blocks: its path, its text, and the text with current blocks."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if _MARKED.search(text):
            yield page, text, current(text)


def current(text: str) -> str:
    """Return the page with its generated blocks replaced."""

    def replacement(found: re.Match[str]) -> str:
        start, name, _, end = found.groups()
        return f"{start}\n{BLOCKS[name]().strip()}\n\n{end}"

    return _MARKED.sub(replacement, text)


def used() -> set[str]:
    """Return the names of all blocks in the pages."""
    return {found[2] for _, text, _ in pages() for found in _MARKED.finditer(text)}
