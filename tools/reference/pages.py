"""Find the marks in a page, and put what is generated between them."""

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
    """Each page that has such parts: where it is, what it says, and what it should say."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if _MARKED.search(text):
            yield page, text, current(text)


def current(text: str) -> str:
    """The page with all that is generated written anew."""

    def written(found: re.Match[str]) -> str:
        start, name, _, end = found.groups()
        return f"{start}\n{BLOCKS[name]().strip()}\n\n{end}"

    return _MARKED.sub(written, text)


def used() -> set[str]:
    """The names of the parts that some page has."""
    return {found[2] for _, text, _ in pages() for found in _MARKED.finditer(text)}
