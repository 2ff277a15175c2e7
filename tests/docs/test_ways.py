"""Nobody gets lost: the first page of the documentation leads to every other, and every page leads on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
INDEX = DOCS / "index.md"


def ways(page: Path) -> set[Path]:
    """The pages that it links to."""
    links = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text("utf-8"))
    return {(page.parent / link).resolve() for link in links} - {page}


def test_the_first_page_leads_to_all_others() -> None:
    missing = set(PAGES) - ways(INDEX) - {INDEX}
    assert sorted(str(page.relative_to(DOCS)) for page in missing) == []


def test_so_does_the_navigation() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    assert named == {str(page.relative_to(DOCS)) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_no_page_is_a_dead_end(page: Path) -> None:
    assert ways(page), "where does a reader go from here?"
